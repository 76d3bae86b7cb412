//! The client side: a channel to one socket.

use std::{
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{
    Request, Response,
    header::{HeaderValue, USER_AGENT},
};
use http_body_util::BodyExt;
use hyper::client::conn::http2::SendRequest;
use tokio::{sync::watch, time::Instant};
use tokio_util::task::{AbortOnDropHandle, TaskTracker};
use tonic::{Code, Status, body::Body};

use crate::{
    DialError, LinkState, RpcMetrics,
    backoff::Backoff,
    call::{self, AGENT, CallRecord, RESENDS, reset_status},
    chain::Chain,
    deadline,
    link::Link,
    silence::{Sent, Silence},
};

/// Options of a [`Channel`].
#[derive(Clone, Copy, Debug)]
pub struct ChannelOptions {
    /// The limit of one attempt, until the server has answered. 10 s unless set.
    pub connect_timeout: Duration,
    /// Connects at once and again after each loss, not only when a call needs a connection.
    pub hold: bool,
}

impl Default for ChannelOptions {
    fn default() -> Self {
        Self { connect_timeout: Duration::from_secs(10), hold: false }
    }
}

/// A client's channel to one socket, for generated clients. Clones share one connection, which
/// closes once the last clone and the last response that is being read are dropped.
///
/// A call without a connection makes one attempt to connect. If that fails, the call fails with
/// UNAVAILABLE and a text that names the socket and the cause.
#[derive(Clone)]
pub struct Channel {
    shared: Arc<ChannelShared>,
    metrics: Option<RpcMetrics>,
    limits: Limits,
    silence: Option<Silence>,
}

/// Conditions under which a call may be sent.
#[derive(Clone, Default)]
struct Limits {
    /// Only on the connection of this generation.
    known: Option<watch::Receiver<u64>>,
    /// Only before this moment.
    until: Option<watch::Receiver<Instant>>,
}

impl Channel {
    /// A channel to the socket at `path`, of any length. Dials nothing yet unless `hold` is set;
    /// `hold` needs a tokio runtime.
    pub fn new(path: impl Into<PathBuf>, options: ChannelOptions) -> Self {
        let link = Arc::new(Link::new(path.into(), options.connect_timeout, None));
        let holder = options
            .hold
            .then(|| AbortOnDropHandle::new(TaskTracker::new().spawn(link.clone().hold())));
        Self {
            shared: Arc::new(ChannelShared { link, _holder: holder }),
            metrics: None,
            limits: Limits::default(),
            silence: None,
        }
    }

    /// The same channel, which counts each call that is made through it.
    #[must_use]
    pub fn with_metrics(self, metrics: RpcMetrics) -> Channel {
        Channel { metrics: Some(metrics), ..self }
    }

    /// The same channel, which records in `silence` which of its requests are answered.
    #[must_use]
    pub fn with_silence(self, silence: Silence) -> Channel {
        Channel { silence: Some(silence), ..self }
    }

    /// The same channel, whose calls are sent only on the connection of this generation: another
    /// connection may lead to another server. Calls wait, up to their timeout, until `known` names
    /// the current connection.
    #[must_use]
    pub fn only_on(self, known: watch::Receiver<u64>) -> Channel {
        Channel { limits: Limits { known: Some(known), ..self.limits }, ..self }
    }

    /// The same channel, whose calls are sent only before this moment. Later calls wait, up to
    /// their timeout, until the moment is moved. They fail with UNAVAILABLE once the sender of
    /// `until` is dropped.
    #[must_use]
    pub fn only_until(self, until: watch::Receiver<Instant>) -> Channel {
        Channel { limits: Limits { until: Some(until), ..self.limits }, ..self }
    }

    /// The socket.
    pub fn path(&self) -> &Path {
        &self.shared.link.path
    }

    /// Waits until there is a connection. The pause between attempts is 10 ms, doubling to 1 s.
    /// Returns the error of the last attempt when the time is up.
    pub async fn connected(&self, timeout: Duration) -> Result<(), DialError> {
        let mut last = None;
        let attempts = async {
            let mut backoff = Backoff::new();
            while let Err(error) = self.shared.link.connection().await {
                last = Some(error);
                backoff.pause().await;
            }
        };
        match tokio::time::timeout(timeout, attempts).await {
            Ok(()) => Ok(()),
            Err(_) => Err(last.unwrap_or_else(|| DialError::silent(self.path(), timeout))),
        }
    }

    /// The state of the connection, now and as it changes. A slow receiver sees only the last
    /// state; the generation shows whether a connection was lost in between.
    pub fn link(&self) -> watch::Receiver<LinkState> {
        self.shared.link.state.subscribe()
    }

    async fn send(self, mut request: Request<Body>) -> Result<Response<Body>, Status> {
        let method = request.uri().path().to_owned();
        let timeout = deadline::header_timeout(request.headers());
        let record = CallRecord::start("client", &method, timeout, self.metrics);
        complete(&mut request);
        let answer = exchange(self.shared, self.limits, self.silence, request);
        match deadline::within_header(timeout, &method, answer).await {
            Ok(response) => Ok(record.follow(response).map(Body::new)),
            Err(status) => {
                record.fail(&status);
                Err(status)
            }
        }
    }
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let state = self.shared.link.state.borrow().clone();
        f.debug_struct("Channel").field("path", &self.path()).field("state", &state).finish()
    }
}

