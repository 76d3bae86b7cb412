//! The one connection of a channel: made when needed, watched, and made again after a loss.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

use crate::{
    DialError,
    backoff::{self, Backoff},
    connection::{Connection, Dialled, PeerCheck, Sender},
};

/// The state of a channel's connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LinkState {
    /// Nothing was tried yet.
    Idle,
    /// An attempt is under way.
    Connecting,
    /// There is a connection to a server that answers.
    Connected {
        /// 1 for the first connection of the channel, one more for each that follows.
        generation: u64,
    },
    /// The connection was lost, or the last attempt failed.
    Down {
        /// Why.
        error: String,
    },
}

pub(crate) struct Link<S> {
    pub(crate) path: PathBuf,
    pub(crate) state: watch::Sender<LinkState>,
    connect_timeout: Duration,
    /// Decides at each new connection whether its peer may be called.
    pub(crate) peer: Option<PeerCheck>,
    current: Mutex<Option<Arc<Connection<S>>>>,
    /// Attempts begun so far.
    begun: AtomicU64,
    /// Locked by the caller that dials. Holds the number and the error of the last failed attempt.
    dialling: tokio::sync::Mutex<Option<(u64, DialError)>>,
    generations: AtomicU64,
}

impl<S: Sender> Link<S> {
    pub(crate) fn new(
        path: PathBuf,
        connect_timeout: Duration,
        peer: Option<PeerCheck>,
    ) -> Link<S> {
        Link {
            path,
            state: watch::Sender::new(LinkState::Idle),
            connect_timeout,
            peer,
            current: Mutex::default(),
            begun: AtomicU64::new(0),
            dialling: tokio::sync::Mutex::default(),
            generations: AtomicU64::new(0),
        }
    }

    /// The connection, made now if there is none. Callers that arrive while another dials share its
    /// attempt and its failure, so that none waits for longer than two attempts.
    pub(crate) async fn connection(self: &Arc<Self>) -> Result<Arc<Connection<S>>, DialError> {
        if let Some(connection) = self.usable() {
            return Ok(connection);
        }
        let arrived = self.begun.load(Ordering::Acquire);
        let mut failure = self.dialling.lock().await;
        if let Some(connection) = self.usable() {
            return Ok(connection);
        }
        if let Some((attempt, error)) = &*failure
            && *attempt > arrived
        {
            return Err(error.clone());
        }
        let attempt = self.begun.fetch_add(1, Ordering::AcqRel) + 1;
        self.state.send_replace(LinkState::Connecting);
        let _connecting = Connecting(&self.state);
        match Dialled::dial(&self.path, self.connect_timeout, self.peer.as_ref()).await {
            Ok(dialled) => {
                *failure = None;
                Ok(self.adopt(dialled))
            }
            Err(error) => {
                self.state.send_replace(LinkState::Down { error: error.to_string() });
                *failure = Some((attempt, error.clone()));
                Err(error)
            }
        }
    }

    /// Keeps a connection up while it is polled: makes the first at once, and the next as soon as
    /// one is lost. Sleeps while the connection is up.
    pub(crate) async fn hold(self: Arc<Self>) {
        let mut state = self.state.subscribe();
        let mut backoff = Backoff::at_once();
        loop {
            if self.connection().await.is_ok() {
                let since = Instant::now();
                let is_lost = |state: &LinkState| !matches!(state, LinkState::Connected { .. });
                if state.wait_for(is_lost).await.is_err() {
                    return;
                }
                // A short connection counts as a failure: a server that accepts and hangs up must
                // not be dialled in a tight loop.
                if since.elapsed() >= backoff::LONGEST {
                    backoff = Backoff::at_once();
                }
            }
            backoff.pause().await;
        }
    }

    /// Closes the connection, unless calls in flight still hold it.
    pub(crate) fn close(&self) {
        drop(self.lock_current().take());
    }

    fn usable(&self) -> Option<Arc<Connection<S>>> {
        self.lock_current().clone().filter(|connection| !connection.sender.is_closed())
    }

    fn adopt(self: &Arc<Self>, dialled: Dialled<S>) -> Arc<Connection<S>> {
        let generation = self.generations.fetch_add(1, Ordering::AcqRel) + 1;
        // Published before the connection is watched, so that its loss cannot be published first.
        self.state.send_replace(LinkState::Connected { generation });
        let link = self.clone();
        let connection = Arc::new(dialled.start(generation, move || link.lost(generation)));
        *self.lock_current() = Some(connection.clone());
        connection
    }

    fn lost(&self, generation: u64) {
        self.lock_current().take_if(|connection| connection.generation == generation);
        self.state.send_if_modified(|state| {
            let ours = *state == LinkState::Connected { generation };
            if ours {
                *state = LinkState::Down { error: "the peer closed the connection".to_owned() };
            }
            ours
        });
    }

    fn lock_current(&self) -> std::sync::MutexGuard<'_, Option<Arc<Connection<S>>>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// An attempt under way. Dropping it before its outcome means that its caller gave up.
struct Connecting<'a>(&'a watch::Sender<LinkState>);

impl Drop for Connecting<'_> {
    fn drop(&mut self) {
        self.0.send_if_modified(|state| {
            let open = *state == LinkState::Connecting;
            if open {
                *state =
                    LinkState::Down { error: "the attempt to connect was given up".to_owned() };
            }
            open
        });
    }
}
