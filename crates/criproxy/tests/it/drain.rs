//! How a proxy stops.

use std::{sync::Arc, time::Duration};

use tokio::{sync::Notify, time::Instant};
use wharf_testkit::runtime::{End, Reply, Then, message};

use crate::{
    client::{USUAL, VERSION, send, whole},
    fixture::{DRAIN, Fixture, soon},
};

#[tokio::test]
async fn calls_in_flight_finish() {
    let (mut fixture, runtime, client) = Fixture::with_runtime().await;
    let pause = Arc::new(Notify::new());
    let paused = pause.clone();
    runtime.answer(move |_| Reply { pause: Some(paused.clone()), ..Reply::default() });
    let (response, mut sink) = client.open(VERSION, USUAL).await;
    send(&mut sink, message(b"q"), true).await.unwrap();
    runtime.seen(|calls| calls.first().is_some_and(|call| call.end == End::Ended)).await;
    let started = Instant::now();
    fixture.stop.cancel();
    let error = soon(async {
        // The path goes at once, for another proxy to take.
        while fixture.socket().exists() {
            tokio::task::yield_now().await;
        }
        tokio::net::UnixStream::connect(fixture.socket()).await.unwrap_err()
    });
    assert_eq!(error.await.kind(), std::io::ErrorKind::NotFound);
    pause.notify_one();
    assert_eq!(whole(response).await.unwrap().status(), "0");
    soon(fixture.serving.join_next()).await.unwrap().unwrap().unwrap();
    assert!(started.elapsed() < DRAIN / 2, "{:?}", started.elapsed());
}

#[tokio::test]
async fn streams_without_end_are_cut_when_the_time_is_up() {
    let mut fixture = Fixture::draining(Duration::from_millis(100)).await;
    let runtime = fixture.runtime().await;
    let client = fixture.client().await;
    runtime.answer(|_| Reply::then(vec![message(b"x")], Then::Never));
    let (response, mut sink) = client.open(VERSION, USUAL).await;
    send(&mut sink, message(b"q"), true).await.unwrap();
    let _body = soon(response).await.unwrap().into_body();
    fixture.stop.cancel();
    soon(fixture.serving.join_next()).await.unwrap().unwrap().unwrap();
    // The runtime is told, too: by a reset, or by a connection that closes.
    let told = [End::Reset(h2::Reason::CANCEL.into()), End::Lost];
    runtime.seen(|calls| told.contains(&calls[0].end)).await;
}

#[tokio::test]
async fn a_stream_of_events_keeps_no_stop_waiting() {
    let (mut fixture, runtime, client) = Fixture::with_runtime().await;
    runtime.answer(|_| Reply::then(vec![message(b"x")], Then::Never));
    let (response, mut sink) =
        client.open("/runtime.v1.RuntimeService/GetContainerEvents", USUAL).await;
    send(&mut sink, message(b""), true).await.unwrap();
    let _body = soon(response).await.unwrap().into_body();
    let started = Instant::now();
    fixture.stop.cancel();
    soon(fixture.serving.join_next()).await.unwrap().unwrap().unwrap();
    assert!(started.elapsed() < DRAIN / 2, "{:?}", started.elapsed());
}
