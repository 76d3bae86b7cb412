//! The record of one call: its method and its end, without its content.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use h2::Reason;
use http::{
    HeaderMap, Response, Uri,
    uri::{Authority, PathAndQuery, Scheme},
};
use http_body::{Body, Frame, SizeHint};
use tokio::time::Instant;
use tonic::{Code, Status};

use crate::metrics::{RpcMetrics, code_name};

/// The header or trailer with a call's code.
pub(crate) const GRPC_STATUS: &str = "grpc-status";

/// How often an unsent request is tried on another connection.
pub(crate) const RESENDS: usize = 2;

/// The user agent of clients of this crate.
pub(crate) const AGENT: &str = concat!("wharf/", env!("CARGO_PKG_VERSION"));

/// Timers tick in milliseconds: a call given up this shortly before its deadline exceeded it.
const TICK: Duration = Duration::from_millis(5);

/// Logs and measures a call when it ends. A record that is dropped earlier logs a cancelled call.
pub(crate) struct CallRecord {
    side: &'static str,
    method: String,
    started: Instant,
    timeout: Option<Duration>,
    metrics: Option<RpcMetrics>,
    ended: bool,
}

impl CallRecord {
    /// `timeout` is that of the request's `grpc-timeout` header.
    pub(crate) fn start(
        side: &'static str,
        method: &str,
        timeout: Option<Duration>,
        metrics: Option<RpcMetrics>,
    ) -> Self {
        let (method, started) = (method.to_owned(), Instant::now());
        Self { side, method, started, timeout, metrics, ended: false }
    }

    /// Ends the record of a call that failed without a response.
    pub(crate) fn fail(mut self, status: &Status) {
        self.end(status.code());
    }

    /// Ends the record with `code`.
    pub(crate) fn finish(mut self, code: Code) {
        self.end(code);
    }

    /// Ends the record when the response ends.
    pub(crate) fn follow<B>(mut self, response: Response<B>) -> Response<RecordedBody<B>> {
        // A response without a message has its status in the headers.
        if let Some(code) = grpc_status(response.headers()) {
            self.end(code);
        }
        response.map(|body| RecordedBody { body, record: self })
    }

    fn end(&mut self, code: Code) {
        if std::mem::replace(&mut self.ended, true) {
            return;
        }
        let duration = self.started.elapsed();
        tracing::debug!(
            side = self.side,
            method = self.method,
            code = code_name(code),
            ?duration,
            "call finished"
        );
        if let Some(metrics) = &self.metrics {
            metrics.observe(&self.method, code, duration);
        }
    }
}

impl Drop for CallRecord {
    fn drop(&mut self) {
        let elapsed = self.started.elapsed() + TICK;
        let overdue = self.timeout.is_some_and(|timeout| elapsed >= timeout);
        self.end(if overdue { Code::DeadlineExceeded } else { Code::Cancelled });
    }
}

/// A response body that ends the record of its call.
pub(crate) struct RecordedBody<B> {
    body: B,
    record: CallRecord,
}

impl<B> Body for RecordedBody<B>
where
    B: Body<Data = Bytes, Error = Status> + Unpin,
{
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let this = self.get_mut();
        let polled = Pin::new(&mut this.body).poll_frame(cx);
        match &polled {
            Poll::Ready(Some(Ok(frame))) => {
                if let Some(trailers) = frame.trailers_ref() {
                    this.record.end(grpc_status(trailers).unwrap_or(Code::Unknown));
                }
            }
            Poll::Ready(Some(Err(status))) => this.record.end(status.code()),
            Poll::Ready(None) => this.record.end(Code::Unknown),
            Poll::Pending => {}
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// The code of a call that was reset, as the gRPC protocol maps HTTP/2 errors.
pub(crate) fn reset_status(reason: Reason) -> Code {
    match reason {
        Reason::REFUSED_STREAM => Code::Unavailable,
        Reason::CANCEL => Code::Cancelled,
        Reason::ENHANCE_YOUR_CALM => Code::ResourceExhausted,
        Reason::INADEQUATE_SECURITY => Code::PermissionDenied,
        _ => Code::Internal,
    }
}

/// The code that headers or trailers carry, if any.
pub(crate) fn grpc_status(headers: &HeaderMap) -> Option<Code> {
    headers.get(GRPC_STATUS).map(|value| Code::from_bytes(value.as_bytes()))
}

/// Adds the scheme, authority and path that HTTP/2 needs, where the caller left them out.
pub(crate) fn complete(uri: &mut Uri) {
    let mut parts = std::mem::take(uri).into_parts();
    parts.scheme.get_or_insert(Scheme::HTTP);
    parts.authority.get_or_insert(Authority::from_static("localhost"));
    parts.path_and_query.get_or_insert(PathAndQuery::from_static("/"));
    *uri = Uri::from_parts(parts).expect("scheme, authority and path are all set");
}
