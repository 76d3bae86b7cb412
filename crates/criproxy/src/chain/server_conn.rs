//! Connections to the servers in force.

use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use prost::Message;
use tokio::sync::watch;
use tonic::Status;
#[cfg(test)]
use wharf_uds::LinkState;

use super::breaker::Admission;
use super::connection::{Connection, Question, Slice};
use super::failure::Failure;
use crate::HookPoint;
use crate::config::{Answers, Barred, Server, Servers};
use crate::edit::Edit;
use crate::subject::{Reading, Subject};

/// A server with the connection to it.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) server: Arc<Server>,
    connection: Arc<Connection>,
    /// The last failure, until a success.
    failure: Mutex<Option<String>>,
}

impl Line {
    /// Asks, and waits for no longer than `slice`. Without a connection one attempt is made at it. A
    /// server that is left out is not waited for.
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

    /// What an answer changes of what was sent.
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

    /// Why its socket is not trusted, if it is not.
    pub(super) fn refusal(&self) -> Option<String> {
        self.connection.peer.refusal()
    }

    /// Why it is left out, if it is.
    pub(super) fn left_out(&self) -> Option<String> {
        self.connection.breaker.reason()
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

    /// The servers in force, as they change.
    pub(super) fn servers(&self) -> watch::Receiver<Arc<Servers>> {
        self.servers.clone()
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
        let is_same =
            |line: &&Line| line.server.endpoint == server.endpoint && line.server.uid == server.uid;
        let there = lines.iter().chain(known).find(is_same);
        let connection =
            there.map_or_else(|| Connection::hold(server).into(), |line| line.connection.clone());
        lines.push(Line { server: server.clone(), connection, failure: Mutex::default() });
    }
    lines.into()
}
