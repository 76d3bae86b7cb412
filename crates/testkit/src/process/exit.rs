//! Reports the end of a child, without collecting it.
//!
//! tokio's own children belong to the runtime that started them; a process that tests share
//! outlives that runtime.

use std::{io, os::fd::AsFd, thread::JoinHandle};

use rustix::{
    io::retry_on_intr,
    process::{Pid, PidfdFlags, WaitId, WaitIdOptions, pidfd_open, waitid},
};
use tokio::sync::watch;

/// The end of one child, awaited by a thread of its own.
#[derive(Debug)]
pub(super) struct Exit {
    seen: watch::Receiver<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Exit {
    pub(super) fn watch(child: Pid) -> io::Result<Self> {
        let child = pidfd_open(child, PidfdFlags::empty())?;
        let (sender, seen) = watch::channel(false);
        let thread = std::thread::Builder::new().name("exit".to_owned()).spawn(move || {
            // Left uncollected (NOWAIT), the child keeps its ID until its owner has signalled the
            // group. An error means that the owner has collected it.
            let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
            let _ = retry_on_intr(|| waitid(WaitId::PidFd(child.as_fd()), options));
            sender.send_replace(true);
        })?;
        Ok(Self { seen, thread: Some(thread) })
    }

    pub(super) async fn seen(&mut self) {
        // The sender is dropped only after it has sent.
        let _ = self.seen.wait_for(|ended| *ended).await;
    }

    /// Waits for the thread; the child must be dead.
    pub(super) fn join(&mut self) {
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}
