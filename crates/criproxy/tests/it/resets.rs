//! Who gives up is understood at the other end.

use std::sync::Arc;

use bytes::Bytes;
use h2::Reason;
use tokio::sync::Notify;
use wharf_testkit::runtime::{End, Reply, Then, message};

use crate::{
    client::{USUAL, VERSION, next, send},
    fixture::{Fixture, soon},
};

const EVENTS: &str = "/runtime.v1.RuntimeService/GetContainerEvents";

#[tokio::test]
async fn a_stream_without_end_flows_until_it_is_cancelled() {
    let (_bench, runtime, client) = Fixture::with_runtime().await;
    let events = vec![message(b"one"), message(b"two")];
    runtime.answer(move |_| Reply::then(events.clone(), Then::Never));
    let (response, mut sink) = client.open(EVENTS, USUAL).await;
    send(&mut sink, message(b""), true).await.unwrap();
    let mut body = soon(response).await.unwrap().into_body();
    let mut data = Vec::new();
    while data.len() < 16 {
        data.extend_from_slice(&next(&mut body).await.unwrap().unwrap());
    }
    assert_eq!(data, [message(b"one"), message(b"two")].concat());
    sink.send_reset(Reason::CANCEL);
    let cancelled = End::Reset(Reason::CANCEL.into());
    runtime.seen(|calls| calls[0].end == cancelled).await;
}

#[tokio::test]
async fn the_callers_code_reaches_the_runtime_at_every_stage() {
    let (_bench, runtime, client) = Fixture::with_runtime().await;
    let stages: [(Reply, bool); 3] = [
        // While the request is being sent.
        (Reply::default(), false),
        // While the runtime thinks.
        (Reply { delay: std::time::Duration::from_secs(600), ..Reply::default() }, true),
        // While it answers.
        (Reply::then(vec![message(b"x")], Then::Never), true),
    ];
    for (index, (reply, ends)) in stages.into_iter().enumerate() {
        runtime.answer(move |_| reply.clone());
        let (_response, mut sink) = client.open(VERSION, USUAL).await;
        send(&mut sink, message(b"part"), ends).await.unwrap();
        let sent = message(b"part");
        runtime.seen(|calls| calls.get(index).is_some_and(|call| call.data == sent)).await;
        sink.send_reset(Reason::ENHANCE_YOUR_CALM);
        let reset = End::Reset(Reason::ENHANCE_YOUR_CALM.into());
        runtime.seen(|calls| calls[index].end == reset).await;
    }
}

#[tokio::test]
async fn a_caller_that_vanishes_has_cancelled() {
    let (fixture, runtime, client) = Fixture::with_runtime().await;
    runtime.answer(|_| Reply::then(vec![message(b"x")], Then::Never));
    let (_response, mut sink) = client.open(EVENTS, USUAL).await;
    send(&mut sink, message(b""), true).await.unwrap();
    runtime.seen(|calls| calls.first().is_some_and(|call| call.end == End::Ended)).await;
    client.vanish().await;
    runtime.seen(|calls| calls[0].end == End::Reset(Reason::CANCEL.into())).await;
    // The others do not notice.
    runtime.answer(|_| Reply::default());
    let answer = fixture.client().await.call(VERSION, message(b"")).await.unwrap();
    assert_eq!(answer.status(), "0");
}

#[tokio::test]
async fn the_runtimes_code_reaches_the_caller() {
    let (_bench, runtime, client) = Fixture::with_runtime().await;
    for reason in [Reason::CANCEL, Reason::REFUSED_STREAM, Reason::INTERNAL_ERROR, 0x77.into()] {
        runtime.answer(move |_| Reply::then(Vec::new(), Then::Reset(reason)));
        let error = client.call(VERSION, message(b"")).await.unwrap_err();
        assert!(error.is_reset() && error.is_remote(), "{error:?}");
        assert_eq!(error.reason(), Some(reason));
    }
}

#[tokio::test]
async fn the_runtimes_code_reaches_the_caller_after_data() {
    let (_bench, runtime, client) = Fixture::with_runtime().await;
    let pause = Arc::new(Notify::new());
    let paused = pause.clone();
    runtime.answer(move |_| Reply {
        pause: Some(paused.clone()),
        ..Reply::then(vec![message(b"event")], Then::Reset(Reason::PROTOCOL_ERROR))
    });
    let (response, mut sink) = client.open(EVENTS, USUAL).await;
    send(&mut sink, Bytes::new(), true).await.unwrap();
    let mut body = soon(response).await.unwrap().into_body();
    assert_eq!(next(&mut body).await.unwrap().unwrap(), message(b"event"));
    pause.notify_one();
    let error = next(&mut body).await.unwrap_err();
    assert_eq!((error.is_remote(), error.reason()), (true, Some(Reason::PROTOCOL_ERROR)));
}
