//! The server: limits, panics, deadlines, stop.

use std::time::Duration;

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{UnixListener, UnixStream},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use wharf_uds::{ListenOptions, Listener, timed};

use crate::{
    echo::{DEADLINE, Event, Folder, Message, Server, call, channel, soon},
    raw,
};

#[tokio::test]
async fn tells_who_calls() {
    let folder = Folder::new();
    let server = Server::start(&folder.socket());
    let reply = call(&channel(&server.path), "/test.Echo/Echo", Message::of("")).await.unwrap();
    assert_eq!(reply.pid, Some(std::process::id() as i32));
    assert_eq!(reply.uid, rustix::process::geteuid().as_raw());
    assert_eq!(reply.gid, rustix::process::getegid().as_raw());
    server.stopped().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn serves_1000_calls_at_once() {
    const CALLS: usize = 1000;
    let folder = Folder::new();
    let mut server = Server::start(&folder.socket());
    let channel = channel(&server.path);
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        let channel = channel.clone();
        calls.spawn(async move {
            let payload = number.to_string().into_bytes();
            let reply = call(&channel, "/test.Echo/Wait", Message::of(payload.clone())).await;
            assert_eq!(reply.unwrap().payload, payload);
        });
    }
    for _ in 0..CALLS {
        assert_eq!(server.event().await, Event::Started);
    }
    server.echo.release.notify_waiters();
    soon(async {
        while let Some(ended) = calls.join_next().await {
            ended.unwrap();
        }
    })
    .await;
    server.stopped().await;
}

#[tokio::test]
async fn passes_16_mib_both_ways() {
    let folder = Folder::new();
    let server = Server::start(&folder.socket());
    let payload: Vec<u8> = (0..16 << 20).map(|at| (at % 251) as u8).collect();
    let reply = call(&channel(&server.path), "/test.Echo/Echo", Message::of(payload.clone())).await;
    assert!(reply.unwrap().payload == payload);
    server.stopped().await;
}

#[tokio::test]
async fn answers_with_1_mb_of_metadata() {
    const SIZE: usize = 1_000_000;
    let folder = Folder::new();
    let server = Server::start(&folder.socket());
    let channel = channel(&server.path);

    let status = call(&channel, "/test.Echo/Fail", Message::of(vec![0; SIZE])).await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::NotFound, "no such volume"));
    assert_eq!(status.metadata().get("x-detail").unwrap().len(), SIZE);
    server.stopped().await;
}

#[tokio::test]
async fn a_panic_fails_only_its_own_call() {
    let folder = Folder::new();
    let mut server = Server::start(&folder.socket());
    let channel = channel(&server.path);
    let waiting = {
        let channel = channel.clone();
        let mut calls = JoinSet::new();
        calls.spawn(async move { call(&channel, "/test.Echo/Wait", Message::of("a")).await });
        calls
    };
    assert_eq!(server.event().await, Event::Started);
    let status = call(&channel, "/test.Echo/Panic", Message::of("")).await.unwrap_err();
    assert_eq!(status.code(), Code::Internal);
    assert!(status.message().contains("/test.Echo/Panic"), "{status}");
    assert!(!status.message().contains("asked to"), "the text of a panic stays here");

    server.echo.release.notify_waiters();
    let replies = soon(waiting.join_all()).await;
    assert_eq!(replies[0].as_ref().unwrap().payload, b"a");
    server.stopped().await;
}

#[tokio::test]
async fn a_dropped_call_is_dropped_at_the_server() {
    let folder = Folder::new();
    let mut server = Server::start(&folder.socket());
    let channel = channel(&server.path);
    let mut calls = JoinSet::new();
    let caller = channel.clone();
    calls.spawn(async move { call(&caller, "/test.Echo/Wait", Message::of("a")).await });
    assert_eq!(server.event().await, Event::Started);
    calls.shutdown().await;
    assert_eq!(server.event().await, Event::Dropped);
    assert!(call(&channel, "/test.Echo/Echo", Message::of("a")).await.is_ok());
    server.stopped().await;
}

/// The client enforces no deadline of its own.
#[tokio::test]
async fn holds_handlers_to_the_deadline_of_the_client() {
    let folder = Folder::new();
    let mut server = Server::start(&folder.socket());
    let mut socket = raw::dial(&server).await;
    let timeout = raw::literal("grpc-timeout", "50m");
    let call = raw::call(1, "/test.Echo/Wait", &timeout, &Message::of("a"));
    socket.write_all(&call).await.unwrap();
    assert_eq!(server.event().await, Event::Started);
    assert_eq!(server.event().await, Event::Dropped);
    let answer = raw::next(&mut socket, 1).await;
    assert_eq!((answer.kind, answer.flags & raw::END_STREAM), (raw::HEADERS, raw::END_STREAM));
    drop(socket);
    server.stopped().await;
}

