//! An idle watch, and its descriptors after a stop. Alone in its process, since the descriptors are
//! counted. `cargo xtask bench registration` measures its cost.

use std::{os::unix::net::UnixListener, time::Duration};

use tokio::time::timeout;
use wharf_dirwatch::{Change, Depth, DirWatch, Kind, Options};

const RESCANS: u64 = 6;

#[tokio::test]
async fn rescans_of_a_quiet_tree_say_nothing_and_a_stop_leaves_nothing() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for driver in 0..10 {
        let folder = folder.path().join(driver.to_string());
        std::fs::create_dir(&folder).expect("the folder is new");
        drop(UnixListener::bind(folder.join("reg.sock")).expect("the socket is new"));
    }
    let rescan = Duration::from_millis(50);
    let mut watch = DirWatch::start(Options {
        root: folder.path().to_path_buf(),
        depth: Depth::Tree,
        kind: Kind::Socket,
        rescan,
        create_root: None,
    });
    while watch.next().await.expect("the watch goes on") != Change::Synced {}
    assert_eq!(inotify_instances(), 1);
    let (first, events) = (watch.rescans(), watch.events());
    while watch.rescans() < first + RESCANS {
        assert!(timeout(rescan * 2, watch.next()).await.is_err(), "nothing happened");
    }
    assert_eq!(watch.events(), events);
    watch.stop().await;
    assert_eq!(inotify_instances(), 0);
}

fn inotify_instances() -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("proc is mounted");
    descriptors
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.as_os_str() == "anon_inode:inotify")
        .count()
}
