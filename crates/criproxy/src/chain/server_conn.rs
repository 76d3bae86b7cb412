//! Connections to the servers in force.

use std::{
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prost::Message;
use tokio::sync::watch;
use tonic::Status;
#[cfg(test)]
use wharf_uds::LinkState;

use super::{
    breaker::Admission,
    connection::{Connection, Question, Slice},
    failure::Failure,
};
use crate::{
    HookPoint,
    config::{Answers, Barred, Server, Servers},
    edit::Edit,
    subject::{Reading, Subject},
};

/// A server with the connection to it.
#[derive(Debug)]
pub(super) struct ServerConn {
    pub(super) server: Arc<Server>,
    connection: Arc<Connection>,
    /// The last failure, until a success.
    failure: Mutex<Option<String>>,
}

impl ServerConn {
    /// Asks, and waits for at most `slice`. Without a connection makes one attempt to connect. Does
    /// not wait for a server that is left out.
    pub(super) async fn call<S: Subject>(
        &self,
        question: Question,
        slice: Slice,
    ) -> Result<S::Response, Failure> {
        let answer = match self.connection.breaker.admit(self.connection.generation()) {
            Admission::Ask => self.connection.ask(&self.server.name, question, slice).await,
            Admission::Probe => self.connection.probe(&self.server.name, question, slice).await,
            Admission::LeaveOut(reason) => Err(Failure::LeftOut(Status::unavailable(reason))),
        };
        S::Response::decode(answer?).map_err(|error| {
            Failure::Call(Status::internal(format!("the answer cannot be read: {error}")))
        })
    }

    /// The changes of an answer to what was sent.
    pub(super) fn edits<S: Subject>(
        &self,
        point: HookPoint,
        sent: &S::Request,
        answer: &S::Response,
        reading: Reading,
    ) -> Result<Vec<Edit>, Failure> {
        match self.server.answers {
            Answers::Koordinator => Ok(S::edits(point, sent, answer, reading)),
            Answers::Partial => S::named_edits(point, sent, answer).map_err(Failure::Inexpressible),
        }
    }

    /// The state of its connection.
    #[cfg(test)]
    pub(super) fn link(&self) -> watch::Receiver<LinkState> {
        self.connection.relay.link()
    }

    /// The reason why its socket is not trusted, if it is not.
    pub(super) fn refusal(&self) -> Option<String> {
        self.connection.peer.refusal()
    }

    /// The reason why it is left out, if it is.
    pub(super) fn left_out(&self) -> Option<String> {
        self.connection.breaker.reason()
    }

    /// Records a failure. Returns whether it is the first since the last success or since the
    /// start.
    pub(super) fn begins_to_fail(&self, error: impl fmt::Display) -> bool {
        self.failure().replace(error.to_string()).is_none()
    }

    /// Records a success. Returns whether it is the first after a failure.
    pub(super) fn recovers(&self) -> bool {
        self.failure().take().is_some()
    }

    /// The last failure, unless a call has succeeded since.
    pub(super) fn failure(&self) -> MutexGuard<'_, Option<String>> {
        self.failure.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connections to all servers in force: one for each endpoint, held while a server in force uses
/// it.
#[derive(Debug)]
pub(super) struct ServerConns {
    servers: watch::Receiver<Arc<Servers>>,
    current: Mutex<Current>,
}

#[derive(Debug, Default)]
struct Current {
    servers: Arc<Servers>,
    conns: Arc<[ServerConn]>,
}

impl ServerConns {
    pub(super) fn new(servers: watch::Receiver<Arc<Servers>>) -> Self {
        Self { servers, current: Mutex::default() }
    }

    /// The current connections. Needs to be called inside a tokio runtime.
    pub(super) fn current(&self) -> Arc<[ServerConn]> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        // Read under the lock, so that older servers never replace newer ones.
        let servers = self.servers.borrow().clone();
        if !Arc::ptr_eq(&servers, &current.servers) {
            let conns = connect(&servers, &current.conns);
            *current = Current { servers, conns };
        }
        current.conns.clone()
    }

    /// The connections as of the last call or change.
    pub(super) fn known(&self) -> Arc<[ServerConn]> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).conns.clone()
    }

    /// The servers in force, as they change.
    pub(super) fn servers(&self) -> watch::Receiver<Arc<Servers>> {
        self.servers.clone()
    }

    /// The server whose absence refuses the calls of a hook now.
    pub(super) fn barred(&self, point: HookPoint) -> Option<Barred> {
        self.servers.borrow().barred(point).cloned()
    }

    /// Opens and closes connections as servers change, until they cannot change any more.
    pub(super) async fn follow(self: Arc<Self>) {
        let mut servers = self.servers.clone();
        while servers.changed().await.is_ok() {
            self.current();
        }
    }
}

/// Connections to `servers`. Reuses the `known` connections to the same socket and user.
fn connect(servers: &Servers, known: &[ServerConn]) -> Arc<[ServerConn]> {
    let mut conns: Vec<ServerConn> = Vec::new();
    for server in servers.iter() {
        let is_same = |conn: &&ServerConn| {
            conn.server.endpoint == server.endpoint && conn.server.uid == server.uid
        };
        let there = conns.iter().chain(known).find(is_same);
        let connection =
            there.map_or_else(|| Connection::hold(server).into(), |conn| conn.connection.clone());
        conns.push(ServerConn { server: server.clone(), connection, failure: Mutex::default() });
    }
    conns.into()
}
