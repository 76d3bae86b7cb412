//! A server that goes on working on calls that were given up.

use bytes::Bytes;
use futures_util::FutureExt;
use http::{HeaderMap, uri::PathAndQuery};
use tokio::{io::AsyncWriteExt, net::UnixListener, sync::watch, task::JoinSet};
use tonic::Code;
use wharf_uds::{RawAnswer, Relay, RelayOptions};

use crate::{
    echo::{Folder, soon},
    raw::{self, HEADERS, RST_STREAM},
};

/// Calls that are given up together.
const BATCH: usize = 500;
/// More than 8192 calls: h2 remembers this many reset streams for a while, and ignores their late
/// frames.
const BATCHES: usize = 20;
/// Late frames of calls that h2 no longer remembers. By default h2 ends a connection after 1024 of
/// them.
const LATE: usize = 1500;

/// What the server has read.
#[derive(Clone, Default)]
struct Seen {
    begun: usize,
    given_up: Vec<u32>,
}

/// Answers nothing until all calls are given up, then sends data for the last of them, and answers
/// from then on.
async fn serve(listener: UnixListener, seen: watch::Sender<Seen>) {
    let (mut stream, _) = listener.accept().await.unwrap();
    raw::greet(&mut stream).await;
    let mut is_late = false;
    while let Some(frame) = raw::read(&mut stream).await {
        match frame.kind {
            HEADERS if is_late => {
                stream.write_all(&raw::answer(frame.stream)).await.unwrap();
            }
            HEADERS => seen.send_modify(|seen| seen.begun += 1),
            RST_STREAM => seen.send_modify(|seen| seen.given_up.push(frame.stream)),
            _ => {}
        }
        if !is_late && seen.borrow().given_up.len() == BATCH * BATCHES {
            is_late = true;
            let last = seen.borrow().given_up[BATCH * BATCHES - LATE..].to_vec();
            for call in last {
                stream.write_all(&raw::data(call, b"late")).await.unwrap();
            }
        }
    }
    panic!("the connection was closed");
}

async fn call(relay: &Relay) -> RawAnswer {
    let method = PathAndQuery::from_static("/test.Slow/Wait");
    relay.call(&method, &HeaderMap::new(), &Bytes::from_static(&[0; 5]), 1 << 20).await
}

/// All clients share the connection: clients that gave up calls must not end the calls of others.
#[tokio::test]
async fn late_frames_of_calls_that_were_given_up_do_not_end_the_connection() {
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.socket()).unwrap();
    let (seen, mut server) = watch::channel(Seen::default());
    let mut serving = JoinSet::new();
    serving.spawn(serve(listener, seen));
    let relay = Relay::new(folder.socket(), RelayOptions::default());
    let generation = relay.link();
    for batch in 1..=BATCHES {
        let mut calls: Vec<_> = (0..BATCH).map(|_| Box::pin(call(&relay))).collect();
        soon(async {
            while server.borrow().begun < BATCH * batch {
                for call in &mut calls {
                    assert!(call.as_mut().now_or_never().is_none(), "an answer");
                }
                tokio::task::yield_now().await;
            }
        })
        .await;
        drop(calls);
        soon(server.wait_for(|seen| seen.given_up.len() == BATCH * batch)).await.unwrap();
    }
    let connected = generation.borrow().clone();
    assert_eq!(soon(call(&relay)).await.code(), Code::Ok);
    assert_eq!(soon(call(&relay)).await.code(), Code::Ok);
    assert_eq!(*generation.borrow(), connected, "the same connection");
}
