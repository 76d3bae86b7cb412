use std::{
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep, sleep_until};
use tower::{Layer, Service};

/// A client's own limit on its requests, for operators who ask for one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Throttle {
    /// Requests per second in the long run.
    per_second: f64,
    /// Requests that may follow each other at once after a rest.
    burst: u32,
}

impl Throttle {
    /// A limit; `None` where the numbers mean no limit or none that can be kept.
    pub fn new(per_second: f64, burst: u32) -> Option<Self> {
        let usable = per_second.is_finite() && per_second > 0.0 && burst > 0;
        usable.then_some(Self { per_second, burst })
    }
}

impl<S> Layer<S> for Throttle {
    type Service = Throttled<S>;

    fn layer(&self, inner: S) -> Throttled<S> {
        let interval = Duration::from_secs_f64(1.0 / self.per_second.max(1e-6));
        let bucket = Bucket { interval, burst: self.burst, full: Instant::now() };
        Throttled { inner, bucket, turn: None }
    }
}

/// A service that is ready when it is the next request's turn.
pub struct Throttled<S> {
    inner: S,
    bucket: Bucket,
    turn: Option<Pin<Box<Sleep>>>,
}

impl<S: Service<R>, R> Service<R> for Throttled<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), S::Error>> {
        let bucket = &mut self.bucket;
        let turn = self.turn.get_or_insert_with(|| Box::pin(sleep_until(bucket.take())));
        ready!(turn.as_mut().poll(context));
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: R) -> S::Future {
        self.turn = None;
        self.inner.call(request)
    }
}

/// Tokens, one per request, that come back one per interval.
struct Bucket {
    interval: Duration,
    burst: u32,
    /// When all tokens are back, if none is taken before.
    full: Instant,
}

impl Bucket {
    /// Takes a token, and says from when on it may be used.
    fn take(&mut self) -> Instant {
        let now = Instant::now();
        self.full = self.full.max(now) + self.interval;
        self.full.checked_sub(self.interval * self.burst).map_or(now, |turn| turn.max(now))
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use tower::service_fn;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_burst_goes_at_once_and_the_rest_at_the_rate() {
        let throttle = Throttle::new(5.0, 10).unwrap();
        let mut service = throttle.layer(service_fn(|()| async { Ok::<_, Infallible>(()) }));
        let began = Instant::now();
        let mut times = Vec::new();
        for _ in 0..15 {
            std::future::poll_fn(|context| service.poll_ready(context)).await.unwrap();
            service.call(()).await.unwrap();
            times.push(began.elapsed().as_millis());
        }
        assert_eq!(times[..10], [0; 10]);
        for (nth, time) in times[10..].iter().enumerate() {
            let due = 200 * (nth as u128 + 1);
            assert!((due..due + 5).contains(time), "{times:?}");
        }
        // A rest fills the bucket, and not more than that.
        tokio::time::advance(Duration::from_secs(60)).await;
        assert!(service.bucket.take() <= Instant::now());
        assert_eq!(service.bucket.full, Instant::now() + service.bucket.interval);
    }

    #[test]
    fn numbers_without_a_meaning_are_no_limit() {
        for (per_second, burst) in [(0.0, 10), (-1.0, 10), (f64::NAN, 1), (5.0, 0)] {
            assert_eq!(Throttle::new(per_second, burst), None);
        }
    }
}
