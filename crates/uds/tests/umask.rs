//! The mode of a socket under any umask. In a binary of its own, because the umask is that of the
//! whole process.

use std::os::unix::fs::PermissionsExt;

use rustix::fs::Mode;
use wharf_uds::{ListenOptions, Listener};

#[tokio::test]
async fn the_mode_is_the_one_asked_for_under_any_umask() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("plugin.sock");
    for umask in [0o000, 0o022, 0o777] {
        for mode in [0o600, 0o660, 0o777] {
            rustix::process::umask(Mode::from_raw_mode(umask));
            let options = ListenOptions { mode, ..ListenOptions::default() };
            let listener = Listener::bind(&path, &options).unwrap();
            let found = std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
            assert_eq!(found, mode, "mode {mode:o} under umask {umask:o}");
            drop(listener);
        }
    }
}
