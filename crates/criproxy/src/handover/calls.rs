//! The intercepted calls under way in this process, and who begins new ones.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{
    sync::{Notify, OwnedMutexGuard, mpsc, oneshot, watch},
    time::timeout,
};
use wharf_uds::Relay;

use super::{message::FromOld, scope::Scope};
use crate::record::Records;

/// How long an answer waits until the successor has the records of its call.
const NOTED: Duration = Duration::from_secs(1);

/// The calls of one process. Clones are one.
#[derive(Clone)]
pub(crate) struct Calls {
    shared: Arc<Mutex<State>>,
    phase: watch::Sender<Phase>,
    records: Records,
    /// Notified when a call has ended.
    ended: Arc<Notify>,
    /// Locked by the call that is next to begin or to be passed on. The lock is fair, so calls
    /// that wait for the end of a hand-over go on in the order in which they came.
    order: Arc<tokio::sync::Mutex<()>>,
}

#[derive(Default)]
struct State {
    next: u64,
    running: BTreeMap<u64, Option<Scope>>,
    /// To the successor, once it was told which calls are under way.
    successor: Option<Successor>,
}

struct Successor {
    messages: mpsc::UnboundedSender<FromOld>,
    noted: HashMap<u64, oneshot::Sender<()>>,
}

/// Who begins new calls.
#[derive(Clone)]
enum Phase {
    /// This process.
    Here,
    /// Nobody, until a hand-over is done or called off.
    Waiting,
    /// The successor, through this.
    Elsewhere(Arc<Relay>),
}

/// Where a call goes.
pub(crate) enum Admission {
    /// It is intercepted here.
    Here(Running),
    /// It is passed on to the successor as it came. The guard is dropped once it is on its way: the
    /// next call follows.
    Elsewhere(Arc<Relay>, OwnedMutexGuard<()>),
}

/// A call under way. Dropped, it has ended without an answer.
#[derive(Debug)]
pub(crate) struct Running {
    call: u64,
    calls: Calls,
    ended: bool,
}

impl Calls {
    pub(crate) fn new(records: Records) -> Self {
        let (shared, ended, order) = Default::default();
        Self { shared, phase: watch::Sender::new(Phase::Here), records, ended, order }
    }

    /// Begins a call, once it is known who does.
    pub(crate) async fn begin(&self, scope: Option<Scope>) -> Admission {
        let order = self.order.clone().lock_owned().await;
        let mut phases = self.phase.subscribe();
        loop {
            {
                // Locked first: a hand-over begins under the same lock.
                let mut state = self.state();
                match &*phases.borrow_and_update() {
                    Phase::Here => {
                        return Admission::Here(self.start(&mut state, scope));
                    }
                    Phase::Elsewhere(relay) => {
                        return Admission::Elsewhere(relay.clone(), order);
                    }
                    Phase::Waiting => {}
                }
            }
            // The sender is ours.
            let _ = phases.changed().await;
        }
    }

    /// Takes a call in that another process has begun.
    pub(super) fn adopt(&self, scope: Scope) -> Running {
        self.start(&mut self.state(), Some(scope))
    }

    fn start(&self, state: &mut State, scope: Option<Scope>) -> Running {
        let call = state.next;
        state.next += 1;
        state.running.insert(call, scope);
        Running { call, calls: self.clone(), ended: false }
    }

    /// Stops new calls from beginning. The successor is notified of calls under way, and later of
    /// their ends.
    pub(super) fn freeze(&self, messages: mpsc::UnboundedSender<FromOld>) {
        let mut state = self.state();
        self.phase.send_replace(Phase::Waiting);
        for (call, scope) in &state.running {
            if let Some(scope) = scope.clone() {
                // The receiver outlives the hand-over.
                let _ = messages.send(FromOld::Busy { call: *call, scope });
            }
        }
        state.successor = Some(Successor { messages, noted: HashMap::new() });
    }

    /// Calls begin here again.
    pub(super) fn thaw(&self) {
        let mut state = self.state();
        state.successor = None;
        self.records.ignore_changes();
        self.phase.send_replace(Phase::Here);
    }

    /// The successor begins new calls.
    pub(super) fn pass_to(&self, relay: Arc<Relay>) {
        self.phase.send_replace(Phase::Elsewhere(relay));
        self.forget_unused();
    }

    /// Waits until the calls are on their way that waited for the successor.
    pub(super) async fn waiting_are_passed(&self) {
        drop(self.order.lock().await);
    }

    /// Waits until the successor begins new calls.
    pub(crate) async fn passed(&self) {
        let is_passed = |phase: &Phase| matches!(phase, Phase::Elsewhere(_));
        // The sender is ours.
        let _ = self.phase.subscribe().wait_for(is_passed).await;
    }

    /// Whether the successor begins new calls.
    pub(crate) fn have_passed(&self) -> bool {
        matches!(&*self.phase.borrow(), Phase::Elsewhere(_))
    }

    /// Waits until those calls have ended that are under way now and that one about `scope` would
    /// have to wait for.
    pub(crate) async fn finished(&self, scope: &Scope) {
        let next = self.state().next;
        loop {
            // First, so that no end is missed.
            let ended = self.ended.notified();
            let is_busy = {
                let state = self.state();
                let mut others =
                    state.running.range(..next).filter_map(|(_, other)| other.as_ref());
                others.any(|other| scope.conflicts_with(other))
            };
            if !is_busy {
                return;
            }
            ended.await;
        }
    }

    /// The successor has the records of a call.
    pub(super) fn noted(&self, call: u64) {
        let noted = self.state().successor.as_mut().and_then(|it| it.noted.remove(&call));
        // The call may have waited long enough.
        let _ = noted.map(|noted| noted.send(()));
    }

    /// Nobody waits for a successor that is gone.
    pub(super) fn forget_successor(&self) {
        self.state().successor = None;
    }

    /// Tells the successor, if there is one, what the end of a call has changed.
    fn end(&self, call: u64) -> Option<oneshot::Receiver<()>> {
        let noted = {
            let mut state = self.state();
            let scope = state.running.remove(&call).flatten();
            scope.and(state.successor.as_mut()).map(|successor| {
                let (sender, noted) = oneshot::channel();
                successor.noted.insert(call, sender);
                let records = self.records.changed();
                // Nobody receives it once the successor is gone; then nobody will say that it is
                // noted.
                let _ = successor.messages.send(FromOld::Ended { call, records });
                noted
            })
        };
        self.forget_unused();
        self.ended.notify_waiters();
        noted
    }

    /// Gives the memory of records back that no call needs any more.
    fn forget_unused(&self) {
        if self.have_passed() && self.state().running.is_empty() {
            self.records.clear();
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Running {
    /// The call has its answer, which may be sent once this returns: the successor knows what it
    /// has changed.
    pub(crate) async fn end(mut self) {
        self.ended = true;
        let Some(noted) = self.calls.end(self.call) else { return };
        if timeout(NOTED, noted).await.is_err() {
            tracing::warn!("the successor has not confirmed the records of a call");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if !self.ended {
            drop(self.calls.end(self.call));
        }
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("running", &self.state().running.len()).finish()
    }
}
