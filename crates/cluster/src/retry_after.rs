//! Retries requests that an overloaded API server answers with `Retry-After`.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response, StatusCode, header::RETRY_AFTER};
use kube::client::Body;
use tokio::{sync::Mutex, time::sleep};
use tower::{BoxError, Layer, Service, ServiceExt};

/// The most attempts for a request: client-go's figure.
const ATTEMPTS: usize = 11;

/// A layer that sends requests again for as long as the server asks for it, within the caller's
/// deadline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RetryAfterLayer;

impl<S> Layer<S> for RetryAfterLayer {
    type Service = RetryAfter<S>;

    fn layer(&self, inner: S) -> RetryAfter<S> {
        RetryAfter(Arc::new(Mutex::new(inner)))
    }
}

/// Locked only until it has accepted a request.
pub(crate) struct RetryAfter<S>(Arc<Mutex<S>>);

impl<S, B> Service<Request<Body>> for RetryAfter<S>
where
    S: Service<Request<Body>, Response = Response<B>, Error = BoxError> + Send + 'static,
    S::Future: Send,
    B: Send,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let inner = Arc::clone(&self.0);
        Box::pin(async move {
            let mut request = request;
            for _ in 1..ATTEMPTS {
                let again = copy(&request);
                let answer = send(&inner, request).await?;
                match (again, pause(&answer)) {
                    (Some(again), Some(pause)) => {
                        tracing::debug!(uri = %again.uri(), status = %answer.status(), ?pause, "retrying: API server asks to wait");
                        drop(answer);
                        sleep(pause).await;
                        request = again;
                    }
                    _ => return Ok(answer),
                }
            }
            send(&inner, request).await
        })
    }
}

/// Passes a request to the service and waits for the answer.
pub(crate) async fn send<S: Service<Request<Body>>>(
    inner: &Mutex<S>,
    request: Request<Body>,
) -> Result<S::Response, S::Error> {
    let sent = inner.lock().await.ready().await?.call(request);
    sent.await
}

/// The pause that the server asks for.
fn pause<B>(answer: &Response<B>) -> Option<Duration> {
    let status = answer.status();
    if status != StatusCode::TOO_MANY_REQUESTS && !status.is_server_error() {
        return None;
    }
    let seconds = answer.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds))
}

/// A copy of the request; `None` if its body is a stream.
fn copy(request: &Request<Body>) -> Option<Request<Body>> {
    let mut copy = Request::new(request.body().try_clone()?);
    *copy.method_mut() = request.method().clone();
    *copy.uri_mut() = request.uri().clone();
    *copy.headers_mut() = request.headers().clone();
    *copy.extensions_mut() = request.extensions().clone();
    Some(copy)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use tokio::time::Instant;
    use tower::service_fn;

    use super::*;

    /// Answers so many requests with a status and `Retry-After`, and later ones with success.
    async fn asked(times: usize, status: u16, after: Option<&'static str>) -> (u16, usize, u64) {
        let count = Arc::new(AtomicUsize::new(0));
        let answer = {
            let count = Arc::clone(&count);
            move |request: Request<Body>| {
                assert_eq!(request.uri().path(), "/api/v1/nodes");
                let turn = count.fetch_add(1, Ordering::SeqCst);
                let mut answer = Response::builder();
                if turn < times {
                    answer = answer.status(status);
                    answer = match after {
                        Some(after) => answer.header(RETRY_AFTER, after),
                        None => answer,
                    };
                }
                std::future::ready(answer.body(()).map_err(BoxError::from))
            }
        };
        let mut service = RetryAfterLayer.layer(service_fn(answer));
        let request = Request::post("/api/v1/nodes").body(Body::from(b"{}".to_vec())).unwrap();
        let began = Instant::now();
        let answer = service.ready().await.unwrap().call(request).await.unwrap();
        let sent = count.load(Ordering::SeqCst);
        (answer.status().as_u16(), sent, began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_comes_back_when_the_server_says_so() {
        assert_eq!(asked(2, 429, Some("3")).await, (200, 3, 6));
        assert_eq!(asked(1, 503, Some("1")).await, (200, 2, 1));
        assert_eq!(asked(usize::MAX, 429, Some("1")).await, (429, ATTEMPTS, 10));
    }

    #[tokio::test(start_paused = true)]
    async fn what_the_server_does_not_ask_for_is_left_to_the_caller() {
        assert_eq!(asked(1, 429, None).await, (429, 1, 0));
        assert_eq!(asked(1, 500, None).await, (500, 1, 0));
        assert_eq!(asked(1, 409, Some("1")).await, (409, 1, 0));
        assert_eq!(asked(1, 429, Some("Wed, 21 Oct 2015 07:28:00 GMT")).await, (429, 1, 0));
    }
}
