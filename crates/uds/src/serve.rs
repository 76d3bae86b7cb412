//! Serving gRPC on a listener.

use std::{any::Any, convert::Infallible, panic::AssertUnwindSafe, time::Duration};

use futures_util::FutureExt;
use http::{Request, Response};
use hyper::{body::Incoming, server::conn::http2};
use hyper_util::rt::TokioIo;
use tokio::net::{UnixStream, unix::UCred};
use tokio_util::sync::CancellationToken;
use tonic::{Status, body::Body, service::Routes};
use tower::ServiceExt;

use crate::{
    Listener, ServeError, admission,
    call::{CallRecord, RecordedBody},
    chain::Chain,
    deadline,
    guard::Guarded,
    limits,
    tasks::Tasks,
};

/// The process at the other end of a connection, as the kernel reports it. In the extensions of
/// every request that a [`Listener`] serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// The process id, if the process is visible in our PID namespace.
    pub pid: Option<i32>,
    /// Its user id.
    pub uid: u32,
    /// Its group id.
    pub gid: u32,
}

impl From<UCred> for PeerCredentials {
    fn from(credentials: UCred) -> Self {
        let (pid, uid, gid) = (credentials.pid(), credentials.uid(), credentials.gid());
        Self { pid: pid.filter(|pid| *pid != 0), uid, gid }
    }
}

impl Listener {
    /// Serves `routes` until `stop`. Then removes the path, accepts no more connections, and gives
    /// calls in flight `drain` to finish before it drops them.
    ///
    /// A handler that panics fails its own call with INTERNAL. Dropping the future ends everything
    /// at once.
    pub async fn serve(
        self,
        routes: Routes,
        drain: Duration,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let routes = routes.prepare();
        self.accept(drain, stop, |stream, streams, closing| {
            let routes = routes.clone();
            Server { routes, streams, closing }.dispatch(stream)
        })
        .await
    }
}

/// One connection.
struct Server {
    routes: Routes,
    streams: Tasks,
    closing: CancellationToken,
}

impl Server {
    async fn dispatch(self, stream: Guarded<UnixStream>) {
        let peer = match stream.get_ref().peer_cred() {
            Ok(credentials) => PeerCredentials::from(credentials),
            Err(error) => {
                tracing::debug!(%error, "peer closed before it was identified");
                return;
            }
        };
        let service = hyper::service::service_fn(|request| {
            let routes = self.routes.clone();
            async move { Ok::<_, Infallible>(answer(routes, peer, request).await) }
        });
        let connection = http2::Builder::new(self.streams.clone())
            .max_concurrent_streams(limits::STREAMS)
            .max_header_list_size(limits::REQUEST_HEADERS)
            .max_frame_size(limits::FRAME)
            .max_pending_accept_reset_streams(limits::RESETS as usize)
            .max_local_error_reset_streams(limits::ERRORS)
            .initial_stream_window_size(limits::STREAM_WINDOW)
            .initial_connection_window_size(limits::CONNECTION_WINDOW)
            .auto_date_header(false)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let ended = tokio::select! {
            ended = connection.as_mut() => ended,
            () = self.closing.cancelled() => {
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = ended {
            tracing::debug!(?peer, error = %Chain(&error), "connection ended");
        }
    }
}

async fn answer(
    routes: Routes,
    peer: PeerCredentials,
    mut request: Request<Incoming>,
) -> Response<RecordedBody<Body>> {
    let method = request.uri().path().to_owned();
    let timeout = deadline::header_timeout(request.headers());
    let record = CallRecord::start("server", &method, timeout, None);
    request.extensions_mut().insert(peer);

    if let Err(status) = admission::check_fields(request.headers()) {
        return record.follow(status.into_http());
    }

    let handled =
        AssertUnwindSafe(routes.oneshot(request)).catch_unwind().map(|handled| match handled {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(never)) => match never {},
            Err(panic) => Err(panicked(&method, panic.as_ref())),
        });
    let response =
        deadline::within_header(timeout, &method, handled).await.unwrap_or_else(Status::into_http);
    record.follow(response)
}

/// A panic message may contain secrets, so only the log of this process shows it.
fn panicked(method: &str, panic: &(dyn Any + Send)) -> Status {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(method, text, "handler panicked");
    Status::internal(format!("the handler of {method} panicked"))
}
