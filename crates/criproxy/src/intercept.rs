//! The calls about pods and containers that hook servers are asked about.
//!
//! Such a call is taken out of the stream: its message is read whole, hook servers are asked, what
//! they change is written into the message, and the runtime is asked with it. A record of what was
//! asked for is kept once the runtime has said yes, and goes with RemovePodSandbox or
//! RemoveContainer. A call that no hook changes reaches the runtime with the bytes that it came
//! with.

mod containers;
mod exited;
mod intercepted_call;
mod lookup;
mod method;
mod overlooked;
mod pods;
mod restore;
mod skip;
mod traced;
mod vanished;

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use tokio::sync::{Semaphore, watch};
use tonic::{Code, Status};
use wharf_cri::Client;
use wharf_reconcile::{KeyGuard, KeyedLocks};
use wharf_uds::{RawAnswer, RawCall, Relay};
use wharf_wire::WireError;

use self::intercepted_call::{End, InterceptedCall};
pub use self::skip::Skip;
pub(crate) use self::{method::Method, overlooked::Overlooked, restore::run_of};
use crate::{
    HookPoint,
    busy_poll::BusyPoll,
    chain::{Asked, CallContext, Chain, Outcome},
    events::EventsState,
    handover::{Admission, Calls, PredecessorCalls, Scope},
    id,
    record::Records,
    subject::Subject,
    tap::{Tapped, Taps},
};

/// Stands in the way of calls, with everything that they concern.
#[derive(Debug)]
pub(crate) struct Interceptor {
    pub(crate) runtime: Relay,
    pub(crate) chain: Chain,
    pub(crate) records: Records,
    pub(crate) recovery: Client,
    /// Which pods are passed on without hooks.
    pub(crate) skip: Option<Skip>,
    /// Calls about one pod go to the runtime in the order in which they came, however long hook
    /// servers take for one of them.
    pub(crate) locks: KeyedLocks,
    pub(crate) overlooked: Overlooked,
    /// Bytes that the messages of further calls may take.
    pub(crate) room: Arc<Semaphore>,
    pub(crate) busy_poll: BusyPoll,
    pub(crate) taps: Taps,
    /// The calls under way here, and who begins new ones.
    pub(crate) calls: Calls,
    /// The calls that the process before this one still answers.
    pub(crate) predecessor: PredecessorCalls,
    /// Whether the runtime tells when containers end.
    pub(crate) events: watch::Sender<EventsState>,
}

/// Room for the messages of all calls.
pub(crate) fn room() -> Arc<Semaphore> {
    Arc::new(Semaphore::new(intercepted_call::ROOM))
}

impl Interceptor {
    pub(crate) async fn handle(
        &self,
        call: RawCall,
        method: Method,
        mut tapped: Option<&mut Tapped>,
    ) -> Code {
        let begun = tokio::time::Instant::now();
        let mut call = InterceptedCall::new(call);
        let end = match call.message(&self.room).await {
            Ok(message) => {
                if let Some(tapped) = &mut tapped {
                    tapped.identify(self.identify(method, &message));
                }
                self.admit(&mut call, method, message).await
            }
            Err(end) => Err(end),
        };
        self.conclude(call, method, begun, end, tapped)
    }

    /// Intercepts a call here, or passes it on to the process that has taken over.
    async fn admit(
        &self,
        call: &mut InterceptedCall,
        method: Method,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        let scope = Scope::of(method, &message, &self.records);
        let running = match call.while_wanted(self.calls.begin(scope.clone())).await? {
            Admission::Here(running) => running,
            Admission::Elsewhere(successor, order) => {
                return call.forward(&successor, &message, order).await;
            }
        };
        call.while_wanted(self.predecessor.clear(scope.as_ref())).await?;
        let end = match self.pass(call, method, message.clone()).await {
            Err(End::Unreadable(error)) => self.unreadable(call, method, &message, error).await,
            end => end,
        };
        running.end().await;
        end
    }

    async fn pass(
        &self,
        call: &mut InterceptedCall,
        method: Method,
        message: Bytes,
    ) -> Result<RawAnswer, End> {
        match method {
            Method::RunPodSandbox => self.run_pod(call, message).await,
            Method::RestorePod => self.restore_pod(call, message).await,
            Method::StopPodSandbox => self.stop_pod(call, message).await,
            Method::RemovePodSandbox => self.remove_pod(call, message).await,
            Method::CreateContainer => self.create_container(call, message).await,
            Method::StartContainer => self.start_container(call, message).await,
            Method::UpdateContainerResources => self.update_container(call, message).await,
            Method::StopContainer => self.stop_container(call, message).await,
            Method::RemoveContainer => self.remove_container(call, message).await,
        }
    }

    /// Asks hook servers, unless the pod is to be left alone or nobody wants to be asked.
    async fn ask<S: Subject>(
        &self,
        call: &mut InterceptedCall,
        point: HookPoint,
        context: &CallContext,
        request: S::Request,
        skipped: bool,
    ) -> Result<Asked<S>, End> {
        let is_wanted = self.chain.wants(point);
        if skipped && is_wanted {
            let note = "no hooks: --skip leaves out pods with its label";
            self.chain.history.note(point, context, note);
        }
        if skipped || !is_wanted {
            let (edits, by) = (Vec::new(), Vec::new());
            return Ok(Asked { request, edits, answered: false, has_content: false, by });
        }
        call.charge_if_abandoned();
        let asked = call.while_wanted(self.chain.ask::<S>(point, context, request)).await??;
        // The runtime is next.
        self.busy_poll.extend();
        Ok(asked)
    }

    /// Passes on a message that cannot be read, for the runtime to refuse, unless hooks would be
    /// left out by that.
    async fn unreadable(
        &self,
        call: &mut InterceptedCall,
        method: Method,
        message: &Bytes,
        error: WireError,
    ) -> Result<RawAnswer, End> {
        match method.points().iter().find(|point| self.chain.wants(**point)) {
            Some(point) => {
                let text = format!("{}: the request cannot be read: {error}", point.name());
                Err(Status::invalid_argument(text).into())
            }
            None => call.forward(&self.runtime, message, ()).await,
        }
    }

    /// Waits for a turn, unless the caller gives up: then others need not wait for it.
    async fn guard(&self, call: &mut InterceptedCall, key: &str) -> Result<KeyGuard, End> {
        call.while_wanted(self.locks.lock(key)).await
    }

    /// Asks the runtime, and keeps the time.
    async fn timed(
        &self,
        call: &mut InterceptedCall,
        message: &Bytes,
        guard: impl Into<Option<KeyGuard>>,
    ) -> Result<(RawAnswer, Outcome), End> {
        let begun = Instant::now();
        let answer = call.forward(&self.runtime, message, guard).await?;
        let status = answer.status();
        let outcome = Outcome {
            code: status.code(),
            message: status.message().to_owned(),
            duration: begun.elapsed(),
        };
        Ok((answer, outcome))
    }
}

/// The id of what the runtime made.
fn made(answer: &RawAnswer) -> Option<String> {
    if answer.code() != Code::Ok {
        return None;
    }
    id::of(&answer.message()?).ok().filter(|id| !id.is_empty())
}
