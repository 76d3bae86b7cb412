//! The mode of a root that the watch makes. Alone in its binary, since the umask belongs to the
//! process.

use std::{os::unix::fs::PermissionsExt, time::Duration};

use rustix::fs::Mode;
use wharf_dirwatch::{Depth, DirWatch, Kind, Options};

#[tokio::test]
async fn a_root_has_the_mode_asked_for_under_any_umask() {
    for umask in [0o000, 0o022, 0o077] {
        rustix::process::umask(Mode::from_raw_mode(umask));
        let folder = tempfile::tempdir().expect("a temporary folder");
        let root = folder.path().join("made/root");
        let watch = DirWatch::start(Options {
            root: root.clone(),
            depth: Depth::Folder,
            kind: Kind::File,
            rescan: Duration::from_secs(60),
            create_root: Some(0o755),
        });
        watch.stop().await;
        let mode = root.metadata().expect("the root").permissions().mode() & 0o7777;
        assert_eq!(mode, 0o755, "under umask {umask:o}");
    }
}
