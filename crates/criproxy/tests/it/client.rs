//! A client on h2 itself.

use std::path::Path;

use bytes::Bytes;
use h2::{
    Reason, RecvStream, SendStream,
    client::{Builder, ResponseFuture, SendRequest},
};
use http::{HeaderMap, HeaderName, HeaderValue, Request};
use tokio::{net::UnixStream, task::JoinSet};

use crate::fixture::soon;

pub(crate) const VERSION: &str = "/runtime.v1.RuntimeService/Version";

pub(crate) struct Client {
    pub(crate) sender: SendRequest<Bytes>,
    connection: JoinSet<()>,
}

/// An answer, whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) http_status: u16,
    pub(crate) headers: HeaderMap,
    pub(crate) data: Vec<u8>,
    pub(crate) trailers: Option<HeaderMap>,
}

impl Answer {
    /// The status, from wherever it is.
    pub(crate) fn status(&self) -> &str {
        self.field("grpc-status").expect("an answer has a status")
    }

    pub(crate) fn message(&self) -> &str {
        self.field("grpc-message").unwrap_or_default()
    }

    fn field(&self, name: &str) -> Option<&str> {
        let trailing = self.trailers.as_ref().and_then(|trailers| trailers.get(name));
        trailing.or_else(|| self.headers.get(name)).map(|value| value.to_str().unwrap())
    }
}

impl Client {
    pub(crate) async fn dial(path: &Path) -> Self {
        let stream = UnixStream::connect(path).await.unwrap();
        let (sender, dispatch) = Builder::new()
            .initial_max_send_streams(10_000)
            .max_header_list_size(16 << 20)
            .initial_window_size(1 << 20)
            .initial_connection_window_size(8 << 20)
            .max_concurrent_reset_streams(10_000)
            .handshake(stream)
            .await
            .unwrap();
        let mut connection = JoinSet::new();
        connection.spawn(async move {
            let _ = dispatch.await;
        });
        Self { sender, connection }
    }

    /// Vanishes, as a killed process does.
    pub(crate) async fn vanish(mut self) {
        self.connection.shutdown().await;
    }

    /// Starts a call; its request is still to be sent.
    pub(crate) async fn open(
        &self,
        method: &str,
        fields: &[(&str, &[u8])],
    ) -> (ResponseFuture, SendStream<Bytes>) {
        let mut request = Request::post(format!("http://localhost{method}")).body(()).unwrap();
        *request.headers_mut() = headers(fields);
        let mut sender = soon(self.sender.clone().ready()).await.unwrap();
        sender.send_request(request, false).unwrap()
    }

    /// A call from start to end.
    pub(crate) async fn call(&self, method: &str, data: Bytes) -> Result<Answer, h2::Error> {
        let (response, mut sink) = self.open(method, USUAL).await;
        // An answer may come first, and is what counts.
        let _ = send(&mut sink, data, true).await;
        whole(response).await
    }
}

/// What grpc-go sends with each call.
pub(crate) const USUAL: &[(&str, &[u8])] = &[
    ("content-type", b"application/grpc"),
    ("user-agent", b"grpc-go/1.83.1"),
    ("te", b"trailers"),
    ("grpc-timeout", b"119999995u"),
];

pub(crate) fn headers(fields: &[(&str, &[u8])]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
        map.append(name, HeaderValue::from_bytes(value).unwrap());
    }
    map
}

pub(crate) async fn send(
    sink: &mut SendStream<Bytes>,
    mut data: Bytes,
    ends: bool,
) -> Result<(), h2::Error> {
    while !data.is_empty() {
        sink.reserve_capacity(data.len());
        let room = soon(std::future::poll_fn(|cx| sink.poll_capacity(cx))).await;
        let room = room.unwrap_or_else(|| Err(Reason::CANCEL.into()))?;
        sink.send_data(data.split_to(room.min(data.len())), false)?;
    }
    if ends { sink.send_data(Bytes::new(), true) } else { Ok(()) }
}

/// Reads an answer to its end.
pub(crate) async fn whole(response: ResponseFuture) -> Result<Answer, h2::Error> {
    let (head, mut body) = soon(response).await?.into_parts();
    let mut data = Vec::new();
    while let Some(piece) = next(&mut body).await? {
        data.extend_from_slice(&piece);
    }
    let trailers = soon(body.trailers()).await?;
    Ok(Answer { http_status: head.status.as_u16(), headers: head.headers, data, trailers })
}

pub(crate) async fn next(body: &mut RecvStream) -> Result<Option<Bytes>, h2::Error> {
    let data = soon(body.data()).await.transpose()?;
    if let Some(data) = &data {
        body.flow_control().release_capacity(data.len())?;
    }
    Ok(data)
}
