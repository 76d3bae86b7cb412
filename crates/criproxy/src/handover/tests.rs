use std::{sync::Mutex, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use prost::Message;
use tempfile::TempDir;
use tokio::{net::UnixStream, time::timeout};
use tokio_util::sync::CancellationToken;
use wharf_proto::hooks::PodSandboxHookRequest;

use super::{
    HandOverError,
    channel::{Reader, Writer, lines},
    message::{FromNew, FromOld, PROTOCOL},
};
use crate::{Proxy, ProxyOptions, record::Entry};

/// A proxy, and a successor that says it is ready and then stands still.
struct Stalled {
    folder: TempDir,
    proxy: Proxy,
    old: UnixStream,
    reader: Reader<FromOld>,
    _writer: Writer<FromNew>,
}

impl Stalled {
    async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let hooks = folder.path().join("hooks");
        std::fs::create_dir(&hooks).unwrap();
        let options = ProxyOptions::new(folder.path().join("runtime.sock"), hooks);
        let proxy = Proxy::start(options).await.unwrap();
        let (old, new) = UnixStream::pair().unwrap();
        let (reader, mut writer) = lines(new);
        writer.send(&FromNew::Ready { protocol: PROTOCOL }).await.unwrap();
        Self { folder, proxy, old, reader, _writer: writer }
    }

    /// How the hand-over ends, and whether the successor is killed.
    async fn hand_over(self) -> (HandOverError, Option<bool>, Reader<FromOld>) {
        let killed = Mutex::new(None);
        let end = async |kill| *killed.lock().unwrap() = Some(kill);
        let release = || panic!("nobody has taken over");
        let (hand_over, stop) = (self.proxy.hand_over(), CancellationToken::new());
        let listen = self.folder.path().join("listen.sock");
        let ended = hand_over.run(self.old, &listen, release, end, &stop).await;
        let killed = *killed.lock().unwrap();
        (ended.expect_err("a successor that stands still"), killed, self.reader)
    }
}

#[tokio::test]
async fn a_successor_that_cannot_be_told_to_leave_is_killed() {
    let stalled = Stalled::new().await;
    // More than a socket holds.
    let pod = PodSandboxHookRequest {
        annotations: [("large".to_owned(), "x".repeat(4 << 20))].into(),
        ..Default::default()
    };
    let entry = Entry::Pod {
        id: "pod-1".to_owned(),
        question: BASE64_STANDARD.encode(pod.encode_to_vec()),
        carried: None,
        changed_by: String::new(),
        stopped: false,
        told: Default::default(),
    };
    stalled.proxy.interceptor.records.take(entry).unwrap();
    let (error, killed, _reader) = stalled.hand_over().await;
    assert!(matches!(error, HandOverError::Silent { .. }), "{error}");
    assert_eq!(killed, Some(true), "it would serve once it goes on");
}

#[tokio::test]
async fn a_successor_that_goes_on_too_late_is_told_so() {
    let (error, killed, mut reader) = Stalled::new().await.hand_over().await;
    assert!(matches!(error, HandOverError::Silent { .. }), "{error}");
    assert_eq!(killed, Some(false), "it hears of it");
    let abort = async {
        loop {
            match reader.next().await.unwrap() {
                Some(FromOld::Abort(_)) => return,
                Some(_) => {}
                None => panic!("the end of the channel would mean that the old process is dead"),
            }
        }
    };
    timeout(Duration::from_secs(5), abort).await.unwrap();
}
