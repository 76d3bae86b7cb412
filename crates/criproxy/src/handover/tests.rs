use std::{sync::Mutex, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use prost::Message;
use tempfile::TempDir;
use tokio::{
    io::AsyncWriteExt,
    net::UnixStream,
    sync::mpsc,
    time::{Instant, timeout},
};
use tokio_util::sync::CancellationToken;
use wharf_proto::hooks::PodSandboxHookRequest;

use super::{
    Admission, HandOverError, Hello, Predecessor,
    channel::{Reader, Writer, lines},
    message::{FromNew, FromOld, PROTOCOL},
};
use crate::{FileState, Proxy, ProxyOptions, record::Entry};

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
        notified: Default::default(),
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

/// From the time on at which the successor is told of the last thing until calls begin here again.
#[tokio::test]
async fn a_successor_that_hangs_holds_calls_up_for_less_than_a_second() {
    let Stalled { folder, proxy, old, mut reader, _writer } = Stalled::new().await;
    let (hand_over, stop) = (proxy.hand_over(), CancellationToken::new());
    let listen = folder.path().join("listen.sock");
    let handing_over = hand_over.run(old, &listen, || (), async |_| (), &stop);
    let held_up = async {
        while !matches!(reader.next().await.unwrap(), Some(FromOld::All)) {}
        let begun = Instant::now();
        let begins = proxy.interceptor.calls.begin(None).await;
        assert!(matches!(begins, Admission::Here(_)));
        begun.elapsed()
    };
    let (ended, held_up) = tokio::join!(handing_over, held_up);
    assert!(matches!(ended.unwrap_err(), HandOverError::Silent { .. }));
    assert!(held_up < Duration::from_secs(1), "{held_up:?}");
}

/// What a call makes while the records are read is told before the successor serves.
#[tokio::test]
async fn records_are_read_while_calls_go_on_and_their_changes_follow() {
    let Stalled { folder, proxy, old, mut reader, _writer: mut writer } = Stalled::new().await;
    let entry = |id: &str, size: usize| Entry::Pod {
        id: id.to_owned(),
        question: BASE64_STANDARD.encode(
            PodSandboxHookRequest { cgroup_parent: "x".repeat(size), ..Default::default() }
                .encode_to_vec(),
        ),
        carried: None,
        changed_by: String::new(),
        stopped: false,
        notified: Default::default(),
    };
    // Each is more than a socket holds: once the successor has one, it has not got the other.
    for id in ["pod-1", "pod-2"] {
        proxy.interceptor.records.take(entry(id, 4 << 20)).unwrap();
    }
    let (hand_over, stop) = (proxy.hand_over(), CancellationToken::new());
    let listen = folder.path().join("listen.sock");
    let handing_over = hand_over.run(old, &listen, || (), async |_| (), &stop);
    let successor = async {
        let first = reader.next().await.unwrap();
        let Some(FromOld::Record(Entry::Pod { id, .. })) = first else { panic!("{first:?}") };
        let mut pods = vec![id];
        let begins = timeout(Duration::from_secs(5), proxy.interceptor.calls.begin(None)).await;
        let Ok(Admission::Here(running)) = begins else { panic!("calls go on") };
        proxy.interceptor.records.take(entry("pod-3", 0)).unwrap();
        running.end().await;
        loop {
            match reader.next().await.unwrap().unwrap() {
                FromOld::Record(Entry::Pod { id, .. }) => pods.push(id),
                FromOld::All => break,
                _ => {}
            }
        }
        writer.send(&FromNew::Loaded).await.unwrap();
        writer.send(&FromNew::Serving).await.unwrap();
        pods.sort();
        pods
    };
    let (handed_over, pods) = tokio::join!(handing_over, successor);
    handed_over.unwrap();
    assert_eq!(pods, ["pod-1", "pod-2", "pod-3"]);
}

/// Without room in the state folder the successor reads there of no such server.
#[tokio::test]
async fn a_mandatory_server_whose_version_is_not_kept_stays_in_force() {
    let folder = tempfile::tempdir().unwrap();
    let [hooks, state_dir] = ["hooks", "state"].map(|name| folder.path().join(name));
    std::fs::create_dir(&hooks).unwrap();
    let options = |state_is_kept_elsewhere| ProxyOptions {
        state_dir: Some(state_dir.clone()),
        state_is_kept_elsewhere,
        ..ProxyOptions::new(folder.path().join("runtime.sock"), hooks.clone())
    };
    let old_proxy = Proxy::start(options(false)).await.unwrap();
    // A folder in the place of the draft: no version can be written.
    std::fs::create_dir(state_dir.join("servers/.draft")).unwrap();
    let text = r#"{"remote-endpoint": "/b", "runtime-hooks": ["PreRunPodSandbox"],
        "failure-policy": "Fail", "required": true}"#;
    for (text, state) in [(text, FileState::Loaded), ("{", FileState::Refused)] {
        std::fs::write(hooks.join("b.json"), text).unwrap();
        let reached = async {
            let config = old_proxy.config.handle();
            while !config.status().servers.iter().any(|server| server.state == state) {
                tokio::task::yield_now().await;
            }
        };
        timeout(Duration::from_secs(10), reached).await.unwrap();
    }

    let new_proxy = Proxy::start(options(true)).await.unwrap();
    let (mut old, new) = UnixStream::pair().unwrap();
    let hello = serde_json::to_string(&Hello::new(Vec::new())).unwrap() + "\n";
    old.write_all(hello.as_bytes()).await.unwrap();
    let (hand_over, stop) = (old_proxy.hand_over(), CancellationToken::new());
    let listen = folder.path().join("listen.sock");
    let handing_over = hand_over.run(old, &listen, || (), async |_| (), &stop);
    let taking_over = async { Predecessor::greet(new).await.unwrap().take(&new_proxy).await };
    let (handed_over, taken_over) = tokio::join!(handing_over, taking_over);
    handed_over.unwrap();
    taken_over.unwrap();
    let servers = new_proxy.config.servers().borrow().clone();
    assert!(servers.iter().map(|server| &*server.name).eq(["b.json"]), "{servers:?}");
}

/// A pod is stopped and its container removed, by calls that wait for the end of a hand-over.
#[tokio::test]
async fn calls_that_wait_go_on_in_the_order_in_which_they_came() {
    const CALLS: usize = 200;
    let proxy = Stalled::new().await.proxy;
    let calls = &proxy.interceptor.calls;
    let (messages, _outgoing) = mpsc::unbounded_channel();
    calls.freeze(messages);
    let order = Mutex::new(Vec::new());
    let waiting = (0..CALLS).map(|number| {
        let order = &order;
        async move {
            let Admission::Here(running) = calls.begin(None).await else { panic!("here") };
            order.lock().unwrap().push(number);
            running.end().await;
        }
    });
    let thaw = async {
        tokio::task::yield_now().await;
        calls.thaw();
    };
    tokio::join!(futures_util::future::join_all(waiting), thaw);
    assert_eq!(*order.lock().unwrap(), (0..CALLS).collect::<Vec<_>>());
}
