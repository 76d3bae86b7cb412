use std::{
    convert::Infallible,
    net::SocketAddr,
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    time::Duration,
};

use axum::{
    Router,
    body::Body,
    http::{Request, StatusCode},
    response::{IntoResponse, Response},
};
use http_body_util::Limited;
use hyper::{
    body::Incoming,
    server::conn::http1,
    service::{Service, service_fn},
};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// How long a client may take to send its request line and headers, and how long it may idle
/// between requests.
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);

/// Limit for making an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(60);

/// Limit for the lifetime of a connection, so that a slow reader does not hold a slot.
const CONNECTION_LIFETIME: Duration = Duration::from_secs(300);

/// How long running answers may take once the endpoint stops.
const DRAIN_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause when a connection cannot be accepted, for lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Connections at a time, from the kubelet, Prometheus and a few people.
const MAX_CONNECTIONS: usize = 256;

/// The largest request body, in bytes.
const MAX_BODY: usize = 64 * 1024;

/// An admin endpoint that listens.
#[derive(Debug)]
pub struct BoundAdmin {
    listener: TcpListener,
    local: SocketAddr,
    router: Router,
}

impl BoundAdmin {
    pub(super) fn new(listener: TcpListener, local: SocketAddr, router: Router) -> Self {
        Self { listener, local, router }
    }

    /// Its address, with the port that the system chose.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// A duplicate of the socket, for another process to serve as well.
    pub fn socket(&self) -> std::io::Result<OwnedFd> {
        self.listener.as_fd().try_clone_to_owned()
    }

    /// Serves until `stop`, then waits a few seconds at most for running answers.
    ///
    /// Dropping the future closes all connections.
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
                    tracing::warn!(%error, address = %self.local, "failed to accept admin connection, retrying");
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
                "closed admin connections that did not end"
            );
            connections.shutdown().await;
        }
    }
}

/// Accepts the next connection once there is a slot; others wait in the backlog.
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
            // Dropped, and so closed, when the time is over.
            timeout(ANSWER_TIMEOUT, connection).await.unwrap_or(Ok(()))
        }
    };
    if let Err(error) = outcome {
        tracing::debug!(%error, "lost admin connection");
    }
}

/// Answers one request. A [`Router`] cannot fail: errors are responses, too.
async fn answer(router: Router, request: Request<Incoming>) -> Result<Response, Infallible> {
    let request = request.map(|body| Body::new(Limited::new(body, MAX_BODY)));
    let path = request.uri().path().to_owned();
    let answer = TowerToHyperService::new(router).call(request);
    timeout(ANSWER_TIMEOUT, answer).await.unwrap_or_else(|_| {
        tracing::warn!(path, "admin request timed out");
        Ok((StatusCode::SERVICE_UNAVAILABLE, "took too long").into_response())
    })
}
