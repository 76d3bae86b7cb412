//! A client with little cost: one connection of h2, messages as bytes.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use h2::client::{Builder, ResponseFuture, SendRequest};
use http::{HeaderMap, Request};
use tokio::{
    net::UnixStream,
    task::JoinSet,
    time::{Instant, interval, timeout},
};

use super::server::{CONNECTION_WINDOW, STREAM_WINDOW};

/// How long a socket may take to appear, and an answer to arrive.
const PATIENCE: Duration = Duration::from_secs(20);
/// Time between two looks for the socket of a starting process.
const LOOK: Duration = Duration::from_millis(1);

/// A connection. It closes when this is dropped.
pub(super) struct Client {
    requests: SendRequest<Bytes>,
    _connection: JoinSet<()>,
}

/// A running call.
pub(super) struct Call(ResponseFuture);

impl Client {
    /// Connects once the socket has a listener.
    pub(super) async fn dial(socket: &Path) -> Result<Self> {
        let deadline = Instant::now() + PATIENCE;
        let mut look = interval(LOOK);
        loop {
            look.tick().await;
            match Self::connect(socket).await {
                Err(error) if Instant::now() > deadline => return Err(error),
                Err(_) => {}
                connected => return connected,
            }
        }
    }

    async fn connect(socket: &Path) -> Result<Self> {
        let stream = UnixStream::connect(socket).await;
        let stream = stream.with_context(|| socket.display().to_string())?;
        let (requests, connection) = Builder::new()
            .enable_push(false)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .handshake(stream)
            .await?;
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            // The next call reports its error.
            let _ = connection.await;
        });
        Ok(Self { requests, _connection: tasks })
    }

    /// Sends a framed message and waits for the answer.
    pub(super) async fn call(&self, method: &str, message: &Bytes) -> Result<Bytes> {
        self.send(method, message).await?.answer().await
    }

    /// Sends a message. Messages leave in the order of these calls.
    pub(super) async fn send(&self, method: &str, message: &Bytes) -> Result<Call> {
        let mut requests = self.requests.clone().ready().await?;
        let request = Request::post(format!("http://localhost{method}"))
            .header("content-type", "application/grpc")
            .header("user-agent", "grpc-go/1.80.0")
            .header("te", "trailers")
            .header("grpc-timeout", "120S")
            .body(())?;
        let (response, mut body) = requests.send_request(request, false)?;
        body.send_data(message.clone(), true)?;
        Ok(Call(response))
    }
}

impl Call {
    /// The answer's message, without its frame.
    pub(super) async fn answer(self) -> Result<Bytes> {
        timeout(PATIENCE, self.collect()).await.context("no answer")?
    }

    async fn collect(self) -> Result<Bytes> {
        let (head, mut source) = self.0.await?.into_parts();
        let mut body = Vec::new();
        while let Some(data) = source.data().await {
            let data = data?;
            source.flow_control().release_capacity(data.len())?;
            if let Some(prefix) = data.first_chunk::<5>().filter(|_| body.is_empty()) {
                body.reserve(
                    5 + u32::from_be_bytes([prefix[1], prefix[2], prefix[3], prefix[4]]) as usize,
                );
            }
            body.extend_from_slice(&data);
        }
        let trailers = source.trailers().await?;
        check(trailers.as_ref().unwrap_or(&head.headers))?;
        ensure!(body.len() >= 5, "an answer without a message");
        Ok(Bytes::from(body).slice(5..))
    }
}

fn check(headers: &HeaderMap) -> Result<()> {
    let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    match text("grpc-status") {
        "0" => Ok(()),
        code => bail!("status {code}: {}", text("grpc-message")),
    }
}
