//! Lines on their way to standard output.

use std::{
    io::{self, ErrorKind, Write},
    sync::atomic::{AtomicU64, Ordering},
};

use tokio::sync::mpsc;
use tracing::warn;

/// Lines that may wait for a slow reader. A pod is never kept waiting for one.
const WAITING: usize = 4096;

/// Where hooks put their lines.
pub(super) struct Lines {
    sender: mpsc::Sender<String>,
    lost: AtomicU64,
}

impl Lines {
    /// The lines, and their other end for [`print()`].
    pub(super) fn new() -> (Lines, mpsc::Receiver<String>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Lines { sender, lost: AtomicU64::new(0) }, receiver)
    }

    /// Adds a line, or counts it as lost.
    pub(super) fn push(&self, line: String) {
        if self.sender.try_send(line).is_err() {
            let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
            warn!(lost, "standard output is not read: a line is lost");
        }
    }
}

/// Prints until there are no more hooks. A reader that leaves is no error.
pub(super) fn print(mut lines: mpsc::Receiver<String>) -> io::Result<()> {
    let mut out = io::stdout();
    while let Some(line) = lines.blocking_recv() {
        match writeln!(out, "{line}").and_then(|()| out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => return Ok(()),
            printed => printed?,
        }
    }
    Ok(())
}
