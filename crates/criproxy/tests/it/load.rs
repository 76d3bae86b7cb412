//! Many at a time, and slow readers.

use std::sync::Arc;

use bytes::Bytes;
use tokio::{sync::Notify, task::JoinSet};
use wharf_testkit::runtime::{Reply, Runtime, Then, message};

use crate::{
    client::{Client, USUAL, VERSION, next, send},
    fixture::{Fixture, soon},
};

const STREAMS: usize = 1000;

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_streams_at_a_time() {
    let (_bench, runtime, client) = Fixture::with_runtime().await;
    runtime.answer(|_| Reply::then(Vec::new(), Then::Echo));
    let mut open = Vec::new();
    for number in 0..STREAMS {
        let (response, mut sink) = client.open(VERSION, USUAL).await;
        send(&mut sink, message(&number.to_be_bytes()), false).await.unwrap();
        let mut body = soon(response).await.unwrap().into_body();
        let echo = next(&mut body).await.unwrap().unwrap();
        assert_eq!(echo, message(&number.to_be_bytes()));
        open.push((sink, body));
    }
    // All of them are open now, and each still moves by itself.
    for (number, (mut sink, mut body)) in open.into_iter().enumerate().rev() {
        send(&mut sink, message(format!("end of {number}").as_bytes()), true).await.unwrap();
        let echo = next(&mut body).await.unwrap().unwrap();
        assert_eq!(echo, message(format!("end of {number}").as_bytes()));
        assert_eq!(next(&mut body).await.unwrap(), None);
        assert_eq!(soon(body.trailers()).await.unwrap().unwrap()["grpc-status"], "0");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_cancelled_calls_harms_no_other() {
    let (_bench, runtime, client) = Fixture::with_runtime().await;
    let client = Arc::new(client);
    runtime.answer(|method| match method {
        VERSION => Reply::default(),
        _ => Reply::then(Vec::new(), Then::Never),
    });
    let mut calls = JoinSet::new();
    for _ in 0..STREAMS {
        let client = client.clone();
        calls.spawn(async move {
            let (response, mut sink) = client.open("/runtime.v1.RuntimeService/Hang", USUAL).await;
            sink.send_reset(h2::Reason::CANCEL);
            drop(response);
            client.call(VERSION, message(b"")).await.unwrap().status().to_owned()
        });
    }
    while let Some(status) = calls.join_next().await {
        assert_eq!(status.unwrap(), "0");
    }
}

#[tokio::test]
async fn a_reader_that_stops_stops_its_writer() {
    const PIECE: usize = 1 << 20;
    const PIECES: usize = 64;
    let (_bench, runtime, client) = Fixture::with_runtime().await;
    let sent = Arc::new(Notify::new());
    let (data, pause) = (vec![Bytes::from(vec![7; PIECE]); PIECES], sent.clone());
    runtime.answer(move |method| match method {
        VERSION => Reply::default(),
        _ => Reply { pause: Some(pause.clone()), ..Reply::of(data.clone()) },
    });
    sent.notify_one();
    let (response, mut sink) = client.open("/runtime.v1.RuntimeService/Flood", USUAL).await;
    send(&mut sink, message(b""), true).await.unwrap();
    let mut body = soon(response).await.unwrap().into_body();
    // Nothing is read; others go on.
    for _ in 0..50 {
        assert_eq!(client.call(VERSION, message(b"")).await.unwrap().status(), "0");
    }
    // The runtime has not come to its end, which took what `sent` holds.
    soon(sent.notified()).await;
    sent.notify_one();
    let mut length = 0;
    while let Some(data) = next(&mut body).await.unwrap() {
        assert!(data.iter().all(|byte| *byte == 7));
        length += data.len();
    }
    assert_eq!(length, PIECE * PIECES);
    assert_eq!(soon(body.trailers()).await.unwrap().unwrap()["grpc-status"], "0");
}

/// All clients share one connection to the runtime, until long calls have all of its streams.
#[tokio::test]
async fn pulls_on_all_streams_of_a_runtime_block_no_other_call() {
    const PULLS: usize = 5;
    let fixture = Fixture::new().await;
    let runtime = Runtime::with_streams(&fixture.runtime_socket(), Some(PULLS as u32));
    fixture.connected(true).await;
    let client = fixture.client().await;
    runtime.answer(|method| match method {
        VERSION => Reply::default(),
        _ => Reply::then(Vec::new(), Then::Never),
    });
    let mut pulls = Vec::new();
    for _ in 0..PULLS {
        let (response, mut sink) = client.open("/runtime.v1.ImageService/PullImage", USUAL).await;
        send(&mut sink, message(b""), true).await.unwrap();
        pulls.push((response, sink));
    }
    runtime.seen(|calls| calls.len() == PULLS).await;
    assert_eq!(client.call(VERSION, message(b"")).await.unwrap().status(), "0");
}

/// All clients share one connection to the runtime. Those that stall must not use up what it lets
/// in.
#[tokio::test(flavor = "multi_thread")]
async fn readers_that_stop_stop_nobody_else() {
    const STALLED: usize = 16;
    /// The window of a stream, here and at the proxy.
    const WINDOW: usize = 1 << 20;
    let (fixture, runtime, client) = Fixture::with_runtime().await;
    runtime.answer(|_| Reply::of(vec![Bytes::from(vec![7; WINDOW]); 4]));
    let mut stalled = Vec::new();
    for _ in 0..STALLED {
        let reader = Client::dial(&fixture.socket()).await;
        let (response, mut sink) = reader.open("/runtime.v1.RuntimeService/Flood", USUAL).await;
        send(&mut sink, message(b""), true).await.unwrap();
        let mut body = soon(response).await.unwrap().into_body();
        // Its window is never given back: the proxy has no room left once all of it came.
        let mut length = 0;
        while length < WINDOW {
            length += soon(body.data()).await.unwrap().unwrap().len();
        }
        stalled.push((reader, sink, body));
    }
    for _ in 0..8 {
        let answer = client.call(VERSION, message(b"")).await.unwrap();
        assert_eq!((answer.status(), answer.data.len()), ("0", 4 * WINDOW));
    }
}
