//! The way to the API server: one connection of HTTP/2 for all watches and requests of a process, as client-go has it.
//! kube's own client speaks HTTP/1.1, where each request that is under way needs a connection, and so a handshake and the
//! memory for it on both sides.

use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper_rustls::{FixedServerNameResolver, HttpsConnectorBuilder};
use hyper_timeout::TimeoutConnector;
use hyper_util::{
    client::legacy::{Builder, connect::HttpConnector},
    rt::{TokioExecutor, TokioTimer},
};
use kube::{
    Config,
    client::{Body, ConfigExt},
};
use tower::{BoxError, ServiceBuilder, ServiceExt, util::BoxService};

use crate::ConnectError;

/// Of a connection, its handshake included.
const CONNECT: Duration = Duration::from_secs(5);
/// A connection on which nothing came for so long is asked whether it is alive, as client-go does it.
const IDLE: Duration = Duration::from_secs(30);
/// How long the answer may take.
const PING: Duration = Duration::from_secs(15);
/// What may be under way of one list or watch.
const STREAM_WINDOW: u32 = 1 << 20;
/// What may be under way of all of them.
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Carries requests to the API server.
pub(crate) type Transport = BoxService<Request<Body>, Response<Incoming>, BoxError>;

/// The way to the API server of `config`.
pub(crate) fn transport(config: &Config) -> Result<Transport, ConnectError> {
    if let Some(proxy) = &config.proxy_url {
        return Err(ConnectError::Proxy(proxy.to_string()));
    }
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    let tls = HttpsConnectorBuilder::new();
    let mut tls = tls.with_tls_config(config.rustls_client_config()?).https_or_http();
    if let Some(name) = &config.tls_server_name {
        let resolved = name.clone().try_into();
        let resolved = resolved.map_err(|_| ConnectError::ServerName(name.clone()))?;
        tls = tls.with_server_name_resolver(FixedServerNameResolver::new(resolved));
    }
    let mut connector = TimeoutConnector::new(tls.enable_all_versions().wrap_connector(tcp));
    connector.set_connect_timeout(Some(CONNECT));
    let client = Builder::new(TokioExecutor::new())
        .timer(TokioTimer::new())
        .http2_initial_stream_window_size(STREAM_WINDOW)
        .http2_initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(IDLE)
        .http2_keep_alive_timeout(PING)
        .http2_keep_alive_while_idle(true)
        .build(connector);
    let service = ServiceBuilder::new()
        .layer(config.base_uri_layer())
        .option_layer(config.auth_layer()?)
        .layer(config.extra_headers_layer()?)
        .map_err(BoxError::from)
        .service(client);
    Ok(service.map_err(BoxError::from).boxed())
}
