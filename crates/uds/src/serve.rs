//! Serving gRPC on a listener.

use std::any::Any;
use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::time::Duration;

use futures_util::FutureExt;
use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper_util::rt::TokioIo;
use tokio::net::UnixStream;
use tokio::net::unix::UCred;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use tonic::body::Body;
use tonic::service::Routes;
use tower::ServiceExt;

use crate::admission;
use crate::call::{CallRecord, RecordedBody};
use crate::chain::Chain;
use crate::guard::Guarded;
use crate::tasks::Tasks;
use crate::{Listener, ServeError, deadline, limits};

/// Who is at the other end of a connection, as the kernel says. In the extensions of every
/// request that a [`Listener`] serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCredentials {
    /// The process, where the kernel can name it in our namespace.
    pub pid: Option<i32>,
    /// Its user.
    pub uid: u32,
    /// Its group.
    pub gid: u32,
}

impl From<UCred> for PeerCredentials {
    fn from(credentials: UCred) -> PeerCredentials {
        let (pid, uid, gid) = (credentials.pid(), credentials.uid(), credentials.gid());
        PeerCredentials { pid: pid.filter(|pid| *pid != 0), uid, gid }
    }
}

impl Listener {
    /// Serves `routes` until `stop`. Then the path is removed, no connection is accepted any more,
    /// and calls in flight get `drain` to finish before they are cut.
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
            Server { routes, streams, closing }.attend(stream)
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
    async fn attend(self, stream: Guarded<UnixStream>) {
        let peer = match stream.get_ref().peer_cred() {
            Ok(credentials) => PeerCredentials::from(credentials),
            Err(error) => {
                tracing::debug!(%error, "the peer left before it could be named");
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

/// The text of a panic may hold anything, so it goes to the log of this process only.
fn panicked(method: &str, panic: &(dyn Any + Send)) -> Status {
    let text = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(method, text, "the handler of a call panicked");
    Status::internal(format!("the handler of {method} panicked"))
}
