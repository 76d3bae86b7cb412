//! An intercepted call, from its message to its answer.

use std::{future::Future, sync::Arc, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};
use tonic::{Code, Status};
use wharf_proto::hooks::{ContainerResourceHookRequest, PodSandboxHookRequest};
use wharf_uds::{RawAnswer, RawCall, Relay};
use wharf_wire::WireError;

use crate::{
    chain::{CallContext, HookTime, Trace},
    explain, record,
};

/// The largest message that is read. CRI's own limit is 16 MiB.
const LARGEST: usize = 32 << 20;
/// The most bytes that the messages of all calls under way may take together. One process may take
/// half of it: a message of the largest size with the 5 bytes before it.
pub(super) const ROOM: usize = 2 * (LARGEST + 5);

fn full() -> Status {
    Status::resource_exhausted(format!(
        "the messages of calls under way take {} MiB, the most that hooks allow: try again",
        ROOM >> 20
    ))
}

/// A call under way.
pub(super) struct InterceptedCall {
    call: RawCall,
    /// Room for its message, until the call ends.
    room: Option<OwnedSemaphorePermit>,
    time: HookTime,
    /// The records of its hooks.
    records: explain::OfCall,
    /// The time that the runtime took so far.
    in_runtime: Duration,
}

/// Why a call ends without the runtime's answer.
pub(super) enum End {
    /// It is answered with this.
    Refused(Status),
    /// Its message is none that the runtime's interface knows. The runtime was not asked.
    Unreadable(WireError),
    /// Its caller is gone.
    Abandoned,
}

impl From<WireError> for End {
    fn from(error: WireError) -> Self {
        Self::Unreadable(error)
    }
}

impl From<Status> for End {
    fn from(status: Status) -> Self {
        Self::Refused(status)
    }
}

impl InterceptedCall {
    pub(super) fn new(call: RawCall) -> Self {
        let (time, records) = (HookTime::default(), explain::OfCall::default());
        Self { call, room: None, time, records, in_runtime: Duration::ZERO }
    }

    /// The message, once all of it is there. Those of all calls share the room.
    pub(super) async fn message(&mut self, room: &Arc<Semaphore>) -> Result<Bytes, End> {
        let Self { call, room: taken, .. } = self;
        let reserve = |bytes: usize| {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            let more = room.clone().try_acquire_many_owned(bytes).map_err(|_| full())?;
            match taken {
                Some(taken) => taken.merge(more),
                None => *taken = Some(more),
            }
            Ok(())
        };
        Ok(call.message_within(LARGEST, reserve).await?)
    }

    /// The context of a question about a pod, whose sandbox may have an id.
    pub(super) fn pod_context(
        &self,
        question: &PodSandboxHookRequest,
        id: Option<&str>,
    ) -> CallContext {
        CallContext { id: id.map(str::to_owned), ..self.context(record::full_name(question)) }
    }

    /// The context of a question about a container of `pod`.
    pub(super) fn container_context(
        &self,
        pod: &record::Pod,
        question: &ContainerResourceHookRequest,
    ) -> CallContext {
        let container = question.container_meta.as_ref();
        CallContext {
            container: container.map(|container| container.name.clone()),
            id: container.map(|container| container.id.clone()).filter(|id| !id.is_empty()),
            encoded_pod: pod.encoded_pod().clone(),
            ..self.context(pod.name().to_owned())
        }
    }

    /// When the caller stops waiting.
    pub(super) fn ends(&self) -> Option<Instant> {
        self.call.ends()
    }

    /// The time that hooks of the call took so far.
    pub(super) fn time(&self) -> &HookTime {
        &self.time
    }

    /// The time that the runtime took so far.
    pub(super) fn in_runtime(&self) -> Duration {
        self.in_runtime
    }

    /// The records of its hooks.
    pub(super) fn records(&self) -> &explain::OfCall {
        &self.records
    }

    fn context(&self, pod: String) -> CallContext {
        CallContext {
            pod,
            time: self.time.clone(),
            ends: self.ends(),
            trace: Trace::of(self.call.metadata()),
            records: self.records.clone(),
            ..CallContext::default()
        }
    }

    /// Charges the client process if it gives up the call from now on: hook servers or the runtime
    /// work on the call.
    pub(super) fn charge_if_abandoned(&mut self) {
        self.call.charge_if_abandoned();
    }

    /// Waits for `work`, unless the caller gives up.
    pub(super) async fn while_wanted<T>(
        &mut self,
        work: impl Future<Output = T>,
    ) -> Result<T, End> {
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = self.call.abandoned() => Err(End::Abandoned),
        }
    }

    /// Asks the runtime. `held` is dropped once the call is on its way: what keeps the next call
    /// from overtaking it.
    pub(super) async fn forward<T>(
        &mut self,
        runtime: &Relay,
        message: &Bytes,
        held: T,
    ) -> Result<RawAnswer, End> {
        let begun = Instant::now();
        let answer = runtime.ask(&mut self.call, message, || drop(held)).await;
        self.in_runtime += begun.elapsed();
        answer.ok_or(End::Abandoned)
    }

    /// Ends the call, and returns its code.
    pub(super) fn end(self, end: Result<RawAnswer, End>) -> Code {
        match end {
            Ok(answer) => {
                let code = answer.code();
                self.call.answer(answer);
                code
            }
            Err(End::Refused(status)) => {
                let code = status.code();
                self.call.refuse(status);
                code
            }
            Err(End::Unreadable(error)) => {
                self.end(Err(Status::invalid_argument(error.to_string()).into()))
            }
            Err(End::Abandoned) => Code::Cancelled,
        }
    }
}
