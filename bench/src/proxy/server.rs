//! A server with little cost: h2, messages as bytes.

use std::{
    future::Future,
    io,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::{Context, Result};
use bytes::{Bytes, BytesMut};
use h2::{
    RecvStream,
    server::{Builder, SendResponse},
};
use http::{HeaderMap, HeaderValue, Request, Response};
use tokio::{
    net::{UnixListener, UnixStream},
    task::JoinSet,
};
use tonic::Code;

/// Windows of a Go server that has estimated the connection's bandwidth. Frames have the smallest
/// size limit of HTTP/2.
pub(super) const STREAM_WINDOW: u32 = 1 << 20;
pub(super) const CONNECTION_WINDOW: u32 = 8 << 20;

/// Answers calls.
pub(super) trait Service: Send + Sync + 'static {
    /// The answer's framed message. Calls are numbered in order of arrival.
    fn answer(
        &self,
        number: u64,
        method: &str,
        message: Bytes,
    ) -> impl Future<Output = Result<Bytes, Code>> + Send;
}

/// Serves at `socket`, replacing an existing one, until it is dropped.
pub(super) async fn serve(socket: &Path, service: Arc<impl Service>) -> Result<()> {
    match std::fs::remove_file(socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let listener = UnixListener::bind(socket);
    let listener = listener.with_context(|| socket.display().to_string())?;
    let arrivals = Arc::new(AtomicU64::new(0));
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        connections.spawn(connection(stream, service.clone(), arrivals.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn connection(stream: UnixStream, service: Arc<impl Service>, arrivals: Arc<AtomicU64>) {
    let handshake = Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .handshake::<_, Bytes>(stream);
    let Ok(mut connection) = handshake.await else { return };
    let mut calls = JoinSet::new();
    while let Some(Ok((request, reply))) = connection.accept().await {
        let number = arrivals.fetch_add(1, Ordering::Relaxed);
        let service = service.clone();
        calls.spawn(async move {
            // Fails if the client has left.
            let _ = answer(number, request, reply, &*service).await;
        });
        while calls.try_join_next().is_some() {}
    }
}

async fn answer(
    number: u64,
    request: Request<RecvStream>,
    mut reply: SendResponse<Bytes>,
    service: &impl Service,
) -> Result<(), h2::Error> {
    let (head, mut source) = request.into_parts();
    let mut body = BytesMut::new();
    while let Some(data) = source.data().await {
        let data = data?;
        source.flow_control().release_capacity(data.len())?;
        body.extend_from_slice(&data);
    }
    let message = body.freeze().slice(5..);
    let answer = service.answer(number, head.uri.path(), message).await;
    let mut response = Response::new(());
    let headers = response.headers_mut();
    headers.insert("content-type", HeaderValue::from_static("application/grpc"));
    let mut sink = reply.send_response(response, false)?;
    let code = match answer {
        Ok(message) => {
            sink.send_data(message, false)?;
            Code::Ok
        }
        Err(code) => code,
    };
    let mut trailers = HeaderMap::new();
    trailers.insert("grpc-status", HeaderValue::from(i32::from(code)));
    sink.send_trailers(trailers)
}
