//! Clients that exceed the limits.

use std::{
    future::{Future, pending},
    path::Path,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    sync::watch,
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tonic::{Code, Request};
use wharf_uds::{ListenOptions, Listener, RawCall, ServeError};

use crate::{
    echo::{DEADLINE, Folder, Message, Server, call, channel, soon},
    raw::{self, GOAWAY, HEADERS},
};

const ENHANCE_YOUR_CALM: &[u8] = &[0, 0, 0, 11];
/// More resets than the limit of a connection.
const TOO_MANY: u32 = 20_000;
/// Resets that are always allowed: every call that a connection may have in flight.
const BATCH: u32 = 1000;

fn cancelled(count: u32) -> Vec<u8> {
    (0..count).flat_map(|number| raw::cancelled(2 * number + 1, "/test.Echo/Echo", &[])).collect()
}

/// A listener whose calls are passed to `handler`, which the test ends.
fn serve_raw<H, F>(path: &Path, handler: H) -> JoinSet<Result<(), ServeError>>
where
    H: Fn(RawCall) -> F + Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send + 'static,
{
    let listener = Listener::bind(path, &ListenOptions::default()).unwrap();
    let mut serving = JoinSet::new();
    serving.spawn(listener.serve_raw(handler, DEADLINE, CancellationToken::new()));
    serving
}

/// Sends `bytes` and returns the code of the GOAWAY that the server ends the connection with.
async fn expelled(path: &Path, bytes: &[u8]) -> Vec<u8> {
    let (mut source, mut sink) = raw::connect(path).await.into_split();
    let mut answer = Vec::new();
    let reading = async {
        // The connection may be reset, once the server has closed it with bytes unread.
        let _ = source.read_to_end(&mut answer).await;
    };
    soon(async { tokio::join!(reading, sink.write_all(bytes)) }).await.1.ok();
    let mut rest = answer.as_slice();
    while let [high, middle, low, kind, _, _, _, _, _, tail @ ..] = rest {
        let (payload, tail) = tail.split_at(u32::from_be_bytes([0, *high, *middle, *low]) as usize);
        if *kind == GOAWAY {
            return payload[4..8].to_vec();
        }
        rest = tail;
    }
    panic!("no GOAWAY in {} bytes", answer.len());
}

#[tokio::test]
async fn a_client_that_resets_too_many_calls_is_sent_away() {
    for repair_authority in [true, false] {
        let folder = Folder::new();
        let options = ListenOptions { repair_authority, ..ListenOptions::default() };
        let server = Server::with(&folder.socket(), &options, DEADLINE);
        let other = channel(&server.path);
        assert_eq!(expelled(&server.path, &cancelled(TOO_MANY)).await, ENHANCE_YOUR_CALM);
        assert!(call(&other, "/test.Echo/Echo", Message::of("a")).await.is_ok());
        server.stopped().await;
    }
}

#[tokio::test]
async fn a_raw_client_that_resets_too_many_calls_is_sent_away() {
    let folder = Folder::new();
    let calls = watch::Sender::new(0);
    let counted = calls.clone();
    let _serving = serve_raw(&folder.socket(), move |mut call| {
        counted.send_modify(|calls| *calls += 1);
        async move { call.abandoned().await }
    });
    assert_eq!(expelled(&folder.socket(), &cancelled(TOO_MANY)).await, ENHANCE_YOUR_CALM);
    assert!(*calls.borrow() <= 2 * BATCH + 100, "{} calls", *calls.borrow());
}

/// As a program that exits cancels all its calls.
#[tokio::test]
async fn a_batch_of_cancelled_calls_is_no_attack() {
    let folder = Folder::new();
    let server = Server::start(&folder.socket());
    let mut socket = raw::connect(&server.path).await;
    socket.write_all(&cancelled(BATCH)).await.unwrap();
    let last = 2 * BATCH + 1;
    let one = raw::call(last, "/test.Echo/Echo", &[], &Message::of("one"));
    socket.write_all(&one).await.unwrap();
    assert_eq!(raw::next(&mut socket, last).await.kind, HEADERS);
    drop(socket);
    server.stopped().await;
}

#[tokio::test]
async fn a_call_with_a_large_header_list_is_refused_alone() {
    let folder = Folder::new();
    let server = Server::start(&folder.socket());
    let channel = channel(&server.path);
    let echo = async |size: usize, count: usize| {
        let mut request = Request::new(Message::of(""));
        for _ in 0..count {
            request.metadata_mut().append("x-big", "b".repeat(size).parse().unwrap());
        }
        call(&channel, "/test.Echo/Echo", request).await
    };
    assert_eq!(echo(60_000, 1).await.unwrap().metadata, 60_000);
    assert!(echo(100_000, 1).await.is_err());
    assert!(echo(1, 100).await.is_ok());
    let status = echo(1, 200).await.unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted);
    assert!(status.message().contains("header fields, the most are 128"), "{status}");
    assert!(echo(1, 1).await.is_ok());
    server.stopped().await;
}

/// Each field takes one byte on the wire and 4 KiB in a header list.
#[tokio::test]
async fn a_client_whose_headers_explode_is_sent_away() {
    let value = "v".repeat(4000);
    let plant = [&[0x40, 1, b'x', 0x7f, 0xa1, 0x1e], value.as_bytes()].concat();
    let bomb: Vec<u8> = [
        raw::cancelled(1, "/test.Echo/Echo", &plant),
        raw::cancelled(3, "/test.Echo/Echo", &[0x80 | 62; 2000]),
    ]
    .concat();
    let folder = Folder::new();
    let server = Server::start(&folder.socket());
    assert_eq!(expelled(&server.path, &bomb).await, ENHANCE_YOUR_CALM);
    server.stopped().await;
    let _serving = serve_raw(&folder.socket(), |_| pending());
    assert_eq!(expelled(&folder.socket(), &bomb).await, ENHANCE_YOUR_CALM);
}

/// Calls that are each within the limit, and that keep their header lists.
#[tokio::test]
async fn the_header_lists_of_calls_under_way_have_a_bound_together() {
    const CALLS: usize = 300;
    let folder = Folder::new();
    let begun = watch::Sender::new(0);
    let counted = begun.clone();
    let _serving = serve_raw(&folder.socket(), move |mut call| {
        counted.send_modify(|begun| *begun += 1);
        async move { call.abandoned().await }
    });
    let (mut begin, channel) = (begun.subscribe(), channel(&folder.socket()));
    let mut calls = JoinSet::new();
    for _ in 0..CALLS {
        let channel = channel.clone();
        calls.spawn(async move {
            let mut request = Request::new(Message::of(""));
            request.metadata_mut().insert("x-big", "b".repeat(60_000).parse().unwrap());
            call(&channel, "/test.Echo/Wait", request).await.unwrap_err()
        });
    }
    let refused = soon(calls.join_next()).await.unwrap().unwrap();
    assert_eq!(refused.code(), Code::ResourceExhausted);
    assert!(refused.message().contains("take 1 MiB"), "{refused}");
    let bound = (1 << 20) / 60_000;
    assert!((bound - 10..=bound).contains(&*begin.borrow()), "{}", *begin.borrow());
    // Calls that end make room.
    calls.shutdown().await;
    let before = *begun.borrow();
    calls.spawn(async move {
        loop {
            let mut request = Request::new(Message::of(""));
            request.metadata_mut().insert("x-big", "b".repeat(60_000).parse().unwrap());
            // The server may not have seen the ends of the other calls yet.
            let _ = call(&channel, "/test.Echo/Wait", request).await;
        }
    });
    soon(begin.wait_for(|begun| *begun > before)).await.unwrap();
}
