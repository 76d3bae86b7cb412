//! Hook servers that do what a test tells them.

use std::{
    convert::Infallible,
    future::Future,
    path::Path,
    pin::Pin,
    sync::{Arc, Mutex},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use h2::Reason;
use http::{HeaderMap, Request, Response};
use tokio::{net::UnixListener, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Status, body::Body};
use tonic_prost::ProstCodec;
use wharf_proto::hooks::{ContainerResourceHookRequest, ContainerResourceHookResponse};
use wharf_uds::{ListenOptions, Listener, Routes, ServeError};

use super::fixture::soon;

pub(super) type Answer = Result<ContainerResourceHookResponse, Status>;
type Answering = Pin<Box<dyn Future<Output = Answer> + Send>>;
type Script = Arc<dyn Fn(Asked) -> Answering + Send + Sync>;

/// What a server was asked.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) method: String,
    pub(super) headers: HeaderMap,
    pub(super) message: ContainerResourceHookRequest,
}

/// A server that answers by a script, and remembers what it was asked.
pub(super) struct HookServer {
    asked: Arc<Mutex<Vec<Asked>>>,
    stop: CancellationToken,
    task: JoinSet<Result<(), ServeError>>,
}

impl HookServer {
    pub(super) fn start<F>(path: &Path, script: impl Fn(Asked) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Answer> + Send + 'static,
    {
        let script: Script = Arc::new(move |asked| Box::pin(script(asked)));
        let asked: Arc<Mutex<Vec<Asked>>> = Arc::default();
        let service = Service { asked: asked.clone(), script };
        let listener = Listener::bind(path, &ListenOptions::default()).unwrap();
        let stop = CancellationToken::new();
        let mut task = JoinSet::new();
        task.spawn(listener.serve(Routes::new(service), Duration::ZERO, stop.clone()));
        Self { asked, stop, task }
    }

    /// A server that changes nothing.
    pub(super) fn idle(path: &Path) -> Self {
        Self::start(path, |_| async { Ok(ContainerResourceHookResponse::default()) })
    }

    /// A server that always fails.
    pub(super) fn failing(path: &Path, code: Code, text: &'static str) -> Self {
        Self::start(path, move |_| async move { Err(Status::new(code, text)) })
    }

    /// A server that never answers.
    pub(super) fn hanging(path: &Path) -> Self {
        Self::start(path, |_| std::future::pending())
    }

    pub(super) fn asked(&self) -> Vec<Asked> {
        self.asked.lock().unwrap().clone()
    }

    pub(super) async fn stop(mut self) {
        self.stop.cancel();
        soon(self.task.join_next()).await.unwrap().unwrap().unwrap();
    }
}

#[derive(Clone)]
struct Service {
    asked: Arc<Mutex<Vec<Asked>>>,
    script: Script,
}

impl tonic::server::NamedService for Service {
    const NAME: &'static str = "runtime.v1alpha1.RuntimeHookService";
}

impl tower::Service<Request<Body>> for Service {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let (service, method) = (self.clone(), request.uri().path().to_owned());
        let answer = move |request: tonic::Request<ContainerResourceHookRequest>| {
            let (metadata, _, message) = request.into_parts();
            let asked = Asked { method: method.clone(), headers: metadata.into_headers(), message };
            service.asked.lock().unwrap().push(asked.clone());
            let answering = (service.script)(asked);
            async { answering.await.map(tonic::Response::new) }
        };
        Box::pin(async move {
            let codec = ProstCodec::default();
            Ok(tonic::server::Grpc::new(codec).unary(tower::service_fn(answer), request).await)
        })
    }
}

/// How a raw server ends its answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum End {
    Trailers,
    Reset,
    /// The process is gone.
    Gone,
}

/// A server on h2 itself, that answers every call with these bytes.
pub(super) fn raw(path: &Path, bytes: Bytes, end: End) -> JoinSet<()> {
    raw_with(UnixListener::bind(path).unwrap(), bytes, end)
}

/// The same on a socket that listens already, with answers that change nothing.
pub(super) fn raw_on(listener: UnixListener) -> JoinSet<()> {
    raw_with(listener, Bytes::from_static(&[0; 5]), End::Trailers)
}

fn raw_with(listener: UnixListener, bytes: Bytes, end: End) -> JoinSet<()> {
    let mut task = JoinSet::new();
    task.spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Closed at once by a proxy that does not trust us.
            let Ok(mut connection) = h2::server::handshake(stream).await else { continue };
            while let Some(Ok((_, mut reply))) = connection.accept().await {
                let head = Response::builder().header("content-type", "application/grpc");
                let mut sink = reply.send_response(head.body(()).unwrap(), false).unwrap();
                sink.send_data(bytes.clone(), false).unwrap();
                match end {
                    End::Trailers => {
                        let mut trailers = HeaderMap::new();
                        trailers.insert("grpc-status", "0".parse().unwrap());
                        sink.send_trailers(trailers).unwrap();
                    }
                    End::Reset => sink.send_reset(Reason::INTERNAL_ERROR),
                    End::Gone => break,
                }
            }
        }
    });
    task
}
