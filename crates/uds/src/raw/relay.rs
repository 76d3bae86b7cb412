//! The client side: a held connection that carries calls.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use h2::client::{Builder, SendRequest};
use http::{
    Method, Request,
    header::{CONTENT_TYPE, HeaderMap, HeaderValue, TE, USER_AGENT},
    uri::PathAndQuery,
};
use tokio::sync::watch;
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tonic::{Code, Status};

use super::{
    Carried, RawAnswer, RawCall, ask,
    bulk::Bulk,
    carry,
    overflow::{Overflow, Shared},
};
use crate::{
    DialError, LinkState,
    call::{AGENT, CallRecord, RESENDS, complete},
    connection::{Dialled, Dispatch, Greeted, PeerCheck, Sender, logged},
    deadline, limits,
    link::Link,
    tasks::Tasks,
};

/// Options of a [`Relay`].
#[derive(Clone)]
pub struct RelayOptions {
    /// The limit of one attempt, until the server has answered. 3 s unless set.
    pub connect_timeout: Duration,
    /// Decides at each new connection whether its server may be called. Unless set, every server
    /// may.
    pub peer: Option<PeerCheck>,
}

impl Default for RelayOptions {
    fn default() -> Self {
        Self { connect_timeout: Duration::from_secs(3), peer: None }
    }
}

/// The connection to the server behind a proxy. It is made at once, held, and made again after each
/// loss, with pauses of at most a second. While all of its streams are taken, further connections
/// carry new calls.
pub struct Relay {
    link: Arc<Link<SendRequest<Bytes>>>,
    overflow: Overflow,
    connect_timeout: Duration,
    _holder: AbortOnDropHandle<()>,
}

impl Relay {
    /// A relay to the socket at `path`, which need not exist yet.
    ///
    /// Needs to be called inside a tokio runtime.
    pub fn new(path: impl Into<PathBuf>, options: RelayOptions) -> Self {
        let connect_timeout = options.connect_timeout;
        let link = Arc::new(Link::new(path.into(), options.connect_timeout, options.peer));
        let holder = AbortOnDropHandle::new(TaskTracker::new().spawn(link.clone().hold()));
        Self { link, overflow: Overflow::default(), connect_timeout, _holder: holder }
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.link.path
    }

    /// The state of the connection, now and as it changes.
    pub fn link(&self) -> watch::Receiver<LinkState> {
        self.link.state.subscribe()
    }

    /// Carries `call` to the server and its answer back, until both end or either side gives up.
    /// Returns how the call ended.
    ///
    /// Without a connection one attempt is made to connect; if it fails, the call is answered
    /// UNAVAILABLE, with a text that names the socket and the cause. Server and caller enforce
    /// deadlines, not the relay.
    pub async fn carry(&self, mut call: RawCall) -> Carried {
        let timeout = deadline::header_timeout(&call.head.headers);
        let record = CallRecord::start("relay", call.method(), timeout, None);
        let carried = match self.connection(&mut call).await {
            Some(Ok(connection)) => carry::carry(call, &connection.sender, self.path()).await,
            Some(Err(error)) => {
                call.refuse(Status::unavailable(error.to_string()));
                Code::Unavailable.into()
            }
            None => Carried::ABANDONED,
        };
        record.finish(carried.code);
        carried
    }

    /// Asks the server with the headers of `call` and this `message`, and collects the answer.
    /// `sent` is called once the request is sent, after which no other call can overtake it.
    ///
    /// Connects like [`carry`](Relay::carry). Returns `None` if the caller gives up, which cancels
    /// the request.
    pub async fn ask(
        &self,
        call: &mut RawCall,
        message: &Bytes,
        sent: impl FnOnce(),
    ) -> Option<RawAnswer> {
        let record = CallRecord::start("relay", call.method(), call.timeout(), None);
        let answer = match self.connection(call).await? {
            Ok(connection) => {
                ask::ask(call, &connection.sender, self.path(), message, sent).await?
            }
            Err(error) => RawAnswer::unavailable(error.to_string()),
        };
        record.finish(answer.code());
        Some(answer)
    }

