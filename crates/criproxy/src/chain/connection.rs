//! The connection to one socket, shared by all servers that have the same socket and user.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::uri::PathAndQuery;
use prost::Message;
use tokio::{
    sync::oneshot,
    time::{Instant, timeout},
};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tonic::{Code, Extensions, Request, Status, metadata::MetadataMap};
use wharf_uds::{LinkState, Relay, RelayOptions, within};

use super::{breaker::Breaker, failure::Failure, peer::PeerGuard};
use crate::{HookPoint, config::Server};

/// The largest answer that is accepted: gRPC's default. A container's environment is at most about
/// 2 MB, or its program cannot be started.
const ANSWER_LIMIT: usize = 4 << 20;
/// The limit of an attempt to connect. Calls wait for at most their slice.
const CONNECT: Duration = Duration::from_secs(3);
/// The time for which a call waits for a probe.
const PROBE: Duration = Duration::from_millis(50);

#[derive(Debug)]
pub(super) struct Connection {
    pub(super) relay: Arc<Relay>,
    pub(super) peer: Arc<PeerGuard>,
    pub(super) breaker: Arc<Breaker>,
    /// The last probe.
    probe: Mutex<Option<AbortOnDropHandle<()>>>,
}

/// A question to a server.
#[derive(Debug)]
pub(super) struct Question {
    method: PathAndQuery,
    message: Bytes,
    metadata: MetadataMap,
}

/// The time limits of one question.
#[derive(Clone, Copy, Debug)]
pub(super) struct Slice {
    /// The time for which its call waits.
    pub(super) time: Duration,
    /// A server that does not answer within this time hangs.
    pub(super) fair: Duration,
}

impl Question {
    /// A question in three parts. Many calls share the first; only some servers get the last.
    pub(super) fn new(
        point: HookPoint,
        encoded_pod: &[u8],
        message: &impl Message,
        details: &[u8],
        metadata: &MetadataMap,
    ) -> Self {
        let path = format!("/runtime.v1alpha1.RuntimeHookService/{}Hook", point.name());
        let method = PathAndQuery::try_from(path).expect("names of hooks are letters");
        let mut bytes =
            Vec::with_capacity(encoded_pod.len() + message.encoded_len() + details.len());
        bytes.extend_from_slice(encoded_pod);
        message.encode(&mut bytes).expect("there is room");
        bytes.extend_from_slice(details);
        Self { method, message: bytes.into(), metadata: metadata.clone() }
    }
}

impl Connection {
    /// Connects now, and again after each loss. Needs to be called inside a tokio runtime.
    pub(super) fn hold(server: &Server) -> Self {
        let peer = Arc::new(PeerGuard::new(server));
        let guard = peer.clone();
        let options = RelayOptions {
            connect_timeout: CONNECT,
            peer: Some(Arc::new(move |credentials| guard.check(credentials))),
        };
        let relay = Arc::new(Relay::new(&server.endpoint, options));
        Self { relay, peer, breaker: Arc::default(), probe: Mutex::default() }
    }

    /// The generation of the connection, if there is a connection.
    pub(super) fn generation(&self) -> Option<u64> {
        generation(&self.relay)
    }

    /// Asks, and leaves the server out from then on if it hangs.
    pub(super) async fn ask(
        &self,
        server: &str,
        question: Question,
        slice: Slice,
    ) -> Result<Bytes, Failure> {
        let begun = Instant::now();
        let answer = send(&self.relay, question, slice.time).await;
        if let Err(status) = &answer
            && slice.time >= slice.fair
            && is_hung(status, begun, slice.time)
            && self.breaker.open(status.message(), self.generation())
        {
            tracing::warn!(server, error = status.message(), "hook server hangs, leaving it out");
        }
        answer.map_err(|status| self.failure(status))
    }

    /// Probes a server that is left out, with the time of a normal question, and waits only for a
    /// moment.
    pub(super) async fn probe(
        &self,
        server: &str,
        question: Question,
        slice: Slice,
    ) -> Result<Bytes, Failure> {
        let (answer, answered) = oneshot::channel();
        let (relay, breaker, server) =
            (self.relay.clone(), self.breaker.clone(), server.to_owned());
        let ask = async move {
            let begun = Instant::now();
            let time = slice.time.max(slice.fair);
            let result = send(&relay, question, time).await;
            let is_hung = result.as_ref().is_err_and(|status| is_hung(status, begun, time));
            breaker.probed(!is_hung);
            if !is_hung {
                tracing::info!(server, "hook server answers again, asking it");
            }
            // The receiver is gone if the call went on without the answer.
            let _ = answer.send(result);
        };
        let task = AbortOnDropHandle::new(TaskTracker::new().spawn(ask));
        *self.probe.lock().unwrap_or_else(PoisonError::into_inner) = Some(task);
        match timeout(slice.time.min(PROBE), answered).await {
            Ok(Ok(answer)) => answer.map_err(|status| self.failure(status)),
            Ok(Err(_)) | Err(_) => {
                let reason = self.breaker.reason().unwrap_or_default();
                Err(Failure::LeftOut(Status::unavailable(reason)))
            }
        }
    }

    fn failure(&self, status: Status) -> Failure {
        match self.peer.refusal() {
            Some(_) if status.code() == Code::Unavailable => Failure::Untrusted(status),
            _ => Failure::Call(status),
        }
    }
}

async fn send(relay: &Relay, question: Question, time: Duration) -> Result<Bytes, Status> {
    let Question { method, message, metadata } = question;
    let mut request = Request::from_parts(metadata, Extensions::default(), ());
    request.set_timeout(time);
    let metadata = request.into_parts().0.into_headers();
    let answered =
        async { relay.call(&method, &metadata, &message, ANSWER_LIMIT).await.into_message() };
    within(time, "the call", answered).await
}

fn generation(relay: &Relay) -> Option<u64> {
    match *relay.link().borrow() {
        LinkState::Connected { generation } => Some(generation),
        LinkState::Idle | LinkState::Connecting | LinkState::Down { .. } => None,
    }
}

/// Whether a server used all of its time. Its own timer may end a call just before ours.
fn is_hung(status: &Status, begun: Instant, time: Duration) -> bool {
    status.code() == Code::DeadlineExceeded && begun.elapsed() >= time * 9 / 10
}
