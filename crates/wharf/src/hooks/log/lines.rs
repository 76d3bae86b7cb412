//! The queue of lines between hooks and standard output.

use std::{
    io::{self, ErrorKind, Write},
    sync::atomic::{AtomicU64, Ordering},
};

use tokio::sync::mpsc;
use tracing::warn;

/// Lines that may wait for a slow reader. A hook never waits for a reader.
const WAITING: usize = 4096;

/// The end of the queue for hooks.
pub(super) struct Lines {
    sender: mpsc::Sender<String>,
    lost: AtomicU64,
}

impl Lines {
    /// The queue: the end for hooks, and the end for [`print()`].
    pub(super) fn new() -> (Self, mpsc::Receiver<String>) {
        let (sender, receiver) = mpsc::channel(WAITING);
        (Lines { sender, lost: AtomicU64::new(0) }, receiver)
    }

    /// Adds a line, or drops and counts it if the queue is full.
    pub(super) fn push(&self, line: String) {
        if self.sender.try_send(line).is_err() {
            let lost = self.lost.fetch_add(1, Ordering::Relaxed) + 1;
            warn!(lost, "dropped a line: standard output is not read");
        }
    }
}

/// Prints lines until all hooks are dropped. A closed standard output is not an error.
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
