//! The client: connecting, losing, reconnecting, failing.

use std::{os::unix::net::UnixListener as StdListener, time::Duration};

use tokio::{io::AsyncReadExt, net::UnixListener, sync::watch, task::JoinSet, time::Instant};
use tokio_stream::StreamExt;
use tonic::Code;
use wharf_uds::{Channel, ChannelOptions, LinkState, within};

use crate::echo::{DEADLINE, Folder, Message, Server, call, channel, repeated, soon};

fn held(folder: &Folder) -> Channel {
    Channel::new(folder.socket(), ChannelOptions { hold: true, ..ChannelOptions::default() })
}

async fn reaches(link: &mut watch::Receiver<LinkState>, state: &LinkState) {
    soon(link.wait_for(|now| now == state)).await.unwrap();
}

async fn goes_down(link: &mut watch::Receiver<LinkState>) -> String {
    let down = soon(link.wait_for(|now| matches!(now, LinkState::Down { .. }))).await.unwrap();
    match &*down {
        LinkState::Down { error } => error.clone(),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn dials_when_a_call_needs_it() {
    let folder = Folder::new();
    let channel = channel(&folder.socket());
    let link = channel.link();
    assert_eq!(*link.borrow(), LinkState::Idle);
    let server = Server::start(&folder.socket());
    for _ in 0..3 {
        call(&channel, "/test.Echo/Echo", Message::of("a")).await.unwrap();
    }
    assert_eq!(*link.borrow(), LinkState::Connected { generation: 1 });
    server.stopped().await;
}

#[tokio::test]
async fn a_call_that_cannot_connect_is_unavailable_and_says_why() {
    let folder = Folder::new();
    let channel = channel(&folder.socket());
    let status = call(&channel, "/test.Echo/Echo", Message::of("a")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    let text = status.message();
    assert!(text.contains(folder.socket().to_str().unwrap()), "{text}");
    assert!(text.contains("No such file"), "{text}");

    drop(StdListener::bind(folder.socket()).unwrap());
    let status = call(&channel, "/test.Echo/Echo", Message::of("a")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("refused"), "{status}");
    assert!(goes_down(&mut channel.link()).await.contains("refused"));
}

#[tokio::test]
async fn connected_waits_for_the_server() {
    let folder = Folder::new();
    let channel = channel(&folder.socket());
    let error = channel.connected(Duration::from_millis(30)).await.unwrap_err();
    assert_eq!(error.path, folder.socket());
    assert!(error.to_string().contains("No such file"), "{error}");

    let mut link = channel.link();
    let waiter = channel.clone();
    let mut waiting = JoinSet::new();
    waiting.spawn(async move { waiter.connected(DEADLINE).await });
    link.mark_unchanged();
    soon(link.changed()).await.unwrap();
    let server = Server::start(&folder.socket());
    soon(waiting.join_all()).await.pop().unwrap().unwrap();
    assert_eq!(*link.borrow(), LinkState::Connected { generation: 1 });
    server.stopped().await;
}

#[tokio::test]
async fn a_held_channel_follows_a_restart() {
    let folder = Folder::new();
    let channel = held(&folder);
    let mut link = channel.link();
    goes_down(&mut link).await;

    for generation in 1..=3 {
        let server = Server::start(&folder.socket());
        reaches(&mut link, &LinkState::Connected { generation }).await;
        let reply = call(&channel, "/test.Echo/Echo", Message::of("a")).await.unwrap();
        assert_eq!(reply.payload, b"a");
        server.stopped().await;
        goes_down(&mut link).await;
    }
}

/// The states that an observer sees of one restart. It may miss some, but never sees a wrong order.
#[tokio::test]
async fn a_restart_is_seen_in_order() {
    let folder = Folder::new();
    let server = Server::start(&folder.socket());
    let channel = held(&folder);
    let mut link = channel.link();
    reaches(&mut link, &LinkState::Connected { generation: 1 }).await;

    let mut observed = link.clone();
    let mut observer = JoinSet::new();
    observer.spawn(async move {
        let mut states = vec![observed.borrow_and_update().clone()];
        while states.last() != Some(&LinkState::Connected { generation: 2 }) {
            observed.changed().await.unwrap();
            states.push(observed.borrow_and_update().clone());
        }
        states
    });
    server.stopped().await;
    goes_down(&mut link).await;
    let server = Server::start(&folder.socket());

    let states = soon(observer.join_all()).await.pop().unwrap();
    let [first, between @ .., _] = states.as_slice() else { panic!("{states:?}") };
    assert_eq!(*first, LinkState::Connected { generation: 1 });
    assert!(between.iter().any(|state| matches!(state, LinkState::Down { .. })), "{states:?}");
    let is_way = |state: &_| matches!(state, LinkState::Down { .. } | LinkState::Connecting);
    assert!(between.iter().all(is_way), "{states:?}");
    server.stopped().await;
}

#[tokio::test]
async fn a_call_after_its_time_waits_until_the_time_is_moved() {
    let folder = Folder::new();
    let server = Server::start(&folder.socket());
    let (until, known) = watch::channel(Instant::now());
    let limited = channel(&folder.socket()).only_until(known);
    let late = async || call(&limited, "/test.Echo/Echo", Message::of("a")).await;
    let moved = async {
        reaches(&mut limited.link(), &LinkState::Connected { generation: 1 }).await;
        until.send_replace(Instant::now());
        tokio::task::yield_now().await;
        until.send_replace(Instant::now() + DEADLINE);
    };
    let began = Instant::now();
    let (reply, ()) = tokio::join!(soon(late()), moved);
    assert_eq!(reply.unwrap().payload, b"a");
    soon(late()).await.unwrap();
    assert!(began.elapsed() < DEADLINE);

    until.send_replace(began);
    let (reply, ()) = tokio::join!(soon(late()), async { drop(until) });
    let status = reply.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("was not sent"), "{status}");
    server.stopped().await;
}

#[tokio::test]
async fn a_channel_that_is_not_held_reconnects_for_the_next_call() {
    let folder = Folder::new();
    let channel = channel(&folder.socket());
    for generation in 1..=3 {
        let server = Server::start(&folder.socket());
        call(&channel, "/test.Echo/Echo", Message::of("a")).await.unwrap();
        assert_eq!(*channel.link().borrow(), LinkState::Connected { generation });
        server.stopped().await;
        // Does not wait: a call right after the loss must succeed although the old connection is
        // still closing.
    }
}

#[tokio::test]
async fn a_server_that_never_answers_is_bounded() {
    let folder = Folder::new();
    let _mute = UnixListener::bind(folder.socket()).unwrap();
    let channel = channel(&folder.socket());
    let waiting = call(&channel, "/test.Echo/Echo", Message::of("a"));
    let status = within(Duration::from_millis(50), "Echo", waiting).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(status.message(), "Echo did not finish in 50ms");
    assert!(goes_down(&mut channel.link()).await.contains("given up"));

    let options = ChannelOptions { connect_timeout: Duration::from_millis(50), hold: false };
    let channel = Channel::new(folder.socket(), options);
    let status = call(&channel, "/test.Echo/Echo", Message::of("a")).await.unwrap_err();
    assert_eq!(status.code(), Code::Unavailable);
    assert!(status.message().contains("did not answer in 50ms"), "{status}");
}

#[tokio::test]
async fn callers_share_one_attempt_and_its_failure() {
    let folder = Folder::new();
    let mute = UnixListener::bind(folder.socket()).unwrap();
    let options = ChannelOptions { connect_timeout: Duration::from_millis(200), hold: false };
    let channel = Channel::new(folder.socket(), options);
    let mut calls = JoinSet::new();
    for _ in 0..50 {
        let channel = channel.clone();
        calls.spawn(async move { call(&channel, "/test.Echo/Echo", Message::of("a")).await });
    }
    let replies = soon(calls.join_all()).await;
    assert!(replies.iter().all(|reply| reply.as_ref().unwrap_err().code() == Code::Unavailable));
    let mut attempts = 0;
    while tokio::time::timeout(Duration::ZERO, mute.accept()).await.is_ok() {
        attempts += 1;
    }
    assert!(attempts <= 2, "{attempts} attempts");
}

#[tokio::test]
async fn a_server_that_hangs_up_is_not_taken_for_one() {
    let folder = Folder::new();
    let listener = UnixListener::bind(folder.socket()).unwrap();
    let mut server = JoinSet::new();
    server.spawn(async move {
        loop {
            drop(listener.accept().await);
        }
    });
    let channel = channel(&folder.socket());
    let error = channel.connected(Duration::from_millis(100)).await.unwrap_err();
    assert!(error.to_string().contains("closed the connection"), "{error}");
}

#[tokio::test]
async fn the_connection_closes_with_the_last_clone() {
    for hold in [false, true] {
        let folder = Folder::new();
        let listener = UnixListener::bind(folder.socket()).unwrap();
        let options = ChannelOptions { hold, ..ChannelOptions::default() };
        let channel = Channel::new(folder.socket(), options);
        let mut dialling = JoinSet::new();
        let dialler = channel.clone();
        dialling.spawn(async move { dialler.connected(DEADLINE).await });
        let (mut peer, _) = soon(listener.accept()).await.unwrap();
        let settings = [0, 0, 0, 4, 0, 0, 0, 0, 0];
        tokio::io::AsyncWriteExt::write_all(&mut peer, &settings).await.unwrap();
        soon(dialling.join_all()).await.pop().unwrap().unwrap();

        let clone = channel.clone();
        drop(channel);
        let mut link = clone.link();
        assert_eq!(*link.borrow_and_update(), LinkState::Connected { generation: 1 });
        drop(clone);
        let mut rest = Vec::new();
        soon(peer.read_to_end(&mut rest)).await.unwrap();
        assert!(soon(link.changed()).await.is_err(), "the link has no sender any more");
    }
}

#[tokio::test]
async fn a_response_outlives_the_channel() {
    let folder = Folder::new();
    let server = Server::start(&folder.socket());
    let channel = channel(&server.path);
    let mut replies = repeated(&channel, Message::of(vec![7; 100_000])).await.unwrap();
    drop(channel);
    for _ in 0..100 {
        let reply = soon(replies.next()).await.unwrap().unwrap();
        assert_eq!(reply.payload.len(), 100_000);
    }
    drop(replies);
    server.stopped().await;
}

#[tokio::test]
async fn a_lost_server_fails_its_calls_as_unavailable() {
    let folder = Folder::new();
    let options = wharf_uds::ListenOptions::default();
    let server = Server::with(&folder.socket(), &options, Duration::ZERO);
    let channel = channel(&server.path);
    let mut replies = repeated(&channel, Message::of("a")).await.unwrap();
    assert!(soon(replies.next()).await.unwrap().is_ok());
    server.stopped().await;
    let status = soon(async {
        loop {
            match replies.next().await {
                Some(Ok(_)) => {}
                Some(Err(status)) => return status,
                None => panic!("ended as if all were well"),
            }
        }
    })
    .await;
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    assert!(status.message().contains(folder.socket().to_str().unwrap()), "{status}");
}
