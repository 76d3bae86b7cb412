//! Sockets in a tree: each kind of event, one by one and fast.

use std::fs;
use std::os::unix::fs::symlink;

use wharf_dirwatch::{Depth, Kind};

use crate::bench::{Bench, place, places, remove, socket};

#[tokio::test]
async fn what_is_there_comes_before_synced() {
    for place in places() {
        let mut bench = Bench::start(place, Kind::Socket, Depth::Tree, |options| {
            fs::create_dir_all(options.root.join("a/b")).unwrap();
            socket(&options.root.join("one.sock"));
            socket(&options.root.join("a/b/two.sock"));
            fs::write(options.root.join("file"), "").unwrap();
        });
        assert_eq!(bench.sync().await, ["+a/b/two.sock", "+one.sock"]);
        bench.agrees_with_a_scan();
        assert_eq!(bench.watch.rescans(), 1);
        bench.watch.stop().await;
    }
}

#[tokio::test]
async fn made_and_removed() {
    for place in places() {
        let mut bench = Bench::sockets(place).await;
        socket(&bench.path("a.sock"));
        assert_eq!(bench.settle().await, ["+a.sock"]);
        remove(&bench.path("a.sock"));
        assert_eq!(bench.settle().await, ["-a.sock"]);
        assert_eq!(bench.watch.rescans(), 1);
    }
}

#[tokio::test]
async fn made_again_any_number_of_times_is_one_replacement() {
    for place in places() {
        let mut bench = Bench::sockets(place).await;
        let path = bench.path("a.sock");
        socket(&path);
        assert_eq!(bench.settle().await, ["+a.sock"]);
        // One thread runs test and watch: the watch looks only at the next await.
        for _ in 0..5 {
            remove(&path);
            socket(&path);
        }
        assert_eq!(bench.settle().await, ["*a.sock"]);
        bench.agrees_with_a_scan();
    }
}

#[tokio::test]
async fn made_and_removed_between_two_looks_is_nothing() {
    let mut bench = Bench::sockets(place()).await;
    socket(&bench.path("a.sock"));
    remove(&bench.path("a.sock"));
    assert_eq!(bench.settle().await, [""; 0]);
}

#[tokio::test]
async fn moved_in_over_and_away() {
    for place in places() {
        let mut bench = Bench::sockets(place).await;
        let (outside, path) = (bench.outside("made.sock"), bench.path("a.sock"));
        socket(&outside);
        fs::rename(&outside, &path).unwrap();
        assert_eq!(bench.settle().await, ["+a.sock"]);
        socket(&outside);
        fs::rename(&outside, &path).unwrap();
        assert_eq!(bench.settle().await, ["*a.sock"]);
        fs::rename(&path, bench.path("b.sock")).unwrap();
        assert_eq!(bench.settle().await, ["-a.sock", "+b.sock"]);
        fs::rename(bench.path("b.sock"), &outside).unwrap();
        assert_eq!(bench.settle().await, ["-b.sock"]);
        // Moved away and back: it left, and whoever moved it may have meant that.
        socket(&path);
        assert_eq!(bench.settle().await, ["+a.sock"]);
        fs::rename(&path, bench.outside("c.sock")).unwrap();
        fs::rename(bench.outside("c.sock"), &path).unwrap();
        assert_eq!(bench.settle().await, ["*a.sock"]);
    }
}

