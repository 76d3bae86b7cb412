//! Questions of one line.

use std::{io::ErrorKind, time::Duration};

use tokio::task::{JoinSet, spawn_blocking};
use tokio_util::sync::CancellationToken;
use wharf_uds::{LineCall, ListenOptions, Listener, ask_line};

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn a_line_is_answered_by_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("control.sock");
    let listener = Listener::bind(&path, &ListenOptions::default()).unwrap();
    let stop = CancellationToken::new();
    let mut serving = JoinSet::new();
    let handler = |call: LineCall| async move {
        assert_eq!(call.peer().uid, rustix::process::geteuid().as_raw());
        let answer = format!("{} to you", call.question());
        call.answer(answer).await;
    };
    serving.spawn(listener.serve_lines(handler, PATIENCE, stop.clone()));
    for question in ["hello", ""] {
        let path = path.clone();
        let asked = spawn_blocking(move || ask_line(&path, question, PATIENCE));
        assert_eq!(asked.await.unwrap().unwrap(), format!("{question} to you\n"));
    }
    stop.cancel();
    serving.join_next().await.unwrap().unwrap().unwrap();
    let gone = spawn_blocking(move || ask_line(&path, "anybody?", PATIENCE)).await.unwrap();
    assert_eq!(gone.unwrap_err().kind(), ErrorKind::NotFound);
}
