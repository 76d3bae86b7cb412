//! Sockets in a tree: each kind of event, one by one and fast.

use std::{fs, os::unix::fs::symlink};

use wharf_dirwatch::{Depth, Kind};

use crate::fixture::{Fixture, place, places, remove, socket};

#[tokio::test]
async fn what_is_there_comes_before_synced() {
    for place in places() {
        let mut fixture = Fixture::start(place, Kind::Socket, Depth::Tree, |options| {
            fs::create_dir_all(options.root.join("a/b")).unwrap();
            socket(&options.root.join("one.sock"));
            socket(&options.root.join("a/b/two.sock"));
            fs::write(options.root.join("file"), "").unwrap();
        });
        assert_eq!(fixture.sync().await, ["+a/b/two.sock", "+one.sock"]);
        fixture.agrees_with_a_scan();
        assert_eq!(fixture.watch.rescans(), 1);
        fixture.watch.stop().await;
    }
}

#[tokio::test]
async fn made_and_removed() {
    for place in places() {
        let mut fixture = Fixture::sockets(place).await;
        socket(&fixture.path("a.sock"));
        assert_eq!(fixture.settle().await, ["+a.sock"]);
        remove(&fixture.path("a.sock"));
        assert_eq!(fixture.settle().await, ["-a.sock"]);
        assert_eq!(fixture.watch.rescans(), 1);
    }
}

#[tokio::test]
async fn made_again_any_number_of_times_is_one_replacement() {
    for place in places() {
        let mut fixture = Fixture::sockets(place).await;
        let path = fixture.path("a.sock");
        socket(&path);
        assert_eq!(fixture.settle().await, ["+a.sock"]);
        // One thread runs test and watch: the watch looks only at the next await.
        for _ in 0..5 {
            remove(&path);
            socket(&path);
        }
        assert_eq!(fixture.settle().await, ["*a.sock"]);
        fixture.agrees_with_a_scan();
    }
}

#[tokio::test]
async fn made_and_removed_between_two_looks_is_nothing() {
    let mut fixture = Fixture::sockets(place()).await;
    socket(&fixture.path("a.sock"));
    remove(&fixture.path("a.sock"));
    assert_eq!(fixture.settle().await, [""; 0]);
}

#[tokio::test]
async fn moved_in_over_and_away() {
    for place in places() {
        let mut fixture = Fixture::sockets(place).await;
        let (outside, path) = (fixture.outside("made.sock"), fixture.path("a.sock"));
        socket(&outside);
        fs::rename(&outside, &path).unwrap();
        assert_eq!(fixture.settle().await, ["+a.sock"]);
        socket(&outside);
        fs::rename(&outside, &path).unwrap();
        assert_eq!(fixture.settle().await, ["*a.sock"]);
        fs::rename(&path, fixture.path("b.sock")).unwrap();
        assert_eq!(fixture.settle().await, ["-a.sock", "+b.sock"]);
        fs::rename(fixture.path("b.sock"), &outside).unwrap();
        assert_eq!(fixture.settle().await, ["-b.sock"]);
        // Moved away and back: reported as replaced.
        socket(&path);
        assert_eq!(fixture.settle().await, ["+a.sock"]);
        fs::rename(&path, fixture.outside("c.sock")).unwrap();
        fs::rename(fixture.outside("c.sock"), &path).unwrap();
        assert_eq!(fixture.settle().await, ["*a.sock"]);
    }
}

