//! The proxy to the API server, by the rules of client-go: `proxy-url` of the kubeconfig, else the
//! variables `HTTPS_PROXY`, `HTTP_PROXY` and `NO_PROXY`.

use std::{
    env,
    net::IpAddr,
    pin::Pin,
    task::{Context, Poll},
};

use http::Uri;
use hyper_util::{
    client::{
        legacy::connect::{
            HttpConnector,
            proxy::{SocksV5, Tunnel},
        },
        proxy::matcher::{Intercept, Matcher},
    },
    rt::TokioIo,
};
use kube::Config;
use tokio::net::TcpStream;
use tower::{BoxError, Service, ServiceExt};

use crate::ConnectError;

/// Environment variables, in order of precedence.
const HTTPS: [&str; 2] = ["HTTPS_PROXY", "https_proxy"];
const HTTP: [&str; 2] = ["HTTP_PROXY", "http_proxy"];
const NONE: [&str; 2] = ["NO_PROXY", "no_proxy"];

/// The proxy for the API server of `config`. Its `proxy_url` comes from the kubeconfig.
pub(crate) fn find(config: &Config) -> Result<Option<Proxy>, ConnectError> {
    let variable = |names: [&str; 2]| names.iter().find_map(|name| env::var(name).ok());
    find_with(config, [HTTPS, HTTP, NONE].map(|names| variable(names).unwrap_or_default()))
}

fn find_with(
    config: &Config,
    [https, http, none]: [String; 3],
) -> Result<Option<Proxy>, ConnectError> {
    match &config.proxy_url {
        // The kubeconfig's proxy overrules the environment.
        Some(url) => {
            let matcher = Matcher::builder().all(url.to_string()).build();
            let Some(proxy) = matcher.intercept(&config.cluster_url) else {
                return Err(ConnectError::Proxy(url.to_string()));
            };
            Proxy::new(&proxy).map(Some)
        }
        None if is_loopback(&config.cluster_url) => Ok(None),
        None => {
            let matcher = Matcher::builder().https(https).http(http).no(none).build();
            let proxy = matcher.intercept(&config.cluster_url);
            proxy.map(|proxy| Proxy::new(&proxy)).transpose()
        }
    }
}

/// Like Go, never use a proxy for the local machine.
fn is_loopback(server: &Uri) -> bool {
    let host = server.host().unwrap_or_default().trim_matches(['[', ']']);
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

/// A proxy for TCP connections.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    server: Intercept,
    kind: Kind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// An HTTP proxy, asked with CONNECT.
    Http,
    /// A SOCKS5 proxy. Server names are resolved here, or by the proxy.
    Socks { resolves: bool },
}

impl Proxy {
    fn new(server: &Intercept) -> Result<Self, ConnectError> {
        let kind = match server.uri().scheme_str() {
            Some("http") => Kind::Http,
            Some("socks5") => Kind::Socks { resolves: false },
            Some("socks5h") => Kind::Socks { resolves: true },
            _ => return Err(ConnectError::Proxy(server.uri().to_string())),
        };
        Ok(Self { server: server.clone(), kind })
    }
}

/// Connects to the server directly or through a proxy.
#[derive(Clone)]
pub(crate) enum Way {
    Straight(HttpConnector),
    Tunnel(Tunnel<HttpConnector>),
    Socks(SocksV5<HttpConnector>),
}

impl Way {
    pub(crate) fn new(tcp: HttpConnector, proxy: Option<&Proxy>) -> Self {
        let Some(Proxy { server, kind }) = proxy else { return Self::Straight(tcp) };
        let uri = server.uri().clone();
        match kind {
            Kind::Http => {
                let tunnel = Tunnel::new(uri, tcp);
                Self::Tunnel(match server.basic_auth() {
                    Some(auth) => tunnel.with_auth(auth.clone()),
                    None => tunnel,
                })
            }
            Kind::Socks { resolves } => {
                let socks = SocksV5::new(uri, tcp).local_dns(!resolves);
                Self::Socks(match server.raw_auth() {
                    Some((user, password)) => socks.with_auth(user.to_owned(), password.to_owned()),
                    None => socks,
                })
            }
        }
    }
}

impl Service<Uri> for Way {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, server: Uri) -> Self::Future {
        match self.clone() {
            Self::Straight(way) => Box::pin(async { Ok(way.oneshot(server).await?) }),
            Self::Tunnel(way) => Box::pin(async { Ok(way.oneshot(server).await?) }),
            Self::Socks(way) => Box::pin(async {
                way.oneshot(server).await.map_err(|error| error.to_string().into())
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(server: &str, proxy_url: Option<&str>, env: [&str; 3]) -> Option<(String, Kind)> {
        let mut config = Config::new(server.parse().unwrap());
        config.proxy_url = proxy_url.map(|url| url.parse().unwrap());
        let proxy = find_with(&config, env.map(str::to_owned)).unwrap()?;
        Some((proxy.server.uri().to_string(), proxy.kind))
    }

    #[test]
    fn a_proxy_is_found_as_client_go_finds_it() {
        const A: &str = "http://a:3128/";
        const B: &str = "http://b:3128/";
        let http = |url: &str| Some((url.to_owned(), Kind::Http));
        for (server, url, env, wanted) in [
            ("https://api:6443", None, ["", "", ""], None),
            ("https://api:6443", None, [A, B, ""], http(A)),
            ("http://api:8080", None, [A, B, ""], http(B)),
            ("https://api:6443", None, ["a:3128", "", ""], http(A)),
            ("https://api:6443", None, [A, "", "other,api"], None),
            ("https://x.api:6443", None, [A, "", ".api"], None),
            ("https://10.0.0.1:6443", None, [A, "", "10.0.0.0/8"], None),
            ("https://10.0.0.1:6443", None, [A, "", "10.1.0.0/16"], http(A)),
            ("https://127.0.0.1:6443", None, [A, "", ""], None),
            ("https://localhost:6443", None, [A, "", ""], None),
            ("https://[::1]:6443", None, [A, "", ""], None),
            // The kubeconfig overrules the environment for every server.
            ("https://api:6443", Some(B), [A, "", "api"], http(B)),
            ("https://127.0.0.1:6443", Some(B), ["", "", ""], http(B)),
        ] {
            assert_eq!(found(server, url, env), wanted, "{server} {url:?} {env:?}");
        }
        let (_, kind) = found("https://api", Some("socks5://a:1080"), ["", "", ""]).unwrap();
        assert_eq!(kind, Kind::Socks { resolves: false });
    }

    #[test]
    fn a_proxy_that_there_is_no_way_through_is_named() {
        let mut config = Config::new("https://api".parse().unwrap());
        config.proxy_url = Some("https://secure-proxy:3129/".parse().unwrap());
        let error = find_with(&config, Default::default()).unwrap_err().to_string();
        assert!(error.contains("https://secure-proxy:3129/"), "{error}");
    }
}
