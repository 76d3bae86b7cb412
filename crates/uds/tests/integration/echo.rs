//! A hand-made gRPC service, its client, and a server to run it.

use std::{
    convert::Infallible,
    future::Future,
    path::{Path, PathBuf},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::uri::{Authority, PathAndQuery};
use tokio::{
    sync::{Notify, mpsc},
    task::JoinSet,
};
use tokio_stream::Stream;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status, body::Body};
use tonic_prost::ProstCodec;
use wharf_uds::{Channel, ChannelOptions, ListenOptions, Listener, PeerCredentials, Routes};

/// Longer than any step takes; a test that waits for this long has failed.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);
const LARGEST: usize = 64 << 20;

#[derive(Clone, PartialEq, prost::Message)]
pub(crate) struct Message {
    #[prost(bytes = "vec", tag = "1")]
    pub payload: Vec<u8>,
    #[prost(uint64, tag = "2")]
    pub metadata: u64,
    #[prost(int32, optional, tag = "3")]
    pub pid: Option<i32>,
    #[prost(uint32, tag = "4")]
    pub uid: u32,
    #[prost(uint32, tag = "5")]
    pub gid: u32,
    #[prost(string, tag = "6")]
    pub authority: String,
}

impl Message {
    pub(crate) fn of(payload: impl Into<Vec<u8>>) -> Self {
        Self { payload: payload.into(), ..Self::default() }
    }
}

/// Events of a handler of `Wait`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Started,
    Dropped,
}

#[derive(Clone)]
pub(crate) struct Echo {
    pub(crate) release: Arc<Notify>,
    events: mpsc::UnboundedSender<Event>,
}

impl Echo {
    pub(crate) fn new() -> (Self, mpsc::UnboundedReceiver<Event>) {
        let (events, seen) = mpsc::unbounded_channel();
        (Self { release: Arc::default(), events }, seen)
    }

    async fn unary(self, method: String, request: Request<Message>) -> Result<Message, Status> {
        match method.as_str() {
            "/test.Echo/Echo" => {
                let peer = *request.extensions().get::<PeerCredentials>().expect("credentials");
                let metadata = request.metadata().get("x-big").map_or(0, |big| big.len() as u64);
                let authority = request.extensions().get::<Authority>().expect("authority");
                let authority = authority.to_string();
                let payload = request.into_inner().payload;
                let PeerCredentials { pid, uid, gid } = peer;
                Ok(Message { payload, metadata, pid, uid, gid, authority })
            }
            "/test.Echo/Panic" => panic!("asked to"),
            "/test.Echo/Wait" => {
                let _dropped = TellDrop(self.events.clone());
                // Created before the event is sent, so that no release is missed.
                let released = self.release.notified();
                self.events.send(Event::Started).unwrap();
                released.await;
                Ok(request.into_inner())
            }
            "/test.Echo/Fail" => {
                let mut status = Status::not_found("no such volume");
                let detail = "d".repeat(request.into_inner().payload.len());
                status.metadata_mut().insert("x-detail", detail.parse().unwrap());
                Err(status)
            }
            _ => Err(Status::unimplemented(method)),
        }
    }
}

struct TellDrop(mpsc::UnboundedSender<Event>);

impl Drop for TellDrop {
    fn drop(&mut self) {
        let _ = self.0.send(Event::Dropped);
    }
}

impl tonic::server::NamedService for Echo {
    const NAME: &'static str = "test.Echo";
}

impl tower::Service<http::Request<Body>> for Echo {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, mut request: http::Request<Body>) -> Self::Future {
        if let Some(authority) = request.uri().authority().cloned() {
            request.extensions_mut().insert(authority);
        }
        let (this, method) = (self.clone(), request.uri().path().to_owned());
        let codec = ProstCodec::<Message, Message>::default();
        let mut grpc = tonic::server::Grpc::new(codec)
            .max_decoding_message_size(LARGEST)
            .max_encoding_message_size(LARGEST);
        Box::pin(async move {
            if method == "/test.Echo/Repeat" {
                let repeat =
                    tower::service_fn(|request| async { Ok(Response::new(repeat(request))) });
                return Ok(grpc.server_streaming(repeat, request).await);
            }
            let unary = tower::service_fn(|request| {
                let (this, method) = (this.clone(), method.clone());
                async { this.unary(method, request).await.map(Response::new) }
            });
            Ok(grpc.unary(unary, request).await)
        })
    }
}

type Messages = Pin<Box<dyn Stream<Item = Result<Message, Status>> + Send>>;

/// Repeats the message for ever.
fn repeat(request: Request<Message>) -> Messages {
    let message = request.into_inner();
    Box::pin(tokio_stream::iter(std::iter::repeat_with(move || Ok(message.clone()))))
}

/// A server of [`Echo`] that a test can stop and wait for.
pub(crate) struct Server {
    pub(crate) path: PathBuf,
    pub(crate) echo: Echo,
    pub(crate) events: mpsc::UnboundedReceiver<Event>,
    pub(crate) stop: CancellationToken,
    task: JoinSet<Result<(), wharf_uds::ServeError>>,
}

impl Server {
    pub(crate) fn start(path: &Path) -> Self {
        Self::with(path, &ListenOptions::default(), DEADLINE)
    }

    pub(crate) fn with(path: &Path, options: &ListenOptions, drain: Duration) -> Self {
        let listener = Listener::bind(path, options).unwrap();
        let (echo, events) = Echo::new();
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(listener.serve(Routes::new(echo.clone()), drain, stop.clone()));
        Self { path: path.to_owned(), echo, events, stop, task }
    }

    pub(crate) async fn stopped(mut self) {
        self.stop.cancel();
        let ended = soon(self.task.join_next()).await;
        ended.unwrap().unwrap().unwrap();
    }

    pub(crate) async fn event(&mut self) -> Event {
        soon(self.events.recv()).await.unwrap()
    }
}

pub(crate) fn channel(path: &Path) -> Channel {
    Channel::new(path, ChannelOptions::default())
}

pub(crate) async fn call(
    channel: &Channel,
    method: &'static str,
    request: impl tonic::IntoRequest<Message>,
) -> Result<Message, Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone())
        .max_decoding_message_size(LARGEST)
        .max_encoding_message_size(LARGEST);
    grpc.ready().await?;
    let path = PathAndQuery::from_static(method);
    let codec = ProstCodec::<Message, Message>::default();
    Ok(grpc.unary(request.into_request(), path, codec).await?.into_inner())
}

pub(crate) async fn repeated(
    channel: &Channel,
    message: Message,
) -> Result<tonic::Streaming<Message>, Status> {
    let mut grpc = tonic::client::Grpc::new(channel.clone());
    grpc.ready().await?;
    let path = PathAndQuery::from_static("/test.Echo/Repeat");
    let codec = ProstCodec::<Message, Message>::default();
    Ok(grpc.server_streaming(Request::new(message), path, codec).await?.into_inner())
}

/// Waits with a time limit.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    tokio::time::timeout(DEADLINE, future).await.expect("in time")
}

pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.path().join("plugin.sock")
    }
}