#[tokio::test]
async fn touching_a_socket_is_no_change() {
    let mut bench = Bench::sockets(place()).await;
    let path = bench.path("a.sock");
    socket(&path);
    assert_eq!(bench.settle().await, ["+a.sock"]);
    fs::hard_link(&path, bench.path("b.sock")).unwrap();
    assert_eq!(bench.settle().await, ["+b.sock"]);
    fs::rename(&path, bench.path("b.sock")).unwrap();
    assert_eq!(bench.settle().await, [""; 0], "a rename between two links of one file is nothing");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn folders_made_fast() {
    for place in places() {
        let mut bench = Bench::sockets(place).await;
        for round in 0..100 {
            let folder = bench.path(&format!("{round}/b/c"));
            fs::create_dir_all(&folder).unwrap();
            socket(&folder.join("d.sock"));
        }
        let heard = bench.settle().await;
        assert_eq!(heard.len(), 100, "{heard:?}");
        bench.agrees_with_a_scan();
        for round in 0..100 {
            fs::remove_dir_all(bench.path(&round.to_string())).unwrap();
        }
        assert_eq!(bench.settle().await.len(), 100);
        assert!(bench.state.is_empty());
        assert_eq!(bench.watch.rescans(), 1);
    }
}

#[tokio::test]
async fn a_folder_moved_within_in_and_away() {
    for place in places() {
        let mut bench = Bench::sockets(place).await;
        fs::create_dir_all(bench.path("a/b")).unwrap();
        socket(&bench.path("a/b/x.sock"));
        assert_eq!(bench.settle().await, ["+a/b/x.sock"]);
        fs::rename(bench.path("a"), bench.path("m")).unwrap();
        assert_eq!(bench.settle().await, ["-a/b/x.sock", "+m/b/x.sock"]);
        // The moved folders are watched under their new names, and only there.
        socket(&bench.path("m/b/y.sock"));
        assert_eq!(bench.settle().await, ["+m/b/y.sock"]);
        fs::rename(bench.path("m"), bench.outside("away")).unwrap();
        assert_eq!(bench.settle().await, ["-m/b/x.sock", "-m/b/y.sock"]);
        // Nor is it known under a new folder with the old name.
        fs::create_dir(bench.path("n")).unwrap();
        fs::create_dir(bench.path("n/b")).unwrap();
        assert_eq!(bench.settle().await, [""; 0]);
        fs::rename(bench.path("n"), bench.outside("n")).unwrap();
        fs::create_dir(bench.path("n")).unwrap();
        assert_eq!(bench.settle().await, [""; 0]);
        let events = bench.watch.events();
        socket(&bench.outside("n/b/x.sock"));
        socket(&bench.outside("away/b/z.sock"));
        assert_eq!(bench.settle().await, [""; 0]);
        let signs = 2;
        assert_eq!(bench.watch.events() - events, signs, "the watch on what moved away is dropped");
        fs::rename(bench.outside("away"), bench.path("back")).unwrap();
        assert_eq!(bench.settle().await, ["+back/b/x.sock", "+back/b/y.sock", "+back/b/z.sock"]);
        assert_eq!(bench.watch.rescans(), 1);
    }
}

#[tokio::test]
async fn a_folder_made_again_with_what_was_in_it() {
    for place in places() {
        let mut bench = Bench::sockets(place).await;
        for round in ["+", "*", "*"] {
            fs::remove_dir_all(bench.path("a")).ok();
            fs::create_dir(bench.path("a")).unwrap();
            socket(&bench.path("a/x.sock"));
            assert_eq!(bench.settle().await, [format!("{round}a/x.sock")]);
        }
        remove(&bench.path("a/x.sock"));
        assert_eq!(bench.settle().await, ["-a/x.sock"]);
    }
}

#[tokio::test]
async fn a_path_that_changes_its_kind() {
    let mut bench = Bench::sockets(place()).await;
    let path = bench.path("a");
    socket(&path);
    assert_eq!(bench.settle().await, ["+a"]);
    remove(&path);
    fs::create_dir(&path).unwrap();
    socket(&path.join("x"));
    assert_eq!(bench.settle().await, ["-a", "+a/x"]);
    fs::remove_dir_all(&path).unwrap();
    socket(&path);
    assert_eq!(bench.settle().await, ["-a/x", "+a"]);
    remove(&path);
    fs::write(&path, "a file").unwrap();
    assert_eq!(bench.settle().await, ["-a"]);
}

#[tokio::test]
async fn names_with_a_dot_at_any_level_are_not_there() {
    let mut bench = Bench::start(place(), Kind::Socket, Depth::Tree, |options| {
        fs::create_dir_all(options.root.join(".before/d")).unwrap();
        socket(&options.root.join(".before/d/x.sock"));
        socket(&options.root.join(".x.sock"));
    });
    assert_eq!(bench.sync().await, [""; 0]);
    for folder in [".d", "d/.e", "d/e"] {
        fs::create_dir_all(bench.path(folder)).unwrap();
        socket(&bench.path(folder).join("x.sock"));
        socket(&bench.path(folder).join(".y.sock"));
    }
    assert_eq!(bench.settle().await, ["+d/e/x.sock"]);
    fs::rename(bench.path("d/e/x.sock"), bench.path("d/e/.x.sock")).unwrap();
    assert_eq!(bench.settle().await, ["-d/e/x.sock"]);
    bench.agrees_with_a_scan();
}

#[tokio::test]
async fn a_root_with_a_dot_in_its_path_is_a_root_like_any_other() {
    let mut bench = Bench::start(place(), Kind::Socket, Depth::Tree, |options| {
        options.root = options.root.join(".hidden/r");
    });
    bench.sync().await;
    socket(&bench.path("x.sock"));
    assert_eq!(bench.settle().await, ["+x.sock"]);
}

#[tokio::test]
async fn links() {
    let mut bench = Bench::start(place(), Kind::Socket, Depth::Tree, |options| {
        fs::create_dir_all(options.root.join("d")).unwrap();
        symlink(&options.root, options.root.join("d/up")).unwrap();
        symlink("self", options.root.join("self")).unwrap();
        symlink("nowhere", options.root.join("dangling")).unwrap();
    });
    assert_eq!(bench.sync().await, [""; 0]);
    let outside = bench.outside("o");
    fs::create_dir(&outside).unwrap();
    socket(&outside.join("x.sock"));
    symlink(&outside, bench.path("folder")).unwrap();
    symlink("loop", bench.path("loop")).unwrap();
    symlink("void", bench.path("void")).unwrap();
    assert_eq!(bench.settle().await, [""; 0]);
    symlink(outside.join("x.sock"), bench.path("l.sock")).unwrap();
    assert_eq!(bench.settle().await, ["+l.sock"]);
    remove(&bench.path("l.sock"));
    assert_eq!(bench.settle().await, ["-l.sock"]);
    bench.agrees_with_a_scan();
}

#[tokio::test]
async fn only_the_folder_itself() {
    let mut bench = Bench::start(place(), Kind::Socket, Depth::Folder, |options| {
        fs::create_dir_all(options.root.join("d")).unwrap();
        socket(&options.root.join("d/x.sock"));
        socket(&options.root.join("x.sock"));
    });
    assert_eq!(bench.sync().await, ["+x.sock"]);
    fs::create_dir(bench.path("e")).unwrap();
    socket(&bench.path("e/x.sock"));
    assert_eq!(bench.settle().await, [""; 0]);
    bench.agrees_with_a_scan();
}
