//! Sockets that other users made, and folders that others can write to.

use std::{
    fs::{self, Permissions},
    os::unix::fs::{PermissionsExt, chown},
    path::Path,
    thread,
};

use rustix::{process::geteuid, thread::set_thread_res_uid};
use tokio::net::UnixListener;
use tonic::Code;

use super::{
    fixture::Fixture,
    server::{HookServer, raw_on},
};
use crate::config::{FailurePolicy, Server};

/// The user of nothing else.
const NOBODY: u32 = 65534;

/// A socket on which a process of [`NOBODY`] listens, as far as the kernel can tell: what counts is
/// the user of the thread that calls listen.
fn listen_as_nobody(path: &Path) -> UnixListener {
    let path = path.to_owned();
    let listening = thread::spawn(move || {
        let nobody = rustix::fs::Uid::from_raw(NOBODY);
        set_thread_res_uid(nobody, nobody, nobody).unwrap();
        std::os::unix::net::UnixListener::bind(path).unwrap()
    });
    let listener = listening.join().unwrap();
    listener.set_nonblocking(true).unwrap();
    UnixListener::from_std(listener).unwrap()
}

fn is_root() -> bool {
    if !geteuid().is_root() {
        eprintln!("skipped: only root can listen as another user");
    }
    geteuid().is_root()
}

#[tokio::test]
async fn a_socket_of_another_user_is_not_asked() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new();
    fixture.set_mode(0o1777);
    let _server = raw_on(listen_as_nobody(&fixture.socket("a")));
    fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
    let status = fixture.ask().await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    for part in ["runs as uid 65534", "\"uid\": 65534"] {
        assert!(status.message().contains(part), "{}", status.message());
    }
    let failures = fixture.chain.failures();
    assert!(failures["a"].contains("runs as uid 65534"), "{failures:?}");
    fixture.counted(
        r#"wharf_proxy_hook_calls_total{server="a",hook="PreCreateContainer",outcome="untrusted"} 1"#,
    );
    fixture.counted(r#"wharf_proxy_hook_server_state{server="a",state="untrusted"} 1"#);
    fixture.counted(r#"wharf_proxy_hook_server_state{server="a",state="asked"} 0"#);

    fixture.serve([fixture.server("a", FailurePolicy::Ignore)]);
    assert!(!fixture.ask().await.unwrap().answered, "unavailable, and ignored");
}

#[tokio::test]
async fn a_user_that_the_file_names_is_asked() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new();
    fixture.set_mode(0o1777);
    let _server = raw_on(listen_as_nobody(&fixture.socket("a")));
    let server = fixture.server("a", FailurePolicy::Fail);
    fixture.serve([Server { uid: Some(1000), ..server.clone() }]);
    assert_eq!(fixture.ask().await.unwrap_err().code(), Code::Unavailable);
    fixture.serve([Server { uid: Some(NOBODY), ..server.clone() }]);
    assert!(fixture.ask().await.unwrap().answered);
    fixture.counted(r#"wharf_proxy_hook_server_state{server="a",state="asked"} 1"#);

    // The folder may be theirs, but not everybody's.
    chown(fixture.folder(), Some(NOBODY), None).unwrap();
    fixture.set_mode(0o755);
    fixture.serve([]);
    fixture.serve([Server { uid: Some(NOBODY), ..server }]);
    assert!(fixture.ask().await.unwrap().answered);
}

#[tokio::test]
async fn a_folder_that_others_can_write_to_is_refused() {
    let fixture = Fixture::new();
    let _server = HookServer::idle(&fixture.socket("a"));
    fixture.set_mode(0o777);
    fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
    let status = fixture.ask().await.unwrap_err();
    assert!(status.message().contains("its mode 0777"), "{}", status.message());
    fixture.set_mode(0o755);
    assert!(fixture.ask().await.unwrap().answered, "looked at again for the next connection");
    assert!(fixture.chain.failures().is_empty());
}

/// The connection of a server that was trusted says nothing about the next one on its path.
#[tokio::test]
async fn each_new_connection_is_looked_at() {
    if !is_root() {
        return;
    }
    let fixture = Fixture::new();
    fixture.set_mode(0o1777);
    let first = HookServer::idle(&fixture.socket("a"));
    fixture.serve([fixture.server("a", FailurePolicy::Fail)]);
    assert!(fixture.ask().await.unwrap().answered);
    first.stop().await;
    let _other = raw_on(listen_as_nobody(&fixture.socket("a")));
    let status = fixture.ask().await.unwrap_err();
    assert!(status.message().contains("runs as uid 65534"), "{}", status.message());
    fs::remove_file(fixture.socket("a")).unwrap();
    let _back = HookServer::idle(&fixture.socket("a"));
    assert!(fixture.ask().await.unwrap().answered);
}

impl Fixture {
    pub(super) fn set_mode(&self, mode: u32) {
        fs::set_permissions(self.folder(), Permissions::from_mode(mode)).unwrap();
    }
}
