//! Connections to the servers in force.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tokio::sync::watch;
use tonic::metadata::MetadataMap;
use tonic::{Extensions, Request, Status};
use wharf_uds::{LinkState, Relay, RelayOptions, within};

use super::peer::PeerGuard;
use crate::HookPoint;
use crate::config::{Barred, Server, Servers};
use crate::subject::Subject;

/// The biggest answer that is taken, which is what gRPC takes unless told otherwise. A container's
/// environment is at most some 2 MB, or its program cannot be started.
const ANSWER_LIMIT: usize = 4 << 20;
/// How long an attempt to connect may take. Calls do not wait for longer than their slice.
const CONNECT: Duration = Duration::from_secs(3);

/// A server with the connection to it.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) server: Arc<Server>,
    connection: Arc<Connection>,
    /// The last failure, until a success.
    failure: Mutex<Option<String>>,
}

/// The connection to a socket, shared by all servers that have the same socket and user.
#[derive(Debug)]
struct Connection {
    relay: Relay,
    peer: Arc<PeerGuard>,
}

impl Line {
    /// Asks, and waits for no longer than `slice`. Without a connection one attempt is made at it.
    pub(super) async fn call<S: Subject>(
        &self,
        point: HookPoint,
        half: &[u8],
        message: &S::Request,
        metadata: &MetadataMap,
        slice: Duration,
    ) -> Result<S::Response, Status> {
        let mut request = Request::from_parts(metadata.clone(), Extensions::default(), ());
        request.set_timeout(slice);
        let metadata = request.into_parts().0.into_headers();
        let (method, message) = (method(point), joined(half, message).into());
        let answered = async {
            self.connection.relay.call(&method, &metadata, &message, ANSWER_LIMIT).await.into_message()
        };
        let answer = within(slice, "the call", answered).await?;
        S::Response::decode(answer)
            .map_err(|error| Status::internal(format!("the answer cannot be read: {error}")))
    }

    /// The state of its connection.
    pub(super) fn link(&self) -> watch::Receiver<LinkState> {
        self.connection.relay.link()
    }

    /// Why its socket is not trusted, if it is not.
    pub(super) fn refusal(&self) -> Option<String> {
        self.connection.peer.refusal()
    }

    /// Notes a failure, and says whether it is the first after a success, or since the server is
    /// known.
    pub(super) fn begins_to_fail(&self, error: impl fmt::Display) -> bool {
        self.failure().replace(error.to_string()).is_none()
    }

    /// Notes a success, and says whether it is the first after a failure.
    pub(super) fn recovers(&self) -> bool {
        self.failure().take().is_some()
    }

    /// The last failure, unless a call went well since.
    pub(super) fn failure(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Both halves of a question.
fn joined(half: &[u8], message: &impl Message) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(half.len() + message.encoded_len());
    bytes.extend_from_slice(half);
    message.encode(&mut bytes).expect("there is room");
    bytes
}

fn method(point: HookPoint) -> PathAndQuery {
    let path = format!("/runtime.v1alpha1.RuntimeHookService/{}Hook", point.name());
    PathAndQuery::try_from(path).expect("names of hooks are letters")
}

/// The lines to all servers in force: one connection to each endpoint, held for as long as a server
/// in force has it.
#[derive(Debug)]
pub(super) struct Lines {
    servers: watch::Receiver<Arc<Servers>>,
    current: Mutex<Current>,
}

#[derive(Debug, Default)]
struct Current {
    servers: Arc<Servers>,
    lines: Arc<[Line]>,
}

impl Lines {
    pub(super) fn new(servers: watch::Receiver<Arc<Servers>>) -> Lines {
        Lines { servers, current: Mutex::default() }
    }

    /// The lines as of now. Needs to be called inside a tokio runtime.
    pub(super) fn current(&self) -> Arc<[Line]> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked at under the lock, so that no older servers come after newer ones.
        let servers = self.servers.borrow().clone();
        if !Arc::ptr_eq(&servers, &current.servers) {
            let lines = connect(&servers, &current.lines);
            *current = Current { servers, lines };
        }
        current.lines.clone()
    }

    /// The lines as of the last call or change.
    pub(super) fn known(&self) -> Arc<[Line]> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).lines.clone()
    }

    /// The server whose absence refuses the calls of a hook now.
    pub(super) fn barred(&self, point: HookPoint) -> Option<Barred> {
        self.servers.borrow().barred(point).cloned()
    }

    /// Opens and closes connections as servers change, for as long as they do.
    pub(super) async fn follow(self: Arc<Self>) {
        let mut servers = self.servers.clone();
        while servers.changed().await.is_ok() {
            self.current();
        }
    }
}

/// Lines to `servers`, over connections of the `known` lines where they lead to the same socket.
fn connect(servers: &Servers, known: &[Line]) -> Arc<[Line]> {
    let mut lines: Vec<Line> = Vec::new();
    for server in servers.iter() {
        let is_same = |line: &&Line| {
            line.server.endpoint == server.endpoint && line.server.uid == server.uid
        };
        let there = lines.iter().chain(known).find(is_same);
        let connection = there.map_or_else(|| hold(server), |line| line.connection.clone());
        lines.push(Line { server: server.clone(), connection, failure: Mutex::default() });
    }
    lines.into()
}

fn hold(server: &Server) -> Arc<Connection> {
    let peer = Arc::new(PeerGuard::new(server));
    let guard = peer.clone();
    let options = RelayOptions {
        connect_timeout: CONNECT,
        peer: Some(Arc::new(move |credentials| guard.check(credentials))),
    };
    Arc::new(Connection { relay: Relay::new(&server.endpoint, options), peer })
}
