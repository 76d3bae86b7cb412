//! A server that allows few streams on a connection, and calls that last.

use std::path::Path;

use bytes::Bytes;
use h2::server::Builder;
use http::{HeaderMap, HeaderValue, Response, uri::PathAndQuery};
use tokio::{net::UnixListener, sync::watch, task::JoinSet};
use wharf_uds::{RawAnswer, Relay, RelayOptions};

use crate::echo::{Folder, soon};

const STREAMS: u32 = 5;

/// Answers all calls but those of `/test.Slow/Wait`, which it counts until `release`.
async fn serve(
    listener: UnixListener,
    waiting: watch::Sender<usize>,
    release: watch::Receiver<bool>,
) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (waiting, release) = (waiting.clone(), release.clone());
        connections.spawn(async move {
            let mut builder = Builder::new();
            builder.max_concurrent_streams(STREAMS);
            let mut connection = builder.handshake::<_, Bytes>(stream).await.unwrap();
            let mut calls = JoinSet::new();
            while let Some(Ok((request, mut reply))) = connection.accept().await {
                let (waiting, mut release) = (waiting.clone(), release.clone());
                calls.spawn(async move {
                    if request.uri().path() == "/test.Slow/Wait" {
                        waiting.send_modify(|waiting| *waiting += 1);
                        release.wait_for(|release| *release).await.unwrap();
                    }
                    let mut body = reply.send_response(Response::new(()), false).unwrap();
                    let mut trailers = HeaderMap::new();
                    trailers.insert("grpc-status", HeaderValue::from_static("0"));
                    body.send_trailers(trailers).unwrap();
                });
            }
        });
    }
}

async fn call(relay: &Relay, method: &'static str) -> RawAnswer {
    let method = PathAndQuery::from_static(method);
    let message = Bytes::from_static(&[0; 5]);
    relay.call(&method, &HeaderMap::new(), &message, 1 << 20).await
}

fn sockets_to(path: &Path) -> usize {
    let table = std::fs::read_to_string("/proc/net/unix").unwrap();
    let path = path.to_str().unwrap();
    // One descriptor is the listener.
    table.lines().filter(|line| line.ends_with(path)).count() - 1
}

#[tokio::test]
async fn calls_that_last_do_not_take_the_streams_of_others() {
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.socket()).unwrap();
    let (waiting, mut seen) = watch::channel(0);
    let (release, released) = watch::channel(false);
    let mut serving = JoinSet::new();
    serving.spawn(serve(listener, waiting, released));
    let relay = Relay::new(folder.socket(), RelayOptions::default());

    let lasting = STREAMS as usize * 2;
    let calls = async {
        let all = std::iter::repeat_with(|| call(&relay, "/test.Slow/Wait")).take(lasting);
        futures_util::future::join_all(all).await
    };
    let others = async {
        soon(seen.wait_for(|waiting| *waiting == lasting)).await.unwrap();
        let answer = soon(call(&relay, "/test.Slow/Now")).await;
        assert_eq!(answer.code(), tonic::Code::Ok);
        assert_eq!(sockets_to(&folder.socket()), 3);
        release.send_replace(true);
    };
    let (answers, ()) = tokio::join!(calls, others);
    assert!(answers.iter().all(|answer| answer.code() == tonic::Code::Ok));

    // Once the first connection has free streams, the others close.
    assert_eq!(soon(call(&relay, "/test.Slow/Now")).await.code(), tonic::Code::Ok);
    soon(async {
        while sockets_to(&folder.socket()) > 1 {
            tokio::task::yield_now().await;
        }
    })
    .await;
}
