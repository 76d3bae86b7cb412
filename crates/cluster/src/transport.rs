//! Connections to the API server: one of HTTP/2 for all watches of a process, and a few of HTTP/1.1
//! for requests.
//!
//! A watch lasts, and over HTTP/1.1 each would hold a connection, with memory on both sides.
//! Requests are short and take turns on connections, which costs a Go server less than concurrent
//! streams of one connection: with HTTP/2 for them too, as in client-go, kube-apiserver and etcd
//! took a quarter more processor time for a claim. A cancelled HTTP/1.1 request closes its
//! connection, so one that died unnoticed fails only one request.

use std::{sync::Arc, time::Duration};

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnector, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Builder, Client, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Config,
    client::{Body, ConfigExt},
};
use tokio::{sync::Semaphore, time::timeout};
use tower::{BoxError, ServiceBuilder, ServiceExt, service_fn, util::BoxService};

use crate::{
    ConnectError,
    proxy::{self, Proxy, Way},
};

/// Limit for a connection, its handshake included.
const CONNECT: Duration = Duration::from_secs(5);
/// Concurrent requests, and so about the number of connections for them.
const REQUESTS: usize = 64;
/// How long an idle connection is kept. The API server keeps it for 90 s.
const KEPT: Duration = Duration::from_secs(30);
/// Limit until an answer begins. The API server gives up after 60 s.
const ANSWER: Duration = Duration::from_secs(70);
/// Ping a connection after this long without data, as client-go does.
const IDLE: Duration = Duration::from_secs(30);
/// Limit for the answer to a ping.
const PING: Duration = Duration::from_secs(15);
/// The HTTP/2 window of one list or watch.
const STREAM_WINDOW: u32 = 1 << 20;
/// The HTTP/2 window of all of them.
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Sends requests to the API server.
pub(crate) type Transport = BoxService<Request<Body>, Response<Incoming>, BoxError>;

/// The transport to the API server of `config`.
pub(crate) fn transport(config: &Config) -> Result<Transport, ConnectError> {
    let proxy = proxy::find(config)?;
    let watches = client(config, proxy.as_ref(), Carries::Watches)?;
    let requests = client(config, proxy.as_ref(), Carries::Requests)?;
    let free = Arc::new(Semaphore::new(REQUESTS));
    let send = service_fn(move |request: Request<Body>| {
        let (watches, requests, free) = (watches.clone(), requests.clone(), free.clone());
        async move {
            if is_watch(&request) {
                return watches.request(request).await.map_err(BoxError::from);
            }
            let _permit = free.acquire().await?;
            let answer = timeout(ANSWER, requests.request(request)).await;
            Ok(answer.map_err(|_| format!("the API server gave no answer within {ANSWER:?}"))??)
        }
    });
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .service(send);
    Ok(service.boxed())
}

pub(crate) fn is_watch(request: &Request<Body>) -> bool {
    let query = request.uri().query().unwrap_or_default();
    query.split('&').any(|pair| matches!(pair, "watch=true" | "watch=1"))
}

#[derive(Clone, Copy)]
enum Carries {
    Watches,
    Requests,
}

type Connector = TimeoutConnector<HttpsConnector<Way>>;

fn client(
    config: &Config,
    proxy: Option<&Proxy>,
    carries: Carries,
) -> Result<Client<Connector, Body>, ConnectError> {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    // Otherwise a request on a connection that died unnoticed would wait for a quarter of an hour.
    tcp.set_keepalive(Some(IDLE));
    tcp.set_keepalive_interval(Some(PING));
    tcp.set_tcp_user_timeout(Some(IDLE + PING));
    let way = Way::new(tcp, proxy);
    let tls = HttpsConnectorBuilder::new();
    let mut tls = tls.with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let resolved = name.clone().try_into();
        let resolved = resolved.map_err(|_| ConnectError::ServerName(name.clone()))?;
        tls = tls.with_server_name_resolver(FixedServerNameResolver::new(resolved));
    }
    let mut connector = TimeoutConnector::new(match carries {
        Carries::Watches => tls.enable_all_versions().wrap_connector(way),
        Carries::Requests => tls.enable_http1().wrap_connector(way),
    });
    connector.set_connect_timeout(Some(CONNECT));
    Ok(Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .pool_timer(TokioTimer::new())
        .pool_idle_timeout(KEPT)
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(IDLE)
        .http2_keep_alive_timeout(PING)
        .http2_keep_alive_while_idle(true)
        .build(connector))
}
