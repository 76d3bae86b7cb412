//! Stops a leader's writes before another replica can lead.

use http::{Method, Request};
use kube::{Client, client::Body};
use tokio::{sync::watch, time::Instant};
use tower::{BoxError, service_fn};

/// A write was not sent: its deadline has passed, and no election moves it any more.
#[derive(Debug, thiserror::Error)]
#[error("not sent: the time in which this process may write is over")]
struct TooLate;

/// Wraps a client so that writes are sent before this deadline only. Later writes wait until an
/// election moves the deadline. A frozen leader that runs again must not write once another replica
/// may lead: its requests could run before its timers.
pub fn writing_until(client: &Client, until: watch::Receiver<Instant>) -> Client {
    let (inner, namespace) = (client.clone(), client.default_namespace().to_owned());
    let service = service_fn(move |request: Request<Body>| {
        let (inner, mut until) = (inner.clone(), until.clone());
        async move {
            if request.method() != Method::GET {
                let allowed = until.wait_for(|until| *until > Instant::now()).await.map(drop);
                allowed.map_err(|_| TooLate)?;
            }
            inner.send(request).await.map_err(BoxError::from)
        }
    });
    Client::new(service, namespace)
}

#[cfg(test)]
mod tests {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicUsize, Ordering},
        },
        time::Duration,
    };

    use http::Response;
    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn writes_wait_until_they_are_allowed_and_reads_do_not() {
        let sent = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&sent);
        let server = service_fn(move |_: Request<Body>| {
            count.fetch_add(1, Ordering::SeqCst);
            std::future::ready(Ok::<_, BoxError>(Response::new(Body::empty())))
        });
        let second = Duration::from_secs(1);
        let (until, allowed) = watch::channel(Instant::now() + second);
        let client = writing_until(&Client::new(server, "default"), allowed);
        let ask = async |method| {
            let request = Request::builder().method(method).uri("/").body(Body::empty()).unwrap();
            timeout(second, client.send(request)).await.map(|answer| answer.is_ok())
        };
        assert_eq!(ask(Method::PATCH).await, Ok(true));
        tokio::time::advance(second).await;
        assert!(ask(Method::PATCH).await.is_err(), "a write was sent too late");
        assert_eq!(ask(Method::GET).await, Ok(true));
        assert_eq!(sent.load(Ordering::SeqCst), 2);
        until.send_replace(Instant::now() + second);
        assert_eq!(ask(Method::POST).await, Ok(true));
        tokio::time::advance(second).await;
        drop(until);
        assert_eq!(ask(Method::DELETE).await, Ok(false));
    }
}
