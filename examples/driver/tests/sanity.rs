//! The example passes csi-sanity and keeps the laws that csi-sanity does not check.

#![allow(clippy::unwrap_used, missing_docs)]

use std::{path::PathBuf, process::Command, time::Duration};

use tempfile::TempDir;
use wharf_csi_sdk::laws::Subject;
use wharf_testkit::{
    process::Process,
    sanity::{Access, Sanity},
};
use wharf_uds::{Channel, ChannelOptions};

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn in_mount_mode() {
    check(Access::Mount).await;
}

#[tokio::test]
async fn in_block_mode() {
    check(Access::Block).await;
}

#[tokio::test]
async fn it_keeps_the_laws() {
    let (driver, socket, _folder) = start().await;
    let subject = Subject::new(Channel::new(socket, ChannelOptions::default()), 1 << 20);
    subject.keeps_all_laws().await.unwrap();
    subject.plant_secrets().await.unwrap();
    assert!(driver.stop(PATIENCE).await.unwrap().success());
}

async fn check(access: Access) {
    let (driver, socket, folder) = start().await;
    let suite = Sanity::new(socket).access(access);
    if let Some(score) = suite.run(folder.path()).await.unwrap() {
        assert_eq!(score.failures, Vec::<String>::new());
        // The skipped cases are for capabilities that the example does not have.
        assert_eq!((score.passed, score.skipped, score.pending), (32, 70, 1));
    }
    assert!(driver.stop(PATIENCE).await.unwrap().success());
}

async fn start() -> (Process, PathBuf, TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("csi.sock");
    let mut command = Command::new(env!("CARGO_BIN_EXE_example-driver"));
    command.env("CSI_ENDPOINT", &socket);
    let mut driver = Process::start("driver", &command, folder.path()).unwrap();
    let listening = || std::future::ready(socket.exists().then_some(()));
    driver.ready(PATIENCE, "its socket", listening).await.unwrap();
    (driver, socket, folder)
}
