//! A process without free file descriptors. Alone in its process, since the limit belongs to the
//! process.

use std::{os::unix::net::UnixListener, time::Duration};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::time::timeout;
use wharf_dirwatch::{Change, Depth, DirWatch, Kind, Options};

#[tokio::test]
async fn what_cannot_be_seen_is_not_gone() {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let options = Options {
        root: folder.path().to_path_buf(),
        depth: Depth::Tree,
        kind: Kind::Socket,
        rescan: Duration::from_millis(20),
        create_root: None,
    };
    drop(UnixListener::bind(folder.path().join("x.sock")).expect("a socket"));
    let enough = getrlimit(Resource::Nofile);

    // No descriptor for inotify, nor to read the folder: the watch reports that it knows nothing.
    limit(Rlimit { current: Some(0), ..enough });
    let mut watch = DirWatch::start(options);
    let Change::Trouble { message } = next(&mut watch).await else { panic!("trouble first") };
    assert!(message.contains("inotify") && message.contains("os error 24"), "{message}");
    assert_eq!(watch.trouble(), Some(message));
    limit(enough);
    assert!(matches!(next(&mut watch).await, Change::Appeared { .. }));
    assert_eq!(next(&mut watch).await, Change::Synced);
    assert_eq!(watch.trouble(), None);

    // A folder that was read before cannot be read now: its known files are kept.
    limit(Rlimit { current: Some(0), ..enough });
    let Change::Trouble { message } = next(&mut watch).await else { panic!("trouble, no more") };
    assert!(message.contains(folder.path().to_str().expect("a plain path")), "{message}");
    std::fs::remove_file(folder.path().join("x.sock")).expect("the socket is there");
    assert!(matches!(next(&mut watch).await, Change::Vanished { .. }), "an event needs no reading");
    limit(enough);
    assert_eq!(next(&mut watch).await, Change::Synced);
    watch.stop().await;
}

fn limit(limit: Rlimit) {
    setrlimit(Resource::Nofile, limit).expect("a lower limit is always granted");
}

async fn next(watch: &mut DirWatch) -> Change {
    let change = timeout(Duration::from_secs(20), watch.next()).await;
    change.expect("a change within the limit").expect("the watch goes on")
}
