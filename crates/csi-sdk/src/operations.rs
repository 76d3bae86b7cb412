//! Runs operations, each in its own task that outlives its caller.
//!
//! An orchestrator gives up after a while and calls again; the server then drops the handler of the
//! call. If that cut the operation short, it would be like a crash without a restart. So the
//! handler only waits for the operation. A repeated request joins the running operation and gets
//! its result; a conflicting request is refused at once.

use std::{
    any::Any,
    collections::HashMap,
    fmt::Debug,
    future::Future,
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use prost::Message;
use sha2::{Digest, Sha256};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;
use tonic::Status;
use wharf_uds::code_name;

use crate::locks::{Claims, Conflict, LockTable};

/// One RPC with one content. Secrets count, too; only their digest is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Identity {
    pub(crate) rpc: &'static str,
    digest: [u8; 32],
}

impl Identity {
    /// Identifies a message by its bytes. Equal messages have equal bytes, since their maps are
    /// ordered.
    pub(crate) fn of(rpc: &'static str, message: &impl Message) -> Self {
        Self { rpc, digest: Sha256::digest(message.encode_to_vec()).into() }
    }
}

/// The running operations of a plugin. Clones share them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Operations {
    state: Arc<Mutex<State>>,
    tasks: TaskTracker,
}

#[derive(Debug, Default)]
struct State {
    locks: LockTable,
    running: HashMap<Identity, watch::Receiver<Option<Outcome>>>,
}

/// An answer shared by all callers that wait for it; each knows its type from the RPC.
type Outcome = Result<Arc<dyn Any + Send + Sync>, Status>;

impl Operations {
    /// Runs `work` unless the same request is running, and waits for the result.
    pub(crate) async fn run<R: Clone + Send + Sync + 'static>(
        &self,
        identity: Identity,
        claims: Claims,
        work: impl Future<Output = Result<R, Status>> + Send + 'static,
    ) -> Result<R, Status> {
        let mut outcome = self.join_or_start(identity, claims, work)?;
        let outcome = match outcome.wait_for(Option::is_some).await {
            Ok(outcome) => outcome.clone(),
            // A task is dropped only when the runtime shuts down.
            Err(_) => return Err(Status::unavailable("the driver is stopping")),
        };
        let answer = outcome.ok_or_else(|| Status::internal("an operation ended twice"))??;
        let answer = answer.downcast::<R>().map_err(|_| Status::internal("two answers to one"))?;
        Ok((*answer).clone())
    }

    /// Waits until no operation runs, at most for `limit`.
    pub(crate) async fn drain(&self, limit: Duration) {
        self.tasks.close();
        if tokio::time::timeout(limit, self.tasks.wait()).await.is_err() {
            let running: Vec<_> =
                self.state().running.keys().map(|identity| identity.rpc).collect();
            tracing::warn!(?running, ?limit, "left operations unfinished at stop");
        }
    }

    fn join_or_start<R: Clone + Send + Sync + 'static>(
        &self,
        identity: Identity,
        claims: Claims,
        work: impl Future<Output = Result<R, Status>> + Send + 'static,
    ) -> Result<watch::Receiver<Option<Outcome>>, Status> {
        let mut state = self.state();
        if let Some(running) = state.running.get(&identity) {
            tracing::debug!(method = identity.rpc, "joining running operation");
            return Ok(running.clone());
        }
        state.locks.take(identity.rpc, &claims).map_err(|conflict| aborted(&conflict))?;
        let (sender, outcome) = watch::channel(None);
        state.running.insert(identity, outcome.clone());
        let entry = Entry { operations: self.clone(), identity, claims };
        self.tasks.spawn(async move {
            let result = match AssertUnwindSafe(work).catch_unwind().await {
                Ok(result) => result,
                Err(panic) => Err(panicked(identity.rpc, panic.as_ref())),
            };
            // Release the locks before sending the answer: a caller that has the answer may call
            // again at once.
            drop(entry);
            if sender.is_closed() {
                report(identity.rpc, &result);
            }
            sender.send_replace(Some(result.map(|answer| Arc::new(answer) as _)));
        });
        Ok(outcome)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The entry of a running operation, removed however its task ends.
struct Entry {
    operations: Operations,
    identity: Identity,
    claims: Claims,
}

impl Drop for Entry {
    fn drop(&mut self) {
        let mut state = self.operations.state();
        state.running.remove(&self.identity);
        state.locks.give_back(self.identity.rpc, &self.claims);
    }
}

fn aborted(conflict: &Conflict) -> Status {
    let Conflict { key, holder } = conflict;
    Status::aborted(format!("{key} is busy with {holder}: call again later"))
}

/// Logs the result of an operation that no caller waits for.
fn report<R>(rpc: &str, result: &Result<R, Status>) {
    match result {
        Ok(_) => tracing::info!(method = rpc, "finished operation without caller"),
        Err(status) => {
            let (code, error) = (code_name(status.code()), status.message());
            tracing::info!(method = rpc, code, error, "operation failed without caller");
        }
    }
}

/// Converts a panic. Its text may hold secrets of the driver, so only this process's log shows it.
fn panicked(rpc: &'static str, panic: &(dyn Any + Send)) -> Status {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(method = rpc, text, "driver panicked");
    Status::internal(format!("the driver panicked in {rpc}"))
}

#[cfg(test)]
mod tests;
