//! The calls of each client process: how many are under way, and how many were given up.
//!
//! A server goes on working on a call that was relayed to it after the client has left. The
//! [guard](crate::guard) limits resets per connection. A client could evade that limit by closing
//! its connection with calls under way and connecting again, so given-up calls are counted per
//! process, whether they end by RST_STREAM or with the connection.
//!
//! A process has an allowance of calls that it may give up, which is restored with time. A process
//! without allowance is *restrained*: its new calls are refused, and its new connections are not
//! read until it has allowance again. Its calls under way continue, because closing their
//! connections would give up more calls. Other processes are not affected.
//!
//! The kernel cannot name processes in other PID namespaces; they all share one account. Only new
//! connections wait for that account, so that connected clients are not refused for what others
//! did.
//!
//! An account also bounds the memory that header lists and messages of its calls under way take
//! ([`share`]), without an exception for processes that the kernel cannot name.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::time::{Instant, sleep_until, timeout_at};
use tonic::Status;

use self::share::Share;
use crate::limits::{CLIENT_CALLS, GIVEN_UP, GIVEN_UP_EVERY, LONGEST_RESTRAINT, WAITING};

mod share;

/// Number of accounts from which droppable accounts are looked for.
const FEW: usize = 64;
/// The most accounts that are kept of processes without connections.
const MOST: usize = 1024;

/// The accounts of the processes that call a [`Listener`](crate::Listener). Clones share their
/// state.
#[derive(Clone, Debug, Default)]
pub struct Clients {
    accounts: Arc<Mutex<Accounts>>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct Counters {
    given_up: AtomicU64,
    restraints: AtomicU64,
}

#[derive(Debug, Default)]
struct Accounts {
    by_process: HashMap<i32, Arc<Account>>,
    /// Number of accounts at which droppable accounts are next looked for.
    sweep_at: usize,
}

/// The account of a process.
#[derive(Debug)]
struct Account {
    /// `None` for processes that the kernel cannot name.
    pid: Option<i32>,
    state: Mutex<State>,
    counters: Arc<Counters>,
}

#[derive(Debug, Default)]
struct State {
    /// Calls under way.
    calls: usize,
    /// When the allowance is fully restored.
    restored: Option<Instant>,
    /// Whether the process was restrained since the allowance was last fully restored.
    restrained: bool,
    /// Connections that wait to be read.
    waiting: usize,
    /// Header lists of its calls under way.
    headers: Share,
    /// Messages of its calls under way that are read whole.
    messages: Share,
}

/// A connection of a process.
#[derive(Clone, Debug)]
pub(crate) struct Client(Arc<Account>);

/// A call of a process, from its beginning until this is dropped.
#[derive(Debug)]
pub(crate) struct ClientCall {
    account: Arc<Account>,
    /// Bytes of its header list that the account counts.
    header_bytes: usize,
    /// The same of its message.
    message_bytes: usize,
}

impl Clients {
    /// Number of calls that clients gave up after they were relayed and before they were fully
    /// answered.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.counters.given_up.load(Ordering::Relaxed)
    }

    /// Number of times a client was restrained because of calls that it gave up.
    #[must_use]
    pub fn restraints(&self) -> u64 {
        self.counters.restraints.load(Ordering::Relaxed)
    }

    /// A connection of the process `pid`, as far as the kernel can name it.
    pub(crate) fn connect(&self, pid: Option<i32>) -> Client {
        // The kernel says 0 for a process of another PID namespace.
        let key = pid.unwrap_or_default();
        let mut accounts = self.accounts.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(account) = accounts.by_process.get(&key) {
            return Client(account.clone());
        }
        accounts.sweep();
        let pid = pid.filter(|pid| *pid != 0);
        let counters = self.counters.clone();
        let account = Arc::new(Account { pid, state: Mutex::default(), counters });
        accounts.by_process.insert(key, account.clone());
        Client(account)
    }
}

