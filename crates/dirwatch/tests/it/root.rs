//! Roots that are missing, removed, moved away, and restored.

use std::{
    fs,
    os::unix::{
        fs::{PermissionsExt, symlink},
        net::UnixListener,
    },
    time::Duration,
};

use wharf_dirwatch::{Change, Depth, Kind, scan};

use crate::fixture::{Fixture, place, places, socket};

#[tokio::test]
async fn it_is_made_with_its_parents_and_mode() {
    let mut fixture = Fixture::start(place(), Kind::Socket, Depth::Tree, |options| {
        options.root = options.root.join("deep/down");
        options.create_root = Some(0o700);
    });
    fixture.sync().await;
    let mode = fs::metadata(&fixture.options.root).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[tokio::test]
async fn one_that_is_missing_is_waited_for() {
    for place in places() {
        let mut fixture = Fixture::start(place, Kind::Socket, Depth::Tree, |options| {
            options.create_root = None;
        });
        let Change::Trouble { message } = fixture.next().await else { panic!("trouble first") };
        let root = fixture.options.root.clone();
        assert!(message.contains(root.to_str().unwrap()), "{message}");
        assert_eq!(scan(&fixture.options).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        assert_eq!(fixture.watch.events(), 0);
        fs::create_dir(&root).unwrap();
        assert_eq!(fixture.sync().await, [""; 0]);
        assert!(fixture.watch.events() > 0, "the parent was watched");
        fs::create_dir(fixture.outside("other")).unwrap();
        let events = fixture.watch.events();
        socket(&fixture.path("x.sock"));
        assert_eq!(fixture.settle().await, ["+x.sock"]);
        let (socket, signs) = (1, 2);
        assert_eq!(fixture.watch.events() - events, socket + signs, "the parent no longer is");
    }
}

/// Without rescans, a root whose parent is missing too is found by the retries.
#[tokio::test]
async fn one_whose_parent_is_missing_is_waited_for() {
    let mut fixture = Fixture::start(place(), Kind::Socket, Depth::Tree, |options| {
        options.root = options.root.join("parent/root");
        options.create_root = None;
    });
    assert!(matches!(fixture.next().await, Change::Trouble { .. }));
    fs::create_dir_all(&fixture.options.root).unwrap();
    fixture.sync().await;
    socket(&fixture.path("x.sock"));
    assert_eq!(fixture.settle().await, ["+x.sock"]);
}

#[tokio::test]
async fn removed_and_made_again() {
    for place in places() {
        let mut fixture = Fixture::sockets(place).await;
        let root = fixture.options.root.clone();
        for _ in 0..3 {
            fs::create_dir(fixture.path("d")).unwrap();
            socket(&fixture.path("d/x.sock"));
            assert_eq!(fixture.settle().await, ["+d/x.sock"]);
            fs::remove_dir_all(&root).unwrap();
            assert!(matches!(fixture.next().await, Change::Vanished { .. }));
            while !matches!(fixture.next().await, Change::Trouble { .. }) {}
            assert!(fixture.state.is_empty());
            assert!(!root.exists(), "a removed root is for its owner to make again");
            fs::create_dir(&root).unwrap();
            assert_eq!(fixture.sync().await, [""; 0]);
        }
    }
}

#[tokio::test]
async fn removed_and_made_again_between_two_looks() {
    for place in places() {
        let mut fixture = Fixture::sockets(place).await;
        socket(&fixture.path("x.sock"));
        socket(&fixture.path("y.sock"));
        assert_eq!(fixture.settle().await, ["+x.sock", "+y.sock"]);
        fs::remove_dir_all(&fixture.options.root).unwrap();
        fs::create_dir(&fixture.options.root).unwrap();
        socket(&fixture.path("x.sock"));
        let heard = fixture.settle().await;
        assert_eq!(heard, ["-y.sock", "*x.sock"]);
        fixture.agrees_with_a_scan();
    }
}

/// A listener on a socket keeps the removed root alive, and its watch then reports nothing.
#[tokio::test]
async fn removed_and_made_again_while_a_socket_in_it_is_open() {
    for place in places() {
        let mut fixture = Fixture::sockets(place).await;
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(UnixListener::bind(fixture.path("x.sock")).unwrap());
            assert_eq!(fixture.settle().await, ["+x.sock"]);
            fs::remove_dir_all(&fixture.options.root).unwrap();
            while !matches!(fixture.next().await, Change::Trouble { .. }) {}
            assert!(fixture.state.is_empty());
            fs::create_dir(&fixture.options.root).unwrap();
            assert_eq!(fixture.sync().await, [""; 0]);
            // Removed between two looks.
            fs::remove_dir_all(&fixture.options.root).unwrap();
            fs::create_dir(&fixture.options.root).unwrap();
        }
    }
}

#[tokio::test]
async fn moved_away_and_back() {
    for place in places() {
        let mut fixture = Fixture::sockets(place).await;
        let (root, away) = (fixture.options.root.clone(), fixture.outside("away"));
        socket(&fixture.path("x.sock"));
        assert_eq!(fixture.settle().await, ["+x.sock"]);
        fs::rename(&root, &away).unwrap();
        assert!(matches!(fixture.next().await, Change::Vanished { .. }));
        assert!(matches!(fixture.next().await, Change::Trouble { .. }));
        // Changes in the folder that was moved away are not below the root.
        socket(&away.join("y.sock"));
        fs::rename(&away, &root).unwrap();
        assert_eq!(fixture.sync().await, ["+x.sock", "+y.sock"]);
        socket(&fixture.path("z.sock"));
        assert_eq!(fixture.settle().await, ["+z.sock"]);
    }
}

#[tokio::test]
async fn another_folder_in_its_place() {
    let mut fixture = Fixture::sockets(place()).await;
    let (root, other) = (fixture.options.root.clone(), fixture.outside("other"));
    socket(&fixture.path("x.sock"));
    assert_eq!(fixture.settle().await, ["+x.sock"]);
    fs::create_dir(&other).unwrap();
    socket(&other.join("x.sock"));
    socket(&other.join("y.sock"));
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, &root, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    let heard = fixture.settle().await;
    assert_eq!(heard, ["*x.sock", "+y.sock"]);
    socket(&other.join("z.sock"));
    socket(&fixture.path("new.sock"));
    assert_eq!(fixture.settle().await, ["+new.sock"]);
}

/// No event reports that a folder further up was exchanged: only the rescan finds it.
#[tokio::test]
async fn an_exchanged_parent_is_seen_by_the_rescan() {
    let mut fixture = Fixture::start(place(), Kind::Socket, Depth::Tree, |options| {
        options.root = options.root.join("root");
        options.rescan = Duration::from_millis(50);
    });
    fixture.sync().await;
    socket(&fixture.path("x.sock"));
    assert!(matches!(fixture.next().await, Change::Appeared { .. }));
    fs::rename(fixture.outside("root"), fixture.outside("old")).unwrap();
    fs::create_dir_all(&fixture.options.root).unwrap();
    while !fixture.state.is_empty() {
        fixture.next().await;
    }
    socket(&fixture.path("y.sock"));
    while fixture.state.is_empty() {
        fixture.next().await;
    }
    fixture.agrees_with_a_scan();
}

#[tokio::test]
async fn a_link_to_the_root_is_followed() {
    let mut fixture = Fixture::start(place(), Kind::Socket, Depth::Tree, |options| {
        let real = options.root.with_file_name("real");
        fs::create_dir(&real).unwrap();
        symlink(&real, &options.root).unwrap();
    });
    fixture.sync().await;
    socket(&fixture.path("x.sock"));
    assert_eq!(fixture.settle().await, ["+x.sock"]);
}