#[tokio::test]
async fn touching_a_socket_is_no_change() {
    let mut fixture = Fixture::sockets(place()).await;
    let path = fixture.path("a.sock");
    socket(&path);
    assert_eq!(fixture.settle().await, ["+a.sock"]);
    fs::hard_link(&path, fixture.path("b.sock")).unwrap();
    assert_eq!(fixture.settle().await, ["+b.sock"]);
    fs::rename(&path, fixture.path("b.sock")).unwrap();
    assert_eq!(
        fixture.settle().await,
        [""; 0],
        "a rename between two links of one file is nothing"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_made_fast() {
    for place in places() {
        let mut fixture = Fixture::sockets(place).await;
        for round in 0..100 {
            let folder = fixture.path(&format!("{round}/b/c"));
            fs::create_dir_all(&folder).unwrap();
            socket(&folder.join("d.sock"));
        }
        let heard = fixture.settle().await;
        assert_eq!(heard.len(), 100, "{heard:?}");
        fixture.agrees_with_a_scan();
        for round in 0..100 {
            fs::remove_dir_all(fixture.path(&round.to_string())).unwrap();
        }
        assert_eq!(fixture.settle().await.len(), 100);
        assert!(fixture.state.is_empty());
        assert_eq!(fixture.watch.rescans(), 1);
    }
}

#[tokio::test]
async fn a_folder_moved_within_in_and_away() {
    for place in places() {
        let mut fixture = Fixture::sockets(place).await;
        fs::create_dir_all(fixture.path("a/b")).unwrap();
        socket(&fixture.path("a/b/x.sock"));
        assert_eq!(fixture.settle().await, ["+a/b/x.sock"]);
        fs::rename(fixture.path("a"), fixture.path("m")).unwrap();
        assert_eq!(fixture.settle().await, ["-a/b/x.sock", "+m/b/x.sock"]);
        // The moved folders are watched under their new names only.
        socket(&fixture.path("m/b/y.sock"));
        assert_eq!(fixture.settle().await, ["+m/b/y.sock"]);
        fs::rename(fixture.path("m"), fixture.outside("away")).unwrap();
        assert_eq!(fixture.settle().await, ["-m/b/x.sock", "-m/b/y.sock"]);
        // They are not reported under a new folder with the old name either.
        fs::create_dir(fixture.path("n")).unwrap();
        fs::create_dir(fixture.path("n/b")).unwrap();
        assert_eq!(fixture.settle().await, [""; 0]);
        fs::rename(fixture.path("n"), fixture.outside("n")).unwrap();
        fs::create_dir(fixture.path("n")).unwrap();
        assert_eq!(fixture.settle().await, [""; 0]);
        let events = fixture.watch.events();
        socket(&fixture.outside("n/b/x.sock"));
        socket(&fixture.outside("away/b/z.sock"));
        assert_eq!(fixture.settle().await, [""; 0]);
        let signs = 2;
        assert_eq!(
            fixture.watch.events() - events,
            signs,
            "the watch on what moved away is dropped"
        );
        fs::rename(fixture.outside("away"), fixture.path("back")).unwrap();
        assert_eq!(fixture.settle().await, ["+back/b/x.sock", "+back/b/y.sock", "+back/b/z.sock"]);
        assert_eq!(fixture.watch.rescans(), 1);
    }
}

#[tokio::test]
async fn a_folder_made_again_with_what_was_in_it() {
    for place in places() {
        let mut fixture = Fixture::sockets(place).await;
        for round in ["+", "*", "*"] {
            fs::remove_dir_all(fixture.path("a")).ok();
            fs::create_dir(fixture.path("a")).unwrap();
            socket(&fixture.path("a/x.sock"));
            assert_eq!(fixture.settle().await, [format!("{round}a/x.sock")]);
        }
        remove(&fixture.path("a/x.sock"));
        assert_eq!(fixture.settle().await, ["-a/x.sock"]);
    }
}

#[tokio::test]
async fn a_path_that_changes_its_kind() {
    let mut fixture = Fixture::sockets(place()).await;
    let path = fixture.path("a");
    socket(&path);
    assert_eq!(fixture.settle().await, ["+a"]);
    remove(&path);
    fs::create_dir(&path).unwrap();
    socket(&path.join("x"));
    assert_eq!(fixture.settle().await, ["-a", "+a/x"]);
    fs::remove_dir_all(&path).unwrap();
    socket(&path);
    assert_eq!(fixture.settle().await, ["-a/x", "+a"]);
    remove(&path);
    fs::write(&path, "a file").unwrap();
    assert_eq!(fixture.settle().await, ["-a"]);
}

#[tokio::test]
async fn names_with_a_dot_at_any_level_are_not_there() {
    let mut fixture = Fixture::start(place(), Kind::Socket, Depth::Tree, |options| {
        fs::create_dir_all(options.root.join(".before/d")).unwrap();
        socket(&options.root.join(".before/d/x.sock"));
        socket(&options.root.join(".x.sock"));
    });
    assert_eq!(fixture.sync().await, [""; 0]);
    for folder in [".d", "d/.e", "d/e"] {
        fs::create_dir_all(fixture.path(folder)).unwrap();
        socket(&fixture.path(folder).join("x.sock"));
        socket(&fixture.path(folder).join(".y.sock"));
    }
    assert_eq!(fixture.settle().await, ["+d/e/x.sock"]);
    fs::rename(fixture.path("d/e/x.sock"), fixture.path("d/e/.x.sock")).unwrap();
    assert_eq!(fixture.settle().await, ["-d/e/x.sock"]);
    fixture.agrees_with_a_scan();
}

#[tokio::test]
async fn a_root_with_a_dot_in_its_path_is_a_root_like_any_other() {
    let mut fixture = Fixture::start(place(), Kind::Socket, Depth::Tree, |options| {
        options.root = options.root.join(".hidden/r");
    });
    fixture.sync().await;
    socket(&fixture.path("x.sock"));
    assert_eq!(fixture.settle().await, ["+x.sock"]);
}

#[tokio::test]
async fn links() {
    let mut fixture = Fixture::start(place(), Kind::Socket, Depth::Tree, |options| {
        fs::create_dir_all(options.root.join("d")).unwrap();
        symlink(&options.root, options.root.join("d/up")).unwrap();
        symlink("self", options.root.join("self")).unwrap();
        symlink("nowhere", options.root.join("dangling")).unwrap();
    });
    assert_eq!(fixture.sync().await, [""; 0]);
    let outside = fixture.outside("o");
    fs::create_dir(&outside).unwrap();
    socket(&outside.join("x.sock"));
    symlink(&outside, fixture.path("folder")).unwrap();
    symlink("loop", fixture.path("loop")).unwrap();
    symlink("void", fixture.path("void")).unwrap();
    assert_eq!(fixture.settle().await, [""; 0]);
    symlink(outside.join("x.sock"), fixture.path("l.sock")).unwrap();
    assert_eq!(fixture.settle().await, ["+l.sock"]);
    remove(&fixture.path("l.sock"));
    assert_eq!(fixture.settle().await, ["-l.sock"]);
    fixture.agrees_with_a_scan();
}

#[tokio::test]
async fn only_the_folder_itself() {
    let mut fixture = Fixture::start(place(), Kind::Socket, Depth::Folder, |options| {
        fs::create_dir_all(options.root.join("d")).unwrap();
        socket(&options.root.join("d/x.sock"));
        socket(&options.root.join("x.sock"));
    });
    assert_eq!(fixture.sync().await, ["+x.sock"]);
    fs::create_dir(fixture.path("e")).unwrap();
    socket(&fixture.path("e/x.sock"));
    assert_eq!(fixture.settle().await, [""; 0]);
    fixture.agrees_with_a_scan();
}
