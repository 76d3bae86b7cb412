//! Roots that are missing, removed, moved away, and back.

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::time::Duration;

use wharf_dirwatch::{Change, Depth, Kind, scan};

use crate::bench::{Bench, place, places, socket};

#[tokio::test]
async fn it_is_made_with_its_parents_and_mode() {
    let mut bench = Bench::start(place(), Kind::Socket, Depth::Tree, |options| {
        options.root = options.root.join("deep/down");
        options.create_root = Some(0o700);
    });
    bench.sync().await;
    let mode = fs::metadata(&bench.options.root).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[tokio::test]
async fn one_that_is_missing_is_waited_for() {
    for place in places() {
        let mut bench = Bench::start(place, Kind::Socket, Depth::Tree, |options| {
            options.create_root = None;
        });
        let Change::Trouble { message } = bench.next().await else { panic!("trouble first") };
        let root = bench.options.root.clone();
        assert!(message.contains(root.to_str().unwrap()), "{message}");
        assert_eq!(scan(&bench.options).unwrap_err().kind(), std::io::ErrorKind::NotFound);
        assert_eq!(bench.watch.events(), 0);
        fs::create_dir(&root).unwrap();
        assert_eq!(bench.sync().await, [""; 0]);
        assert!(bench.watch.events() > 0, "the parent was watched");
        fs::create_dir(bench.outside("other")).unwrap();
        let events = bench.watch.events();
        socket(&bench.path("x.sock"));
        assert_eq!(bench.settle().await, ["+x.sock"]);
        let (socket, signs) = (1, 2);
        assert_eq!(bench.watch.events() - events, socket + signs, "the parent no longer is");
    }
}

/// With a rescan that never comes, a root whose parent is missing too is found by the retries.
#[tokio::test]
async fn one_whose_parent_is_missing_is_waited_for() {
    let mut bench = Bench::start(place(), Kind::Socket, Depth::Tree, |options| {
        options.root = options.root.join("parent/root");
        options.create_root = None;
    });
    assert!(matches!(bench.next().await, Change::Trouble { .. }));
    fs::create_dir_all(&bench.options.root).unwrap();
    bench.sync().await;
    socket(&bench.path("x.sock"));
    assert_eq!(bench.settle().await, ["+x.sock"]);
}

#[tokio::test]
async fn removed_and_made_again() {
    for place in places() {
        let mut bench = Bench::sockets(place).await;
        let root = bench.options.root.clone();
        for _ in 0..3 {
            fs::create_dir(bench.path("d")).unwrap();
            socket(&bench.path("d/x.sock"));
            assert_eq!(bench.settle().await, ["+d/x.sock"]);
            fs::remove_dir_all(&root).unwrap();
            assert!(matches!(bench.next().await, Change::Vanished { .. }));
            while !matches!(bench.next().await, Change::Trouble { .. }) {}
            assert!(bench.state.is_empty());
            assert!(!root.exists(), "a removed root is for its owner to make again");
            fs::create_dir(&root).unwrap();
            assert_eq!(bench.sync().await, [""; 0]);
        }
    }
}

#[tokio::test]
async fn removed_and_made_again_between_two_looks() {
    for place in places() {
        let mut bench = Bench::sockets(place).await;
        socket(&bench.path("x.sock"));
        socket(&bench.path("y.sock"));
        assert_eq!(bench.settle().await, ["+x.sock", "+y.sock"]);
        fs::remove_dir_all(&bench.options.root).unwrap();
        fs::create_dir(&bench.options.root).unwrap();
        socket(&bench.path("x.sock"));
        let heard = bench.settle().await;
        assert_eq!(heard, ["-y.sock", "*x.sock"]);
        bench.agrees_with_a_scan();
    }
}

/// A socket that is listened on keeps the removed root alive, whose watch then stays silent.
#[tokio::test]
async fn removed_and_made_again_while_a_socket_in_it_is_open() {
    for place in places() {
        let mut bench = Bench::sockets(place).await;
        let mut open = Vec::new();
        for _ in 0..3 {
            open.push(UnixListener::bind(bench.path("x.sock")).unwrap());
            assert_eq!(bench.settle().await, ["+x.sock"]);
            fs::remove_dir_all(&bench.options.root).unwrap();
            while !matches!(bench.next().await, Change::Trouble { .. }) {}
            assert!(bench.state.is_empty());
            fs::create_dir(&bench.options.root).unwrap();
            assert_eq!(bench.sync().await, [""; 0]);
            // And between two looks.
            fs::remove_dir_all(&bench.options.root).unwrap();
            fs::create_dir(&bench.options.root).unwrap();
        }
    }
}

#[tokio::test]
async fn moved_away_and_back() {
    for place in places() {
        let mut bench = Bench::sockets(place).await;
        let (root, away) = (bench.options.root.clone(), bench.outside("away"));
        socket(&bench.path("x.sock"));
        assert_eq!(bench.settle().await, ["+x.sock"]);
        fs::rename(&root, &away).unwrap();
        assert!(matches!(bench.next().await, Change::Vanished { .. }));
        assert!(matches!(bench.next().await, Change::Trouble { .. }));
        // What happens elsewhere is not below the root.
        socket(&away.join("y.sock"));
        fs::rename(&away, &root).unwrap();
        assert_eq!(bench.sync().await, ["+x.sock", "+y.sock"]);
        socket(&bench.path("z.sock"));
        assert_eq!(bench.settle().await, ["+z.sock"]);
    }
}

#[tokio::test]
async fn another_folder_in_its_place() {
    let mut bench = Bench::sockets(place()).await;
    let (root, other) = (bench.options.root.clone(), bench.outside("other"));
    socket(&bench.path("x.sock"));
    assert_eq!(bench.settle().await, ["+x.sock"]);
    fs::create_dir(&other).unwrap();
    socket(&other.join("x.sock"));
    socket(&other.join("y.sock"));
    use rustix::fs::{CWD, RenameFlags, renameat_with};
    renameat_with(CWD, &root, CWD, &other, RenameFlags::EXCHANGE).unwrap();
    let heard = bench.settle().await;
    assert_eq!(heard, ["*x.sock", "+y.sock"]);
    socket(&other.join("z.sock"));
    socket(&bench.path("new.sock"));
    assert_eq!(bench.settle().await, ["+new.sock"]);
}

/// No event tells that a folder further up was exchanged: that is what the rescan is for.
#[tokio::test]
async fn an_exchanged_parent_is_seen_by_the_rescan() {
    let mut bench = Bench::start(place(), Kind::Socket, Depth::Tree, |options| {
        options.root = options.root.join("root");
        options.rescan = Duration::from_millis(50);
    });
    bench.sync().await;
    socket(&bench.path("x.sock"));
    assert!(matches!(bench.next().await, Change::Appeared { .. }));
    fs::rename(bench.outside("root"), bench.outside("old")).unwrap();
    fs::create_dir_all(&bench.options.root).unwrap();
    while !bench.state.is_empty() {
        bench.next().await;
    }
    socket(&bench.path("y.sock"));
    while bench.state.is_empty() {
        bench.next().await;
    }
    bench.agrees_with_a_scan();
}

#[tokio::test]
async fn a_link_to_the_root_is_followed() {
    let mut bench = Bench::start(place(), Kind::Socket, Depth::Tree, |options| {
        let real = options.root.with_file_name("real");
        fs::create_dir(&real).unwrap();
        symlink(&real, &options.root).unwrap();
    });
    bench.sync().await;
    socket(&bench.path("x.sock"));
    assert_eq!(bench.settle().await, ["+x.sock"]);
}
