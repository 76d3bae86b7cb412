//! A container runtime that records every call as it came, byte for byte, and answers by script.
//!
//! What a proxy asks for itself, which its user agent tells, is answered and recorded apart.
//!
//! It is written on h2 itself and shares nothing with what it is there to test.

mod reply;
mod stream;

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use h2::server;
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

pub use self::reply::{Reply, Then, message};
pub use self::stream::{End, Headers, Received};
use crate::script;

/// How the user agent of a proxy's own questions begins.
const OWN: &[u8] = b"wharf-cri/";

type Script = dyn Fn(&str) -> Reply + Send + Sync;
type Scripted = Arc<Mutex<Arc<Script>>>;

/// Serves until it is dropped, which is how a crash looks from outside: the file stays.
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
    /// A runtime at the socket `path`, whatever is there. It answers every call with an empty message.
    #[must_use]
    pub fn start(path: &Path) -> Runtime {
        Runtime::with_streams(path, None)
    }

    /// The same, with at most this many calls at a time on each connection.
    #[must_use]
    pub fn with_streams(path: &Path, streams: Option<u32>) -> Runtime {
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
        Runtime { path: path.to_owned(), calls, inquiries, script, tale, closing, tasks }
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Chooses the answer to a call by its method, from now on.
    pub fn answer(&self, script: impl Fn(&str) -> Reply + Send + Sync + 'static) {
        *self.script.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(script);
    }

    /// Chooses the answer to what a proxy asks for itself, by its method, from now on. It is an empty message before.
    pub fn tell(&self, tale: impl Fn(&str) -> Reply + Send + Sync + 'static) {
        *self.tale.lock().unwrap_or_else(PoisonError::into_inner) = Arc::new(tale);
    }

    /// What came in so far, in the order of its arrival.
    #[must_use]
    pub fn calls(&self) -> Vec<Received> {
        self.calls.borrow().clone()
    }

    /// What a proxy asked for itself so far, in the order of its arrival.
    #[must_use]
    pub fn inquiries(&self) -> Vec<Received> {
        self.inquiries.borrow().clone()
    }

    /// Waits until what a proxy asked for itself is as `wanted`.
    ///
    /// # Panics
    ///
    /// When it is not, for too long.
    pub async fn inquired(&self, wanted: impl FnMut(&Vec<Received>) -> bool) -> Vec<Received> {
        script::seen(&self.inquiries, wanted).await
    }

    /// Waits until what came in is as `wanted`.
    ///
    /// # Panics
    ///
    /// When it is not, for too long.
    pub async fn seen(&self, wanted: impl FnMut(&Vec<Received>) -> bool) -> Vec<Received> {
        script::seen(&self.calls, wanted).await
    }

    /// Tells every connection that it is about to close (GOAWAY); calls in flight go on.
    pub fn go_away(&self) {
        self.closing.send_modify(|times| *times += 1);
    }

    /// Ends without a trace of politeness: the file stays.
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