/// The server ignores the deadline.
#[tokio::test]
async fn a_channel_holds_to_the_deadline_of_its_request() {
    let folder = Folder::new();
    let _mute = UnixListener::bind(folder.socket()).unwrap();
    let request = timed(Message::of("a"), Duration::from_millis(50));
    let status = call(&channel(&folder.socket()), "/test.Echo/Echo", request).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
}

#[tokio::test]
async fn stop_removes_the_path_first_and_lets_calls_finish() {
    let folder = Folder::new();
    let mut server = Server::start(&folder.socket());
    let channel = channel(&server.path);
    let mut calls = JoinSet::new();
    let caller = channel.clone();
    calls.spawn(async move { call(&caller, "/test.Echo/Wait", Message::of("a")).await });
    assert_eq!(server.event().await, Event::Started);

    server.stop.cancel();
    // Once the path is removed a second call fails, which shows the stop without a clock.
    soon(async {
        while call(&channel, "/test.Echo/Echo", Message::of("")).await.is_ok() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert!(!folder.socket().exists());

    server.echo.release.notify_waiters();
    let replies = soon(calls.join_all()).await;
    assert_eq!(replies[0].as_ref().unwrap().payload, b"a");
    server.stopped().await;
}

#[tokio::test]
async fn calls_that_outlast_the_drain_are_cut() {
    let folder = Folder::new();
    let drain = Duration::from_millis(50);
    let mut server = Server::with(&folder.socket(), &ListenOptions::default(), drain);
    let channel = channel(&server.path);
    let mut calls = JoinSet::new();
    calls.spawn(async move { call(&channel, "/test.Echo/Wait", Message::of("a")).await });
    assert_eq!(server.event().await, Event::Started);
    server.stop.cancel();
    let replies = soon(calls.join_all()).await;
    assert_eq!(replies[0].as_ref().unwrap_err().code(), Code::Unavailable);
    assert_eq!(server.event().await, Event::Dropped);
    server.stopped().await;
}

#[tokio::test]
async fn an_idle_connection_does_not_delay_the_stop() {
    let folder = Folder::new();
    let server = Server::with(&folder.socket(), &ListenOptions::default(), DEADLINE * 10);
    let channel = channel(&server.path);
    channel.connected(DEADLINE).await.unwrap();
    server.stopped().await;
}

/// A client that sends nothing is disconnected when the drain is over, neither before nor never.
#[tokio::test]
async fn a_silent_client_is_cut_after_the_drain() {
    let folder = Folder::new();
    let drain = Duration::from_millis(50);
    let server = Server::with(&folder.socket(), &ListenOptions::default(), drain);
    let mut silent = UnixStream::connect(&server.path).await.unwrap();
    assert!(silent.read_u8().await.is_ok(), "the server speaks first");
    server.stopped().await;
    let mut rest = Vec::new();
    soon(silent.read_to_end(&mut rest)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_raw_client_that_says_nothing_is_hung_up_on() {
    let folder = Folder::new();
    let listener = Listener::bind(&folder.socket(), &ListenOptions::default()).unwrap();
    let stop = CancellationToken::new();
    let mut serving = JoinSet::new();
    serving.spawn(listener.serve_raw(|_| async {}, DEADLINE, stop.clone()));
    let mut silent = UnixStream::connect(folder.socket()).await.unwrap();
    // The paused clock advances only when every task is idle.
    let mut said = Vec::new();
    let hung_up = tokio::time::timeout(Duration::from_secs(60), silent.read_to_end(&mut said));
    hung_up.await.expect("within a minute").unwrap();
    stop.cancel();
    serving.join_next().await.unwrap().unwrap().unwrap();
}

/// grpc-core drops a connection when a write fails, together with answers that it has not read.
#[tokio::test]
async fn a_client_can_write_to_a_connection_that_is_closed_in_good_order() {
    let folder = Folder::new();
    let server = Server::start(&folder.socket());
    let mut client = raw::dial(&server).await;
    client.write_all(&raw::call(1, "/test.Echo/Echo", &[], &Message::of("a"))).await.unwrap();
    assert_eq!(raw::next(&mut client, 1).await.kind, raw::HEADERS);
    server.stop.cancel();
    let mut code = None;
    // The client closes its end once it knows that no call is under way.
    while let Some(frame) = soon(raw::read(&mut client)).await {
        match frame.kind {
            raw::PING => {
                let acknowledged = raw::acknowledged(&frame);
                client.write_all(&acknowledged).await.unwrap();
            }
            raw::GOAWAY => code = Some(frame.payload[4..8].to_vec()),
            _ => {}
        }
    }
    assert_eq!(code, Some(vec![0; 4]));
    for number in 0..1000 {
        let frame = raw::cancelled(2 * number + 3, "/test.Echo/Echo", &[]);
        client.write_all(&frame).await.expect("somebody reads it");
        tokio::task::yield_now().await;
    }
    drop(client);
    server.stopped().await;
}
