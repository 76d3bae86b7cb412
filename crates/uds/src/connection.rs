//! One HTTP/2 connection to a socket.

use std::{
    future::Future,
    io,
    os::unix::net::UnixStream as StdStream,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use hyper::{client::conn::http2, rt::Executor};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::UnixStream,
    sync::oneshot,
};
use tokio_util::sync::DropGuard;
use tonic::body::Body;

use crate::{PeerCredentials, address, backoff::Backoff, chain::Chain, limits, tasks::Tasks};

/// Decides whether the process that listens on a socket may be called. An error says why not.
pub type PeerCheck = Arc<dyn Fn(PeerCredentials) -> Result<(), String> + Send + Sync>;

/// Sends requests on a connection: hyper's handle for messages, h2's for relayed streams.
pub(crate) trait Sender: Clone + Send + Sync + 'static {
    /// Starts HTTP/2 on the stream; `None` where the peer does not speak it.
    fn handshake(
        stream: Greeted,
        tasks: &Tasks,
    ) -> impl Future<Output = Option<(Self, Dispatch)>> + Send;

    /// Whether no more requests can be sent.
    fn is_closed(&self) -> bool;
}

/// Drives the connection until it ends.
pub(crate) type Dispatch = Pin<Box<dyn Future<Output = ()> + Send>>;

impl Sender for http2::SendRequest<Body> {
    async fn handshake(stream: Greeted, tasks: &Tasks) -> Option<(Self, Dispatch)> {
        let (sender, dispatch) = http2::Builder::new(tasks.clone())
            .max_header_list_size(limits::ANSWER_HEADERS)
            .max_frame_size(limits::FRAME)
            .max_concurrent_reset_streams(limits::SERVER_RESETS)
            .max_pending_accept_reset_streams(limits::SERVER_RESETS)
            .max_local_error_reset_streams(limits::SERVER_RESETS)
            .initial_stream_window_size(limits::STREAM_WINDOW)
            .initial_connection_window_size(limits::CONNECTION_WINDOW)
            .handshake(TokioIo::new(stream))
            .await
            .ok()?;
        Some((sender, Box::pin(logged(dispatch))))
    }

    fn is_closed(&self) -> bool {
        http2::SendRequest::is_closed(self)
    }
}

/// Drives a connection, and logs its end at debug level.
pub(crate) async fn logged<E: std::error::Error + 'static>(
    dispatch: impl Future<Output = Result<(), E>>,
) {
    if let Err(error) = dispatch.await {
        tracing::debug!(error = %Chain(&error), "connection ended");
    }
}

/// An established connection. It closes when the last reference to it is dropped.
pub(crate) struct Connection<S> {
    // First field, dropped first: otherwise the end of the sender looks like a close by the peer.
    _tasks: DropGuard,
    pub(crate) generation: u64,
    pub(crate) sender: S,
}

/// A connection whose server has answered, and whose requests are not dispatched yet.
pub(crate) struct Dialled<S> {
    sender: S,
    dispatch: Dispatch,
    tasks: Tasks,
    guard: DropGuard,
}

impl<S: Sender> Dialled<S> {
    /// Dials, and waits for the first bytes that every HTTP/2 server sends unasked, so that a
    /// process that does not accept connections is not taken for a server.
    pub(crate) async fn dial(
        path: &Path,
        timeout: Duration,
        check: Option<&PeerCheck>,
    ) -> Result<Dialled<S>, DialError> {
        match tokio::time::timeout(timeout, dial(path, check)).await {
            Ok(dialled) => dialled.map_err(|cause| DialError::new(path, cause)),
            Err(_) => Err(DialError::silent(path, timeout)),
        }
    }

    /// Starts to dispatch requests. Calls `closed` once no more can be sent, because the connection
    /// was lost or the server is about to close it; not if the connection is dropped.
    pub(crate) fn start(
        self,
        generation: u64,
        closed: impl FnOnce() + Send + 'static,
    ) -> Connection<S> {
        let Dialled { sender, dispatch, tasks, guard } = self;
        let ours = tasks.clone();
        tasks.execute(async move {
            dispatch.await;
            if !ours.are_ending() {
                closed();
            }
        });
        Connection { _tasks: guard, generation, sender }
    }
}

/// A socket could not be reached.
#[derive(Clone, Debug, thiserror::Error)]
#[error("cannot reach {}: {cause}", path.display())]
#[non_exhaustive]
pub struct DialError {
    /// The socket.
    pub path: PathBuf,
    /// Why.
    pub cause: Arc<DialCause>,
}

impl DialError {
    pub(crate) fn silent(path: &Path, timeout: Duration) -> Self {
        Self::new(path, DialCause::Silent { timeout })
    }

    fn new(path: &Path, cause: DialCause) -> Self {
        Self { path: path.to_owned(), cause: Arc::new(cause) }
    }
}

/// Why a socket could not be reached.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DialCause {
    /// A system call failed.
    #[error("{0}")]
    Connect(io::Error),
    /// The peer is not an HTTP/2 server, or is stopping.
    #[error("the peer closed the connection before it spoke HTTP/2")]
    Closed,
    /// The process that listens must not be called.
    #[error("{0}")]
    Refused(String),
    /// The connection was made or waits to be accepted, and the peer sent nothing.
    #[error("the peer did not answer in {timeout:?}")]
    Silent {
        /// The time limit.
        timeout: Duration,
    },
}

async fn dial<S: Sender>(path: &Path, check: Option<&PeerCheck>) -> Result<Dialled<S>, DialCause> {
    let stream = connect(path).await?;
    if let Some(check) = check {
        let credentials = stream.peer_cred().map_err(DialCause::Connect)?;
        check(credentials.into()).map_err(DialCause::Refused)?;
    }
    let (greeted, greeting) = oneshot::channel();
    let stream = Greeted { stream, greeted: Some(greeted) };
    let tasks = Tasks::default();
    let guard = tasks.guard();
    let (sender, mut dispatch) = S::handshake(stream, &tasks).await.ok_or(DialCause::Closed)?;
    // Dispatch must run meanwhile, because it may be the reader of the greeting.
    tokio::select! {
        biased;
        greeted = greeting => greeted.map_err(|_| DialCause::Closed)?,
        () = &mut dispatch => return Err(DialCause::Closed),
    }
    Ok(Dialled { sender, dispatch, tasks, guard })
}

/// Connects. Polls while the listener's backlog is full, because the kernel reports no event for
/// that.
async fn connect(path: &Path) -> Result<UnixStream, DialCause> {
    let mut backoff = Backoff::new();
    loop {
        match address::connect(path) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                backoff.pause().await;
            }
            connected => {
                return connected
                    .and_then(|socket| UnixStream::from_std(StdStream::from(socket)))
                    .map_err(DialCause::Connect);
            }
        }
    }
}

/// A stream that signals when its first bytes arrive.
pub(crate) struct Greeted {
    stream: UnixStream,
    greeted: Option<oneshot::Sender<()>>,
}

impl AsyncRead for Greeted {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buffer.filled().len();
        ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
        if buffer.filled().len() > before
            && let Some(greeted) = this.greeted.take()
        {
            // The send fails if the dialler gave up.
            let _ = greeted.send(());
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Greeted {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
