//! A hook server that changes nothing.

use std::{path::Path, sync::Arc};

use anyhow::{Context, Result};
use bytes::Bytes;
use tokio::sync::watch;
use tonic::Code;
use wharf_facts::hook::HookPoint;

use super::server::{self, Service};

/// Answers with empty messages.
#[derive(Default)]
pub(super) struct Hooks {
    asked: watch::Sender<usize>,
}

impl Hooks {
    /// The number of calls, now and when it changes.
    pub(super) fn asked(&self) -> watch::Receiver<usize> {
        self.asked.subscribe()
    }
}

impl Service for Hooks {
    async fn answer(&self, _: u64, _: &str, _: Bytes) -> Result<Bytes, Code> {
        self.asked.send_modify(|times| *times += 1);
        Ok(Bytes::from_static(&[0; 5]))
    }
}

/// Serves at `socket` until the process is killed.
pub(super) async fn serve(socket: &Path) -> Result<()> {
    server::serve(socket, Arc::new(Hooks::default())).await
}

/// Writes the file of the server at `socket` into `folder`, and closes it.
pub(super) fn register(folder: &Path, socket: &Path) -> Result<()> {
    let points = HookPoint::ALL.map(HookPoint::name);
    let text = serde_json::json!({
        "remote-endpoint": socket,
        "failure-policy": "Fail",
        "runtime-hooks": points,
    });
    std::fs::write(folder.join("bench.json"), text.to_string()).context("a hook server's file")
}
