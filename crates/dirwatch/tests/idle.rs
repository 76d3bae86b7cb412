//! What a watch costs while nothing happens, and what it leaves behind. Alone in its process: its time
//! and its descriptors are counted.

use std::os::unix::net::UnixListener;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use tokio::time::timeout;
use wharf_dirwatch::{Change, Depth, DirWatch, Kind, Options};

/// A minute with a rescan every 10 s.
const RESCANS: u64 = 6;
/// For the whole minute; unoptimised code may take three times as long.
const BUDGET: Duration = Duration::from_millis(if cfg!(debug_assertions) { 30 } else { 10 });

#[tokio::test]
async fn a_quiet_minute_is_cheap_and_a_stop_leaves_nothing() {
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
    let (first, events, before) = (watch.rescans(), watch.events(), cpu_time());
    while watch.rescans() < first + RESCANS {
        assert!(timeout(rescan * 2, watch.next()).await.is_err(), "nothing happened");
    }
    let spent = cpu_time() - before;
    println!("{} rescans took {spent:?}", watch.rescans() - first);
    assert!(spent < BUDGET, "{} rescans took {spent:?}", watch.rescans() - first);
    assert_eq!(watch.events(), events);
    watch.stop().await;
    assert_eq!(inotify_instances(), 0);
}

fn cpu_time() -> Duration {
    clock_gettime(ClockId::ProcessCPUTime).try_into().expect("processes take no negative time")
}

fn inotify_instances() -> usize {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("proc is mounted");
    descriptors
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path()).ok())
        .filter(|target| target.as_os_str() == "anon_inode:inotify")
        .count()
}