impl Accounts {
    /// Drops accounts without connections: all that are fully restored, then those that will be
    /// restored first.
    fn sweep(&mut self) {
        if self.by_process.len() < self.sweep_at.max(FEW) {
            return;
        }
        let now = Instant::now();
        let is_used = |account: &Arc<Account>| Arc::strong_count(account) > 1;
        self.by_process
            .retain(|_, account| is_used(account) || account.restored_after(now).is_some());
        let unused = self.by_process.iter().filter(|(_, account)| !is_used(account));
        let mut unused: Vec<_> =
            unused.map(|(pid, account)| (account.restored_after(now), *pid)).collect();
        unused.sort_unstable();
        let too_many = unused.len().saturating_sub(MOST);
        for (_, pid) in &unused[..too_many] {
            self.by_process.remove(pid);
        }
        self.sweep_at = self.by_process.len() + FEW;
    }
}

impl Client {
    /// Waits while the process is restrained. False if the connection is to be closed, because too
    /// many connections of the process wait or this one waited for too long.
    pub(crate) async fn admitted(&self) -> bool {
        let Some(_waiting) = self.0.wait() else { return false };
        let ends = Instant::now() + LONGEST_RESTRAINT;
        timeout_at(ends, async {
            while let Some(until) = self.restrained_until() {
                sleep_until(until).await;
            }
        })
        .await
        .is_ok()
    }

    /// Whether the process has to wait before its new connections are read.
    pub(crate) fn is_restrained(&self) -> bool {
        self.restrained_until().is_some()
    }

    fn restrained_until(&self) -> Option<Instant> {
        self.0.state().restrained_until()
    }

    /// Begins a call.
    ///
    /// # Errors
    /// When the process is restrained, or has too many calls under way.
    pub(crate) fn begin(&self) -> Result<ClientCall, Status> {
        let mut state = self.0.state();
        // Processes that cannot be named share an account: do not refuse calls of one for another.
        if self.0.pid.is_some() {
            if state.restrained_until().is_some() {
                return Err(restrained());
            }
            if state.calls >= CLIENT_CALLS {
                return Err(too_many());
            }
        }
        state.calls += 1;
        drop(state);
        Ok(ClientCall { account: self.0.clone(), header_bytes: 0, message_bytes: 0 })
    }
}

impl ClientCall {
    /// Records that the client gave up the call after it was relayed and before it had the whole
    /// answer.
    pub(crate) fn give_up(&self) {
        self.account.give_up();
    }
}

impl Drop for ClientCall {
    fn drop(&mut self) {
        let mut state = self.account.state();
        state.calls -= 1;
        state.headers.release(self.header_bytes);
        state.messages.release(self.message_bytes);
    }
}

impl Account {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn restored_after(&self, now: Instant) -> Option<Instant> {
        self.state().restored.filter(|at| *at > now)
    }

    fn give_up(&self) {
        self.counters.given_up.fetch_add(1, Ordering::Relaxed);
        let now = Instant::now();
        let mut state = self.state();
        let latest = now + ALLOWANCE + LONGEST_RESTRAINT;
        let whole = state.restored.filter(|at| *at > now);
        state.restrained &= whole.is_some();
        state.restored = Some((whole.unwrap_or(now) + GIVEN_UP_EVERY).min(latest));
        if state.restrained || state.restrained_until().is_none() {
            return;
        }
        state.restrained = true;
        drop(state);
        self.counters.restraints.fetch_add(1, Ordering::Relaxed);
        tracing::warn!(
            pid = self.pid,
            allowed = GIVEN_UP,
            "restraining a client that gives up too many calls"
        );
    }

    /// Counts a connection that waits, unless there are too many.
    fn wait(&self) -> Option<Waiting<'_>> {
        let mut state = self.state();
        if state.waiting >= WAITING {
            return None;
        }
        state.waiting += 1;
        Some(Waiting(self))
    }
}

/// A connection that waits.
struct Waiting<'a>(&'a Account);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

/// The time in which a used-up allowance is fully restored.
const ALLOWANCE: Duration = GIVEN_UP_EVERY.saturating_mul(GIVEN_UP);

impl State {
    /// When a process without allowance has some again; `None` if it has allowance now.
    fn restrained_until(&self) -> Option<Instant> {
        let restored = self.restored?;
        restored.checked_sub(ALLOWANCE).filter(|until| *until > Instant::now())
    }
}

fn restrained() -> Status {
    Status::resource_exhausted(format!(
        "this process gave up more than {GIVEN_UP} calls in a short time, which the server still works on: try again later"
    ))
}

fn too_many() -> Status {
    Status::resource_exhausted(format!(
        "this process has {CLIENT_CALLS} calls under way, the most that are allowed: try again"
    ))
}

#[cfg(test)]
mod tests;
