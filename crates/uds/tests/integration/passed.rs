//! Sockets that are passed from one listener to another while they are served.

use std::{
    os::{fd::OwnedFd, unix::net::UnixListener},
    path::Path,
    time::Duration,
};

use tokio::task::{JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;
use wharf_uds::{
    LineCall, ListenError, ListenOptions, Listener, ServeError, SocketFile, ask_line, bound_path,
    probe,
};

use crate::echo::{DEADLINE, Folder};

const OPTIONS: fn() -> ListenOptions = ListenOptions::default;

/// Answers every question with one word.
fn serve(
    listener: Listener,
    word: &'static str,
) -> (JoinSet<Result<(), ServeError>>, CancellationToken) {
    let (mut serving, stop) = (JoinSet::new(), CancellationToken::new());
    let handler = move |call: LineCall| call.answer(word.to_owned());
    serving.spawn(listener.serve_lines(handler, DEADLINE, stop.clone()));
    (serving, stop)
}

async fn ask(path: &Path) -> String {
    let path = path.to_owned();
    spawn_blocking(move || ask_line(&path, "who?", DEADLINE)).await.unwrap().unwrap()
}

#[tokio::test]
async fn a_released_socket_is_served_by_the_other_and_its_file_stays() {
    let folder = Folder::new();
    let path = folder.socket();
    let first = Listener::bind(&path, &OPTIONS()).unwrap();
    let handle = first.handle();
    let file = SocketFile { remove: false, ..handle.file() };
    assert!(handle.is_in_place(&path) && handle.file().remove);
    let mut second = Listener::adopt(handle.socket().unwrap(), &path, file, &OPTIONS()).unwrap();
    let (mut one, _) = serve(first, "one");
    assert_eq!(ask(&path).await, "one\n");
    handle.release();
    one.join_next().await.unwrap().unwrap().unwrap();
    assert!(handle.socket().is_err() && handle.is_in_place(&path));
    // A client that connects in between waits, and is served.
    let asked = path.clone();
    let early = spawn_blocking(move || ask_line(&asked, "who?", DEADLINE));
    second.remove_file(true);
    let (mut two, stop) = serve(second, "two");
    assert_eq!(early.await.unwrap().unwrap(), "two\n");
    stop.cancel();
    two.join_next().await.unwrap().unwrap().unwrap();
    assert!(!path.exists(), "the last one removes it");
}

#[tokio::test]
async fn a_socket_of_the_service_manager_keeps_its_file() {
    let folder = Folder::new();
    let path = folder.socket();
    let socket = OwnedFd::from(UnixListener::bind(&path).unwrap());
    assert_eq!(bound_path(&socket), Some(path.clone()));
    let listener = Listener::inherit(socket, &path, &OPTIONS()).unwrap();
    let (mut serving, stop) = serve(listener, "here");
    assert_eq!(ask(&path).await, "here\n");
    stop.cancel();
    serving.join_next().await.unwrap().unwrap().unwrap();
    assert!(path.exists());
}

#[tokio::test]
async fn what_cannot_be_served_is_refused_by_name() {
    let folder = Folder::new();
    let path = folder.socket();
    let other = folder.path().join("other.sock");
    let bound = OwnedFd::from(UnixListener::bind(&other).unwrap());
    let (connected, _peer) = std::os::unix::net::UnixStream::pair().unwrap();
    let cases = [(bound, "other.sock"), (OwnedFd::from(connected), "ListenStream=")];
    for (socket, reason) in cases {
        let error = Listener::inherit(socket, &path, &OPTIONS()).unwrap_err();
        assert!(matches!(error, ListenError::Inherited { .. }), "{error:?}");
        assert!(error.to_string().contains(reason), "{error}");
    }
}

#[tokio::test]
async fn a_probe_wants_an_answer() {
    let folder = Folder::new();
    let path = folder.socket();
    let listener = Listener::bind(&path, &OPTIONS()).unwrap();
    let short = Duration::from_millis(50);
    assert!(probe(&path, short).await.is_err(), "nobody accepts");
    let (mut serving, stop) = (JoinSet::new(), CancellationToken::new());
    let handler = |call: wharf_uds::RawCall| async move { drop(call) };
    serving.spawn(listener.serve_raw(handler, DEADLINE, stop.clone()));
    probe(&path, DEADLINE).await.unwrap();
    stop.cancel();
    serving.join_next().await.unwrap().unwrap().unwrap();
    assert!(probe(&path, DEADLINE).await.is_err(), "nobody is there");
}
