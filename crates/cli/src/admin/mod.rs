//! The admin endpoint: health checks and metrics over HTTP.
//!
//! It listens on every node of a cluster, often on all interfaces, for whoever can reach it. So it
//! is stingy: HTTP/1 only, few connections at once, a deadline for request headers and for each
//! answer, small bodies, and a stop that does not wait for slow readers.

mod address;
mod metrics;
mod process;
mod serve;

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::StatusCode;
use axum::http::header::ACCEPT;
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, any, get};
use prometheus_client::registry::Registry;
use thiserror::Error;
use tokio::net::TcpListener;
use tokio::task::spawn_blocking;

pub use process::process_metrics;
pub use serve::BoundAdmin;

/// What the endpoint serves, before it listens.
#[derive(Clone, Debug)]
pub struct Admin {
    router: Router,
    flag: &'static str,
}

impl Default for Admin {
    fn default() -> Self {
        Admin { router: Router::new(), flag: "http-endpoint" }
    }
}

/// Why a check does not answer `ok`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFailure {
    /// The HTTP status to answer with.
    pub status: u16,
    /// The body, for people.
    pub text: String,
}

impl CheckFailure {
    /// A failure that is answered with `status` and `text`.
    pub fn new(status: u16, text: impl Into<String>) -> Self {
        CheckFailure { status, text: text.into() }
    }
}

/// Why the endpoint does not listen.
#[derive(Debug, Error)]
pub enum AdminError {
    /// The address is not one that Go's `net.Listen` would take.
    #[error("--{flag}: bad address {address:?}: {problem}; expected host:port or :port")]
    Address {
        /// The flag that the address came from.
        flag: &'static str,
        /// The address as given.
        address: String,
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The system refused to listen there.
    #[error("--{flag}: cannot listen on {address}")]
    Listen {
        /// The flag that the address came from.
        flag: &'static str,
        /// The address as given.
        address: String,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl Admin {
    /// An endpoint that serves nothing yet.
    pub fn new() -> Self {
        Admin::default()
    }

    /// The flag that the address comes from, to be named in errors; `http-endpoint` unless told.
    #[must_use]
    pub fn flag(mut self, name: &'static str) -> Self {
        self.flag = name;
        self
    }

    /// Serves a registry's metrics at `path`, in OpenMetrics or Prometheus text as the reader asks.
    #[must_use]
    pub fn metrics(self, path: &str, registry: Arc<Registry>) -> Self {
        let answer = move |request: Request| {
            let (registry, accept) = (registry.clone(), request.headers().get(ACCEPT).cloned());
            // A collector may ask a disk.
            let answer = spawn_blocking(move || metrics::answer(&registry, accept.as_ref()));
            async { answer.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR) }
        };
        self.route(path, get(answer))
    }

    /// Serves a check at `path`: 200 with `ok`, or what the failure says. A check that takes longer
    /// than a minute is answered with 503.
    #[must_use]
    pub fn check<F, R>(self, path: &str, check: F) -> Self
    where
        F: Fn() -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Result<(), CheckFailure>> + Send,
    {
        let answer = move || {
            let outcome = check();
            async move { outcome.await.map(|()| "ok") }
        };
        // Probes may be written with any method; upstream answers them all.
        self.route(path, any(answer))
    }

    /// Serves whatever else at `path`.
    ///
    /// # Panics
    ///
    /// When `path` does not begin with `/` or is taken.
    #[must_use]
    pub fn route(mut self, path: &str, methods: MethodRouter) -> Self {
        self.router = self.router.route(path, methods);
        self
    }

    /// Serves an explanation under `/debug/pprof/`, for `--enable-pprof`: Go's profiles are made by
    /// Go's runtime, and a made-up answer would mislead the tool that reads it.
    #[must_use]
    pub fn pprof(self) -> Self {
        let answer = || async { (StatusCode::NOT_IMPLEMENTED, NO_PPROF) };
        self.route("/debug/pprof/", any(answer)).route("/debug/pprof/{*profile}", any(answer))
    }

    /// Listens on an address as Go programs write it: `:8080`, `127.0.0.1:0`, `[::1]:80`.
    pub async fn bind(self, address: &str) -> Result<BoundAdmin, AdminError> {
        let Admin { router, flag } = self;
        let hosts = address::parse(address).map_err(|problem| {
            let address = address.to_owned();
            AdminError::Address { flag, address, problem }
        })?;
        let listen = |source| AdminError::Listen { flag, address: address.to_owned(), source };
        let mut refused = None;
        for host in hosts {
            match TcpListener::bind(host).await {
                Ok(listener) => {
                    let local = listener.local_addr().map_err(listen)?;
                    return Ok(BoundAdmin::new(listener, local, router));
                }
                // The first refusal is of the address that was meant; later ones are fallbacks.
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(listen(refused.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into())))
    }

    /// Listens on a socket that another process has bound.
    ///
    /// Needs to be called inside a tokio runtime.
    pub fn adopt(self, listener: std::net::TcpListener) -> Result<BoundAdmin, AdminError> {
        let Admin { router, flag } = self;
        let adopted = || {
            let local = listener.local_addr()?;
            listener.set_nonblocking(true)?;
            Ok((TcpListener::from_std(listener)?, local))
        };
        let (listener, local) = adopted().map_err(|source| {
            let address = "the socket that was passed to this process".to_owned();
            AdminError::Listen { flag, address, source }
        })?;
        Ok(BoundAdmin::new(listener, local, router))
    }
}

/// What [`Admin::pprof`] answers, and what the help of `--enable-pprof` should say.
pub const NO_PPROF: &str = "Go profiles do not exist here: this program is not written in Go.\n\
    Use `perf record -p PID` or `perf top -p PID` for CPU time, and the process_* metrics for \
    memory and file descriptors.\n";

impl fmt::Display for CheckFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.status)
    }
}

impl std::error::Error for CheckFailure {}

impl IntoResponse for CheckFailure {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, self.text).into_response()
    }
}