impl tower::Service<Request<Body>> for Channel {
    type Response = Response<Body>;
    type Error = Status;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Status>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Status>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        Box::pin(self.clone().send(request))
    }
}

/// State that clones of a channel share with responses that are being read.
struct ChannelShared {
    link: Arc<Link<SendRequest<Body>>>,
    _holder: Option<AbortOnDropHandle<()>>,
}

impl Drop for ChannelShared {
    fn drop(&mut self) {
        // The task that watches the connection also holds the link: closing ends both.
        self.link.close();
    }
}

/// Sends a request on a connection that accepts it, and waits for the head of the response.
async fn exchange(
    shared: Arc<ChannelShared>,
    mut limits: Limits,
    silence: Option<Silence>,
    mut request: Request<Body>,
) -> Result<Response<impl http_body::Body<Data = bytes::Bytes, Error = Status> + Unpin>, Status> {
    let mut resends = 0;
    loop {
        let connection = shared.link.connection().await.map_err(unreachable)?;
        if let Some(known) = &mut limits.known
            && *known.borrow_and_update() != connection.generation
        {
            let lost = async {
                let mut state = shared.link.state.subscribe();
                let here = LinkState::Connected { generation: connection.generation };
                state.wait_for(|state| *state != here).await.map(drop)
            };
            tokio::select! {
                said = known.changed() => said.map_err(|_| unknown(&shared.link.path))?,
                _ = lost => {}
            }
            continue;
        }
        // Checked last, because all waits above take time.
        if let Some(until) = &mut limits.until
            && *until.borrow_and_update() <= Instant::now()
        {
            until.changed().await.map_err(|_| too_late(&shared.link.path))?;
            continue;
        }
        let noted = silence.as_ref().map(Silence::sent);
        let answer = connection.sender.clone().try_send_request(request).await;
        noted.into_iter().for_each(Sent::ended);
        match answer {
            Ok(response) => {
                return Ok(response.map(|body| {
                    // The closure also keeps the connection open until the body has ended.
                    let held = (shared, connection);
                    body.map_err(move |error| interrupted(&held.0.link.path, &error))
                }));
            }
            Err(mut error) => match error.take_message() {
                // The connection closed before the request was sent: try a new connection.
                Some(unsent) if resends < RESENDS => {
                    request = unsent;
                    resends += 1;
                }
                _ => return Err(interrupted(&shared.link.path, error.error())),
            },
        }
    }
}

/// Adds the parts of the URI and the headers that HTTP/2 needs and a generated client leaves out.
fn complete(request: &mut Request<Body>) {
    call::complete(request.uri_mut());
    request.headers_mut().entry(USER_AGENT).or_insert(HeaderValue::from_static(AGENT));
}

fn unreachable(error: DialError) -> Status {
    let mut status = Status::unavailable(error.to_string());
    status.set_source(Arc::new(error));
    status
}

fn unknown(path: &Path) -> Status {
    Status::unavailable(format!("who serves {} since it came back is not known", path.display()))
}

fn too_late(path: &Path) -> Status {
    Status::unavailable(format!(
        "call over {} was not sent: the time in which this process may call is over",
        path.display()
    ))
}

/// The status of a call that ended without a gRPC status. Unless the server reset this call, the
/// connection was lost: UNAVAILABLE.
fn interrupted(path: &Path, error: &hyper::Error) -> Status {
    let reset = std::iter::successors(Some(error as &dyn std::error::Error), |e| e.source())
        .find_map(|error| error.downcast_ref::<h2::Error>())
        .filter(|error| error.is_reset() && error.is_remote())
        .and_then(h2::Error::reason);
    let code = reset.map_or(Code::Unavailable, reset_status);
    Status::new(code, format!("call over {} was interrupted: {}", path.display(), Chain(error)))
}
