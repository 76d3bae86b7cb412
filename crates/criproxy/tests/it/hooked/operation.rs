//! How a proxy with hooks starts, is watched, and stops.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use tokio::sync::Notify;
use tonic::Status;
use wharf_criproxy::{ConfigError, Proxy, ProxyOptions};
use wharf_proto::cri;
use wharf_testkit::{
    hook_server::{Answer, HookScript, echo},
    runtime::Reply,
};

use super::{
    kubelet::answered,
    node::{IGNORE, Node, Plan, file},
    samples::{create, run, update},
};
use crate::{
    client::{USUAL, whole},
    fixture::soon,
};

/// koord-runtime-proxy goes on without hooks, and without a word.
#[tokio::test]
async fn a_proxy_that_cannot_follow_its_folder_does_not_start() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("hooks");
    fs::write(&folder, "a file").unwrap();
    let options = ProxyOptions::new(place.path().join("runtime.sock"), &folder);
    let error = Proxy::start(options).await.unwrap_err();
    assert!(matches!(error, ConfigError::Unwatched { .. }), "{error:?}");
    assert!(error.to_string().contains(folder.to_str().unwrap()), "{error}");
}

/// koord-runtime-proxy goes by the time of a file's last change.
#[tokio::test]
async fn a_file_that_is_older_than_the_one_it_replaces_counts() {
    let plan = Plan::new();
    let old = plan.server("old.json", IGNORE, HookScript::echo());
    let new = plan.server("new.json", IGNORE, HookScript::echo());
    let folder = plan.folder().join("hooks");
    fs::rename(folder.join("new.json"), folder.join(".new")).unwrap();
    let file = fs::OpenOptions::new().append(true).open(folder.join(".new")).unwrap();
    file.set_modified(std::time::UNIX_EPOCH).unwrap();
    let node = plan.start().await;
    node.pod().await;
    assert_eq!((old.calls().len(), new.calls().len()), (1, 0));
    fs::rename(folder.join(".new"), folder.join("old.json")).unwrap();
    node.fixture.counts("wharf_proxy_hook_config_reloads_total 2").await;
    node.pod().await;
    assert_eq!((old.calls().len(), new.calls().len()), (1, 1));
}

#[tokio::test]
async fn metadata_reaches_the_runtime_and_the_trace_reaches_hook_servers() {
    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    let plan = Plan::new();
    let server = plan.server("a.json", IGNORE, HookScript::echo());
    let node = plan.start().await;
    let own: &[(&str, &[u8])] = &[
        ("traceparent", TRACE.as_bytes()),
        ("tracestate", b"vendor=1"),
        ("authorization", b"bearer of something"),
        ("x-mark-bin", b"AAEC"),
    ];
    let fields = [USUAL, own].concat();
    let sent = prost::Message::encode_to_vec(&run());
    node.kubelet.send("RunPodSandbox", sent, &fields).await.unwrap();
    let [call] = &node.runtime.calls()[..] else { panic!("{:?}", node.runtime.calls()) };
    let mut got = call.headers.clone();
    let mut expected: Vec<_> =
        fields.iter().map(|(name, value)| ((*name).to_owned(), value.to_vec())).collect();
    got.sort();
    expected.sort();
    assert_eq!(got, expected);

    let metadata = &server.calls()[0].metadata;
    assert_eq!((&*metadata["traceparent"], &*metadata["tracestate"]), (TRACE, "vendor=1"));
    assert!(!metadata.contains_key("authorization"), "that is for the runtime");
}

