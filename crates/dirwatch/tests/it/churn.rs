//! Many changes at once, from another thread.

use std::{
    fs,
    time::{Duration, Instant},
};

use tokio::task::spawn_blocking;
use wharf_dirwatch::{Depth, Kind};

use crate::fixture::{Fixture, places, remove, socket};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thousand_made_and_removed() {
    for place in places() {
        let mut fixture = Fixture::sockets(place).await;
        let root = fixture.options.root.clone();
        let churn = spawn_blocking(move || {
            for round in 0..1000 {
                let path = root.join(format!("{}.sock", round % 7));
                if path.exists() {
                    remove(&path);
                } else {
                    socket(&path);
                }
                let folder = root.join(format!("d{}", round % 3));
                if fs::create_dir(&folder).is_ok() {
                    socket(&folder.join("x.sock"));
                } else {
                    fs::remove_dir_all(&folder).unwrap();
                }
            }
        });
        while !churn.is_finished() {
            // Reads meanwhile, so that looks and changes race.
            let _ = tokio::time::timeout(Duration::from_millis(1), fixture.next()).await;
        }
        churn.await.unwrap();
        fixture.settle().await;
        fixture.agrees_with_a_scan();
        assert_eq!(fixture.watch.rescans(), 1);
    }
}

/// A scan finds a file before its event is read: the file is reported once.
#[tokio::test]
async fn a_rescan_doubles_nothing() {
    for place in places() {
        let rescan = Duration::from_millis(10);
        let mut fixture =
            Fixture::start(place, Kind::Socket, Depth::Tree, |options| options.rescan = rescan);
        fixture.sync().await;
        let path = fixture.path("a.sock");
        socket(&path);
        assert_eq!(fixture.settle().await, ["+a.sock"]);
        for _ in 0..20 {
            // One thread runs test and watch: at the next await both event and rescan are due.
            let due = Instant::now() + rescan * 2;
            remove(&path);
            socket(&path);
            while Instant::now() < due {
                std::hint::spin_loop();
            }
            assert_eq!(fixture.settle().await, ["*a.sock"]);
        }
        assert!(fixture.watch.rescans() > 1);
    }
}