    /// Makes a unary call of its own to `method`, with `metadata` in addition to the headers of
    /// gRPC. Its answer may take `limit` bytes.
    ///
    /// Without a connection one attempt is made to connect. A call that was not sent is made again.
    /// The caller enforces a timeout.
    pub async fn call(
        &self,
        method: &PathAndQuery,
        metadata: &HeaderMap,
        message: &Bytes,
        limit: usize,
    ) -> RawAnswer {
        let timeout = deadline::header_timeout(metadata);
        let record = CallRecord::start("client", method.path(), timeout, None);
        let mut resends = 0;
        let answer = loop {
            let connection = match self.with_room().await {
                Ok(connection) => connection,
                Err(error) => break RawAnswer::unavailable(error.to_string()),
            };
            let request = request(method, metadata);
            let answer = ask::call(&connection.sender, self.path(), request, message, limit).await;
            if resends == RESENDS || !answer.was_refused() {
                break answer;
            }
            resends += 1;
        };
        record.finish(answer.code());
        answer
    }

    async fn with_room(&self) -> Result<Shared, DialError> {
        let held = self.link.connection().await?;
        Ok(self.overflow.with_room(held, &self.link, self.connect_timeout).await)
    }

    /// A connection for a call, unless the caller gives up first.
    async fn connection(&self, call: &mut RawCall) -> Option<Result<Shared, DialError>> {
        tokio::select! {
            biased;
            connection = self.with_room() => Some(connection),
            () = call.abandoned() => None,
        }
    }
}

/// A request with the headers that gRPC requires.
fn request(method: &PathAndQuery, metadata: &HeaderMap) -> Request<()> {
    let mut request = Request::new(());
    *request.method_mut() = Method::POST;
    *request.uri_mut() = method.clone().into();
    complete(request.uri_mut());
    let headers = request.headers_mut();
    headers.clone_from(metadata);
    headers.insert(TE, HeaderValue::from_static("trailers"));
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/grpc"));
    headers.insert(USER_AGENT, HeaderValue::from_static(AGENT));
    request
}

/// Connects to the socket at `path` and waits until its server says that it speaks HTTP/2, for
/// `timeout` at most.
///
/// # Errors
/// When no process serves the socket.
pub async fn probe(path: &Path, timeout: Duration) -> Result<(), DialError> {
    Dialled::<SendRequest<Bytes>>::dial(path, timeout, None).await.map(drop)
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.link.close();
    }
}

impl std::fmt::Debug for Relay {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.link.state.borrow().clone();
        f.debug_struct("Relay").field("path", &self.path()).field("state", &state).finish()
    }
}

impl std::fmt::Debug for RelayOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RelayOptions")
            .field("connect_timeout", &self.connect_timeout)
            .finish_non_exhaustive()
    }
}

impl Sender for SendRequest<Bytes> {
    async fn handshake(stream: Greeted, _: &Tasks) -> Option<(Self, Dispatch)> {
        let (sender, connection) = Builder::new()
            .enable_push(false)
            .max_header_list_size(limits::ANSWER_HEADERS)
            .max_frame_size(limits::FRAME)
            .max_concurrent_reset_streams(limits::SERVER_RESETS)
            .max_pending_accept_reset_streams(limits::SERVER_RESETS)
            // h2 counts late frames of calls that clients gave up over the life of the connection.
            // All clients share the connection, so it must not end for any number of them.
            .max_local_error_reset_streams(None)
            .initial_window_size(limits::STREAM_WINDOW)
            .initial_connection_window_size(limits::SHARED_WINDOW)
            .handshake(Bulk::new(stream))
            .await
            .ok()?;
        Some((sender, Box::pin(logged(connection))))
    }

    /// A server that is about to close accepts no more streams; existing ones may continue.
    fn is_closed(&self) -> bool {
        let mut context = Context::from_waker(Waker::noop());
        matches!(self.clone().poll_ready(&mut context), Poll::Ready(Err(_)))
    }
}