#[tokio::test]
async fn what_hooks_did_is_counted() {
    let plan = Plan::new();
    let script = HookScript {
        container: Arc::new(|_, asked| {
            let mut answer = echo(asked);
            answer.container_envs.insert("NEW".into(), "1".into());
            answer.container_resources.as_mut().unwrap().cpu_shares = 7;
            answer
        }),
        ..HookScript::default()
    };
    let server = plan.server("a.json", IGNORE, script);
    let node = plan.start().await;
    let (pod, container) = node.container().await;
    server.change(|script| script.answer = Answer::Error(Status::aborted("no")));
    node.kubelet.create(&create(&pod)).await.unwrap();
    node.kubelet.start(&container).await.unwrap();
    node.kubelet.update(&update(&container, "cpu.weight")).await.unwrap();
    for line in [
        "wharf_proxy_calls_total{method=\"/runtime.v1.RuntimeService/CreateContainer\",code=\"OK\"} 2",
        "wharf_proxy_hook_calls_total{server=\"a.json\",hook=\"PreCreateContainer\",outcome=\"ok\"} 1",
        "wharf_proxy_hook_calls_total{server=\"a.json\",hook=\"PreCreateContainer\",outcome=\"Aborted\"} 1",
        "wharf_proxy_hook_failures_total{server=\"a.json\",hook=\"PreStartContainer\",policy=\"Ignore\"} 1",
        "wharf_proxy_hook_failures_total{server=\"a.json\",hook=\"PostStartContainer\",policy=\"Ignore\"} 1",
        "wharf_proxy_hook_changes_total{server=\"a.json\",field=\"envs\"} 1",
        "wharf_proxy_hook_changes_total{server=\"a.json\",field=\"resources\"} 1",
        "wharf_proxy_hook_seconds_count{server=\"a.json\",hook=\"PreCreateContainer\"} 2",
        "wharf_proxy_hook_config_files{state=\"loaded\"} 1",
        "wharf_proxy_calls_in_flight 0",
        "wharf_proxy_runtime_connected 1",
    ] {
        node.fixture.counts(line).await;
    }
    node.has_records(1, 2).await;
}

/// A node that shuts down stops kubelet and proxy together.
#[tokio::test]
async fn a_hook_in_flight_finishes_though_its_caller_has_left() {
    let plan = Plan::new();
    let finished = Arc::new(AtomicBool::new(false));
    let flag = finished.clone();
    let script = HookScript {
        // It is called when the answer is due, and never if the call was cut before.
        container: Arc::new(move |hook, asked| {
            flag.store(hook == "PostStopContainer", Ordering::SeqCst);
            echo(asked)
        }),
        ..HookScript::default()
    };
    let server = plan.server("a.json", IGNORE, script);
    let node = plan.start().await;
    let (_, container) = node.container().await;
    server.change(|script| script.answer = Answer::After(Duration::from_millis(200)));
    let named = cri::StopContainerRequest { container_id: container, timeout: 0 };
    let call = node.kubelet.begin("StopContainer", &named).await;
    server.seen(|calls| calls.iter().any(|call| call.hook == "PostStopContainer")).await;
    let Node { mut fixture, kubelet, .. } = node;
    drop(call);
    kubelet.client.vanish().await;
    fixture.stop.cancel();
    soon(fixture.serving.join_next()).await.unwrap().unwrap().unwrap();
    assert!(finished.load(Ordering::SeqCst), "the server's answer was waited for");
}

/// koord-runtime-proxy ends at once.
#[tokio::test]
async fn a_call_in_flight_finishes_with_its_hooks() {
    let plan = Plan::new();
    let server = plan.server("a.json", IGNORE, HookScript::echo());
    let mut node = plan.start().await;
    let (_, container) = node.container().await;
    let pause = Arc::new(Notify::new());
    let paused = pause.clone();
    node.answer("StartContainer", move || Reply {
        pause: Some(paused.clone()),
        ..Reply::default()
    });
    let named = cri::StartContainerRequest { container_id: container };
    let (response, _sink) = node.kubelet.begin("StartContainer", &named).await;
    node.runtime
        .seen(|calls| calls.iter().any(|call| call.method.ends_with("/StartContainer")))
        .await;
    node.fixture.stop.cancel();
    soon(async {
        while node.fixture.socket().exists() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    // Files of hook servers are of no interest any more.
    node.write("b.json", &file(server.path(), IGNORE));
    pause.notify_one();
    answered(&whole(response).await.unwrap()).unwrap();
    assert_eq!(server.hooks().pop(), Some("PostStartContainer"));
    soon(node.fixture.serving.join_next()).await.unwrap().unwrap().unwrap();
}
