use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::Request;
use kube::client::Body;
use tokio::{
    sync::Mutex,
    time::{Instant, sleep_until},
};
use tower::{BoxError, Layer, Service};

use crate::{failure::wait_for_token, retry_after::send};

/// A client's own limit on its requests, set by an operator.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    /// Requests per second in the long run.
    per_second: f64,
    /// Requests that may follow each other at once after an idle time.
    burst: u32,
}

impl Throttle {
    /// A limit; `None` if the numbers mean no limit, or one that cannot be kept.
    pub fn new(per_second: f64, burst: u32) -> Option<Self> {
        let usable = per_second.is_finite() && per_second > 0.0 && burst > 0;
        usable.then_some(Self { per_second, burst })
    }

    fn bucket(self) -> Bucket {
        let interval = Duration::from_secs_f64(1.0 / self.per_second.max(1e-6));
        Bucket { interval, burst: self.burst, full: Instant::now() }
    }
}

impl<S> Layer<S> for Throttle {
    type Service = Throttled<S>;

    fn layer(&self, inner: S) -> Throttled<S> {
        let inner = Arc::new(Mutex::new(inner));
        Throttled { inner, work: self.bucket(), events: self.bucket() }
    }
}

/// A service whose requests wait for a token. Events have a bucket of their own: other requests
/// never wait for them.
pub struct Throttled<S> {
    /// Locked only until it has accepted a request.
    inner: Arc<Mutex<S>>,
    work: Bucket,
    events: Bucket,
}

impl<S> Service<Request<Body>> for Throttled<S>
where
    S: Service<Request<Body>, Error = BoxError> + Send + 'static,
    S::Future: Send,
{
    type Response = S::Response;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let bucket = match is_event(&request) {
            true => &mut self.events,
            false => &mut self.work,
        };
        let (inner, from) = (Arc::clone(&self.inner), bucket.take());
        Box::pin(async move {
            wait_for_token(sleep_until(from)).await;
            send(&inner, request).await
        })
    }
}

/// Whether a request is about events: `/api/v1/namespaces/<namespace>/events[/<name>]`.
fn is_event<B>(request: &Request<B>) -> bool {
    let mut parts = request.uri().path().split('/').skip_while(|part| *part != "namespaces");
    parts.nth(2) == Some("events")
}

/// A token bucket: one token per request, and one comes back per interval.
struct Bucket {
    interval: Duration,
    burst: u32,
    /// When the bucket is full again, if no token is taken before.
    full: Instant,
}

impl Bucket {
    /// Takes a token, and returns when it may be used.
    fn take(&mut self) -> Instant {
        let now = Instant::now();
        self.full = self.full.max(now) + self.interval;
        self.full.checked_sub(self.interval * self.burst).map_or(now, |from| from.max(now))
    }
}

#[cfg(test)]
mod tests {
    use tower::service_fn;

    use super::*;
    use crate::{ApiFailure, REQUEST_TIMEOUT, bounded};

    fn service() -> impl Service<Request<Body>, Response = Instant, Error = BoxError> {
        let throttle = Throttle::new(5.0, 10).unwrap();
        throttle.layer(service_fn(|_| async { Ok::<_, BoxError>(Instant::now()) }))
    }

    fn request(path: &str) -> Request<Body> {
        Request::get(path).body(Body::empty()).unwrap()
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let (mut service, began) = (service(), Instant::now());
        let calls: Vec<_> = (0..15).map(|_| service.call(request("/api"))).collect();
        let events = "/api/v1/namespaces/n/events";
        let event = service.call(request(events)).await.unwrap();
        assert!(event.duration_since(began).is_zero(), "an event waited for other requests");
        let mut times = Vec::new();
        for call in calls {
            times.push(call.await.unwrap().duration_since(began).as_millis());
        }
        assert_eq!(times[..10], [0; 10]);
        for (nth, time) in times[10..].iter().enumerate() {
            let due = 200 * (nth as u128 + 1);
            assert!((due..due + 5).contains(time), "{times:?}");
        }
        // An idle time fills the bucket up to its size.
        let mut bucket = Throttle::new(5.0, 10).unwrap().bucket();
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(bucket.take() <= Instant::now());
        assert_eq!(bucket.full, Instant::now() + bucket.interval);
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_a_turn_is_no_part_of_a_requests_time() {
        let mut service = service();
        let calls: Vec<_> = (0..300).map(|_| service.call(request("/api"))).collect();
        for call in calls {
            let call = async move { call.await.map_err(kube::Error::Service) };
            bounded("it", call).await.unwrap();
        }
        // The time of a request that has a token is still bounded.
        let throttle = Throttle::new(1.0, 1).unwrap();
        let mut silent = throttle.layer(service_fn(|_| std::future::pending()));
        let [_, late] = [silent.call(request("/api")), silent.call(request("/api"))];
        let began = Instant::now();
        let late = async move { late.await.map_err(kube::Error::Service) };
        let failed: Result<(), _> = bounded("it", late).await;
        assert!(matches!(failed, Err(ApiFailure::Unreachable { .. })), "{failed:?}");
        assert_eq!(began.elapsed(), REQUEST_TIMEOUT + Duration::from_secs(1));
    }

    #[test]
    fn events_are_told_from_work() {
        for (path, expected) in [
            ("/api/v1/namespaces/default/events", true),
            ("/api/v1/namespaces/default/events/a.1", true),
            ("/api/v1/namespaces/events/persistentvolumeclaims/events", false),
            ("/api/v1/persistentvolumes/events", false),
        ] {
            assert_eq!(is_event(&request(path)), expected, "{path}");
        }
    }

    #[test]
    fn numbers_without_a_meaning_are_no_limit() {
        for (per_second, burst) in [(0.0, 10), (-1.0, 10), (f64::NAN, 1), (5.0, 0)] {
            assert_eq!(Throttle::new(per_second, burst), None);
        }
    }
}
