//! A runtime that comes late, goes, and comes back.

use std::sync::Arc;

use tokio::{
    sync::{Notify, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use wharf_testkit::runtime::{End, Reply, Then, message};

use crate::{
    client::{USUAL, VERSION, next, send, whole},
    fixture::{Fixture, soon},
};

const UNAVAILABLE: &str = "14";

#[tokio::test]
async fn a_runtime_that_is_not_there_yet() {
    let fixture = Fixture::new().await;
    let client = fixture.client().await;
    for method in [VERSION, "/runtime.v1.ImageService/ListImages", "/no.such.Service/Method"] {
        let answer = client.call(method, message(b"x")).await.unwrap();
        assert_eq!(answer.status(), UNAVAILABLE);
        let socket = fixture.runtime_socket();
        let text = answer.message().replace("%2F", "/");
        assert!(text.contains(socket.to_str().unwrap()), "{text}");
    }
    // It is found without a call.
    let runtime = fixture.runtime().await;
    assert_eq!(client.call(VERSION, message(b"")).await.unwrap().status(), "0");
    assert_eq!(runtime.calls().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_fail_while_the_runtime_restarts_and_then_succeed() {
    let (fixture, runtime, client) = Fixture::with_runtime().await;
    let client = Arc::new(client);
    let failures = watch::Sender::new(0);
    let stop = CancellationToken::new();
    let mut callers = JoinSet::new();
    for _ in 0..20 {
        let (client, failures, stop) = (client.clone(), failures.clone(), stop.clone());
        callers.spawn(async move {
            let mut last = String::new();
            while !stop.is_cancelled() {
                let answer = match client.call(VERSION, message(b"load")).await {
                    // It never left, so gRPC would have made it again.
                    Err(error) if error.reason() == Some(h2::Reason::REFUSED_STREAM) => continue,
                    answer => answer.unwrap(),
                };
                answer.status().clone_into(&mut last);
                match last.as_str() {
                    "0" => {}
                    UNAVAILABLE => failures.send_modify(|count| *count += 1),
                    other => panic!("status {other}: {}", answer.message()),
                }
            }
            last
        });
    }
    runtime.seen(|calls| calls.len() > 200).await;
    assert_eq!(*failures.borrow(), 0);
    runtime.kill().await;
    soon(failures.subscribe().wait_for(|count| *count > 200)).await.unwrap();
    let runtime = fixture.runtime().await;
    runtime.seen(|calls| calls.len() > 200).await;
    let failed = *failures.borrow();
    runtime.seen(|calls| calls.len() > 400).await;
    assert_eq!(*failures.borrow(), failed, "calls succeed again");
    stop.cancel();
    while let Some(last) = soon(callers.join_next()).await {
        assert_eq!(last.unwrap(), "0");
    }
}

#[tokio::test]
async fn a_stream_that_loses_its_runtime_ends_unavailable() {
    let (fixture, runtime, client) = Fixture::with_runtime().await;
    runtime.answer(|_| Reply::then(vec![message(b"event")], Then::Never));
    let (response, mut sink) = client.open(VERSION, USUAL).await;
    send(&mut sink, message(b""), true).await.unwrap();
    let mut body = soon(response).await.unwrap().into_body();
    assert_eq!(next(&mut body).await.unwrap().unwrap(), message(b"event"));
    runtime.kill().await;
    assert_eq!(next(&mut body).await.unwrap(), None);
    let trailers = soon(body.trailers()).await.unwrap().unwrap();
    assert_eq!(trailers["grpc-status"], UNAVAILABLE);
    let text = trailers["grpc-message"].to_str().unwrap().replace("%2F", "/");
    assert!(text.contains(fixture.runtime_socket().to_str().unwrap()), "{text}");
}

#[tokio::test]
async fn a_runtime_that_says_goodbye_loses_no_call() {
    let (fixture, runtime, client) = Fixture::with_runtime().await;
    let pause = Arc::new(Notify::new());
    let paused = pause.clone();
    runtime.answer(move |method| match method {
        VERSION => Reply::default(),
        _ => Reply { pause: Some(paused.clone()), ..Reply::default() },
    });
    let (response, mut sink) = client.open("/runtime.v1.RuntimeService/ExecSync", USUAL).await;
    send(&mut sink, message(b""), true).await.unwrap();
    runtime.seen(|calls| calls.first().is_some_and(|call| call.end == End::Ended)).await;
    for round in 0..20 {
        runtime.go_away();
        let answer = client.call(VERSION, message(b"")).await;
        // A call that met the goodbye on its way is refused, which callers take for "send again".
        let answer = match answer {
            Err(error) if error.reason() == Some(h2::Reason::REFUSED_STREAM) => {
                client.call(VERSION, message(b"")).await
            }
            answer => answer,
        };
        assert_eq!(answer.unwrap().status(), "0", "round {round}");
    }
    // One that was in flight all the while ends well, on its old connection.
    pause.notify_one();
    assert_eq!(whole(response).await.unwrap().status(), "0");
    fixture.connected(true).await;
}
