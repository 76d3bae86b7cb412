use std::convert::Infallible;
use std::net::SocketAddr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::{Request, StatusCode};
use axum::response::{IntoResponse, Response};
use http_body_util::Limited;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

/// How long a client may take to send its request line and headers, and may idle between requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// How long an answer may take to be made.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// How long a connection may live, however busy: a reader that dawdles holds a slot.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(300);

/// How long answers under way may take once the endpoint stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// How long to rest when the system cannot accept, which means that it has no descriptors left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Kubelet, Prometheus and a few people: more at once is abuse.
const MAX_CONNECTIONS: usize = 256;

/// No request of ours has a body worth more.
const MAX_BODY: usize = 64 * 1024;

/// An admin endpoint that listens and is ready to serve.
#[derive(Debug)]
pub struct BoundAdmin {
    listener: TcpListener,
    local: SocketAddr,
    router: Router,
}

impl BoundAdmin {
    pub(super) fn new(listener: TcpListener, local: SocketAddr, router: Router) -> Self {
        BoundAdmin { listener, local, router }
    }

    /// Where it listens, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The socket, for another process to serve as well.
    pub fn socket(&self) -> std::io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }

    /// Serves until `stop`, then finishes answers under way for a few seconds at most.
    ///
    /// Dropping the future cuts all connections.
    pub async fn serve(self, stop: CancellationToken) {
        let mut connections = JoinSet::new();
        let slots = Arc::new(Semaphore::new(MAX_CONNECTIONS));
        loop {
            let accepted = tokio::select! {
                () = stop.cancelled() => break,
                Some(_) = connections.join_next() => continue,
                accepted = accept(&self.listener, &slots) => accepted,
            };
            match accepted {
                Ok((stream, slot)) => {
                    let connection = serve_connection(stream, self.router.clone(), stop.clone());
                    connections.spawn(async move {
                        connection.await;
                        drop(slot);
                    });
                }
                Err(error) => {
                    tracing::warn!(%error, address = %self.local, "Admin endpoint cannot accept");
                    drop(timeout(ACCEPT_PAUSE, stop.cancelled()).await);
                }
            }
        }
        drop(self.listener);
        let drained =
            timeout(DRAIN_TIMEOUT, async { while connections.join_next().await.is_some() {} });
        if drained.await.is_err() {
            tracing::warn!(
                address = %self.local,
                connections = connections.len(),
                "Admin endpoint cut connections that did not end"
            );
            connections.shutdown().await;
        }
    }
}

/// Takes the next connection once there is a slot for it; the rest waits in the backlog.
async fn accept(
    listener: &TcpListener,
    slots: &Arc<Semaphore>,
) -> std::io::Result<(TcpStream, tokio::sync::OwnedSemaphorePermit)> {
    let slot = Arc::clone(slots).acquire_owned().await.expect("the semaphore is never closed");
    let (stream, _) = listener.accept().await?;
    Ok((stream, slot))
}

async fn serve_connection(stream: TcpStream, router: Router, stop: CancellationToken) {
    let service = service_fn(|request| answer(router.clone(), request));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut connection = std::pin::pin!(connection);
    let last_call = timeout(CONNECTION_LIFETIME, stop.cancelled());
    let outcome = tokio::select! {
        outcome = connection.as_mut() => outcome,
        _ = last_call => {
            connection.as_mut().graceful_shutdown();
            // What does not end by then is cut by being dropped.
            timeout(ANSWER_TIMEOUT, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "Admin connection ended early");
    }
}

/// Answers one request. A [`Router`] cannot fail: what goes wrong is a response too.
async fn answer(router: Router, request: Request<Incoming>) -> Result<Response, Infallible> {
    let request = request.map(|body| Body::new(Limited::new(body, MAX_BODY)));
    let path = request.uri().path().to_owned();
    let answer = TowerToHyperService::new(router).call(request);
    timeout(ANSWER_TIMEOUT, answer).await.unwrap_or_else(|_| {
        tracing::warn!(path, "Admin request took too long");
        Ok((StatusCode::SERVICE_UNAVAILABLE, "took too long").into_response())
    })
}
