//! The admin endpoint: health checks and metrics over HTTP.
//!
//! It listens on every node of a cluster, often on all interfaces. Therefore it speaks HTTP/1 only,
//! has limits for connections, bodies, and the time of request headers and answers, and its stop
//! does not wait for slow readers.

mod address;
mod metrics;
mod process;
mod serve;

use std::{fmt, future::Future, io, sync::Arc};

use axum::{
    Router,
    extract::Request,
    http::{StatusCode, header::ACCEPT},
    response::{IntoResponse, Response},
    routing::{MethodRouter, any, get},
};
use prometheus_client::registry::Registry;
use thiserror::Error;
use tokio::{net::TcpListener, task::spawn_blocking};

pub use process::process_metrics;
pub use serve::BoundAdmin;

/// An admin endpoint that does not listen yet.
#[derive(Clone, Debug)]
pub struct Admin {
    router: Router,
    flag: &'static str,
}

impl Default for Admin {
    fn default() -> Self {
        Self { router: Router::new(), flag: "http-endpoint" }
    }
}

/// A failed check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CheckFailure {
    /// The HTTP status of the answer.
    pub status: u16,
    /// The body of the answer.
    pub text: String,
}

impl CheckFailure {
    /// A failure with this answer.
    pub fn new(status: u16, text: impl Into<String>) -> Self {
        Self { status, text: text.into() }
    }
}

/// Why the endpoint cannot listen.
#[derive(Debug, Error)]
pub enum AdminError {
    /// Go's `net.Listen` would reject the address.
    #[error("--{flag}: bad address {address:?}: {problem}; expected host:port or :port")]
    Address {
        /// The flag with the address.
        flag: &'static str,
        /// The address.
        address: String,
        /// Its fault.
        problem: &'static str,
    },
    /// The socket cannot be bound.
    #[error("--{flag}: cannot listen on {address}")]
    Listen {
        /// The flag with the address.
        flag: &'static str,
        /// The address.
        address: String,
        /// The cause.
        #[source]
        source: io::Error,
    },
}

impl Admin {
    /// An endpoint without paths.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the flag that errors name, `http-endpoint` by default.
    #[must_use]
    pub fn flag(mut self, name: &'static str) -> Self {
        self.flag = name;
        self
    }

    /// Serves a registry's metrics at `path`, as OpenMetrics or Prometheus text by the `Accept`
    /// header.
    #[must_use]
    pub fn metrics(self, path: &str, registry: Arc<Registry>) -> Self {
        let answer = move |request: Request| {
            let (registry, accept) = (registry.clone(), request.headers().get(ACCEPT).cloned());
            // A collector may read from a disk.
            let answer = spawn_blocking(move || metrics::answer(&registry, accept.as_ref()));
            async { answer.await.map_err(|_| StatusCode::INTERNAL_SERVER_ERROR) }
        };
        self.route(path, get(answer))
    }

    /// Serves a check at `path`: 200 with `ok`, or the status and text of the failure. A check that
    /// takes longer than a minute is answered with 503.
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
        // Probes may use any method; upstream answers all of them.
        self.route(path, any(answer))
    }

    /// Serves `methods` at `path`.
    ///
    /// # Panics
    ///
    /// If `path` does not begin with `/` or is taken.
    #[must_use]
    pub fn route(mut self, path: &str, methods: MethodRouter) -> Self {
        self.router = self.router.route(path, methods);
        self
    }

    /// Serves an explanation under `/debug/pprof/`, for `--enable-pprof`: only Go's runtime makes
    /// Go profiles, and a made-up answer would mislead the tool that reads it.
    #[must_use]
    pub fn pprof(self) -> Self {
        let answer = || async { (StatusCode::NOT_IMPLEMENTED, NO_PPROF) };
        self.route("/debug/pprof/", any(answer)).route("/debug/pprof/{*profile}", any(answer))
    }

    /// Listens on an address in Go's notation: `:8080`, `127.0.0.1:0`, `[::1]:80`.
    pub async fn bind(self, address: &str) -> Result<BoundAdmin, AdminError> {
        let Self { router, flag } = self;
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
                // The first address is the intended one, so its error is returned; the others are
                // fallbacks.
                Err(error) => refused = refused.or(Some(error)),
            }
        }
        Err(listen(refused.unwrap_or_else(|| io::ErrorKind::AddrNotAvailable.into())))
    }

    /// Listens on a socket that another process has bound.
    ///
    /// Needs to be called inside a tokio runtime.
    pub fn adopt(self, listener: std::net::TcpListener) -> Result<BoundAdmin, AdminError> {
        let Self { router, flag } = self;
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

/// The answer of [`Admin::pprof`], also for the help of `--enable-pprof`.
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
