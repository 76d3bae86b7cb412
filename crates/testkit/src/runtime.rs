//! A container runtime that records every call byte for byte, and answers by script.
//!
//! A proxy's own calls, recognised by their user agent, are answered and recorded separately.
//!
//! It is written with h2, and shares no code with the proxy under test.

mod reply;
mod stream;

use std::{
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use bytes::Bytes;
use h2::server;
use tokio::{
    net::{UnixListener, UnixStream},
    sync::watch,
    task::JoinSet,
};

pub use self::reply::{Reply, Then, message};
pub use self::stream::{End, Headers, Received};
use crate::script;

/// The beginning of the user agent of a proxy's own calls.
const OWN: &[u8] = b"wharf-cri/";

type Script = dyn Fn(&str) -> Reply + Send + Sync;
type Scripted = Arc<Mutex<Arc<Script>>>;

/// Serves until it is dropped, which looks like a crash from outside: the file stays.
pub struct Runtime {
    path: PathBuf,
    calls: watch::Sender<Vec<Received>>,
    inquiries: watch::Sender<Vec<Received>>,
    script: Scripted,
    tale: Scripted,
    closing: watch::Sender<u32>,
    tasks: JoinSet<()>,
}

impl Runtime {
    /// A runtime at the socket `path`, replacing an existing socket. It answers every call with an
    /// empty message.
    #[must_use]
    pub fn start(path: &Path) -> Self {
        Self::with_streams(path, None)
    }

    /// The same with a limit of concurrent calls on each connection.
    #[must_use]
    pub fn with_streams(path: &Path, streams: Option<u32>) -> Self {
        match std::fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => panic!("{path:?}: {error}"),
            _ => {}
        }
        let socket = UnixListener::bind(path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
        let (calls, inquiries) = (watch::Sender::default(), watch::Sender::default());
        let closing = watch::Sender::default();
        let (script, tale) = (scripted(), scripted());
        let served = Served {
            calls: calls.clone(),
            inquiries: inquiries.clone(),
            script: script.clone(),
            tale: tale.clone(),
            closing: closing.subscribe(),
            streams,
        };
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = socket.accept().await {
                connections.spawn(served.clone().connection(stream));
                while connections.try_join_next().is_some() {}
            }
        });
        Self { path: path.to_owned(), calls, inquiries, script, tale, closing, tasks }
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Sets the answers to future calls, by method.
    pub fn answer(&self, script: impl Fn(&str) -> Reply + Send + Sync + 'static) {
        *self.script.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(script);
    }

    /// Sets the answers to a proxy's own future calls, by method; empty messages by default.
    pub fn tell(&self, tale: impl Fn(&str) -> Reply + Send + Sync + 'static) {
        *self.tale.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(tale);
    }

    /// The calls so far, in order of arrival.
    #[must_use]
    pub fn calls(&self) -> Vec<Received> {
        self.calls.borrow().clone()
    }

    /// A proxy's own calls so far, in order of arrival.
    #[must_use]
    pub fn inquiries(&self) -> Vec<Received> {
        self.inquiries.borrow().clone()
    }

    /// Waits until a proxy's own calls satisfy `wanted`.
    ///
    /// # Panics
    ///
    /// If they do not within [`DEADLINE`](crate::script::DEADLINE).
    pub async fn inquired(&self, wanted: impl FnMut(&Vec<Received>) -> bool) -> Vec<Received> {
        script::seen(&self.inquiries, wanted).await
    }

    /// Waits until the calls satisfy `wanted`.
    ///
    /// # Panics
    ///
    /// If they do not within [`DEADLINE`](crate::script::DEADLINE).
    pub async fn seen(&self, wanted: impl FnMut(&Vec<Received>) -> bool) -> Vec<Received> {
        script::seen(&self.calls, wanted).await
    }

    /// Sends GOAWAY on every connection; running calls go on.
    pub fn go_away(&self) {
        self.closing.send_modify(|times| *times += 1);
    }

    /// Ends without closing properly: the file stays.
    pub async fn kill(mut self) {
        self.tasks.shutdown().await;
    }
}

fn scripted() -> Scripted {
    Arc::new(Mutex::new(Arc::new(|_: &str| Reply::default())))
}

#[derive(Clone)]
struct Served {
    calls: watch::Sender<Vec<Received>>,
    inquiries: watch::Sender<Vec<Received>>,
    script: Scripted,
    tale: Scripted,
    closing: watch::Receiver<u32>,
    streams: Option<u32>,
}

impl Served {
    async fn connection(mut self, stream: UnixStream) {
        self.closing.mark_unchanged();
        let mut builder = server::Builder::new();
        if let Some(streams) = self.streams {
            builder.max_concurrent_streams(streams);
        }
        let handshake = builder
            .max_header_list_size(16 << 20)
            .max_pending_accept_reset_streams(usize::MAX)
            .initial_window_size(1 << 20)
            .initial_connection_window_size(8 << 20)
            .handshake::<_, Bytes>(stream);
        let Ok(mut connection) = handshake.await else { return };
        let mut streams = JoinSet::new();
        loop {
            tokio::select! {
                accepted = connection.accept() => {
                    let Some(Ok((request, reply))) = accepted else { return };
                    let agent = request.headers().get(http::header::USER_AGENT);
                    let own = agent.is_some_and(|agent| agent.as_bytes().starts_with(OWN));
                    let (script, calls) = if own {
                        (&self.tale, &self.inquiries)
                    } else {
                        (&self.script, &self.calls)
                    };
                    let script = script.lock().unwrap_or_else(PoisonError::into_inner).clone();
                    let scripted = script(request.uri().path());
                    streams.spawn(stream::attend(request, reply, scripted, calls.clone()));
                }
                Ok(()) = self.closing.changed() => connection.graceful_shutdown(),
                Some(_) = streams.join_next() => {}
            }
        }
    }
}
