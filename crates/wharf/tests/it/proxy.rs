//! `wharf proxy` between crictl and a runtime that records its calls.

use std::{
    future::Future,
    path::{Path, PathBuf},
    process::{Command, Output},
};

use rustix::process::Signal;
use serde_json::json;
use wharf_testkit::{
    client::Client,
    hook_server::HookServer,
    peers,
    process::{self, Process},
    runtime::{End, Received, Reply, Runtime, Then, message},
};

use crate::support::{Bench, PATIENCE, get, ok, wharf};

/// Versions and a name, without which crictl believes no runtime.
const VERSION: &[u8] = b"\x0a\x050.1.0\x12\x04test\x1a\x011\x22\x02v1";

/// A runtime in the bench's folder that knows its version, and has an id where one is asked for.
pub(crate) fn recording(bench: &Bench) -> Runtime {
    let runtime = Runtime::start(&bench.path("runtime.sock"));
    runtime.answer(|method| {
        let answer = match method.rsplit('/').next() {
            Some("Version") => VERSION,
            Some("RunPodSandbox" | "CreateContainer" | "PullImage") => b"\x0a\x04id-1",
            _ => b"",
        };
        Reply::of(vec![message(answer)])
    });
    runtime
}

/// A proxy at `proxy.sock` of the bench's folder, whose hook servers are in `hookserver.d`. It
/// listens.
pub(crate) async fn start(bench: &Bench, runtime: &Path) -> (Process, PathBuf) {
    let mut proxy = launch(bench, runtime, &[]);
    // A proxy that was killed leaves its socket, so that there is one says nothing.
    address(&mut proxy).await;
    (proxy, bench.path("proxy.sock"))
}

/// The same with more flags; it may not listen yet.
pub(crate) fn launch(bench: &Bench, runtime: &Path, flags: &[&str]) -> Process {
    let (socket, hooks) = (bench.path("proxy.sock"), hook_folder(bench));
    let state = bench.path("state");
    let args = ["proxy", "--listen", text(&socket), "--runtime", text(runtime)];
    let args = [&args[..], &["--state-dir", text(&state)]].concat();
    let more = ["--hooks-dir", text(&hooks), "--http-endpoint", "127.0.0.1:0"];
    bench.start("proxy", &[&args[..], &more, flags].concat())
}

/// Where a bench's proxy finds its hook servers.
pub(crate) fn hook_folder(bench: &Bench) -> PathBuf {
    bench.path("hookserver.d")
}

/// Tells the bench's proxy of a hook server, which it need not have heard of when it starts.
pub(crate) fn register(bench: &Bench, server: &HookServer, hooks: &[&str]) {
    let entry = json!({ "remote-endpoint": server.path(), "failure-policy": "Fail", "runtime-hooks": hooks });
    std::fs::create_dir_all(hook_folder(bench)).unwrap();
    std::fs::write(hook_folder(bench).join("test.json"), entry.to_string()).unwrap();
}

/// `crictl` with a configuration of its own, at `socket`.
pub(crate) async fn crictl(crictl: &Path, socket: &Path, args: &[&str]) -> Output {
    process::output(&command(crictl, socket, args), PATIENCE).await.unwrap()
}

fn command(crictl: &Path, socket: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(crictl);
    command.args(["--config", "/dev/null", "--timeout", "10s", "--runtime-endpoint"]);
    command.arg(format!("unix://{}", socket.display())).args(args);
    command
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) async fn address(proxy: &mut Process) -> String {
    proxy
        .line(PATIENCE, "admin address", |line| {
            let (_, rest) = line.split_once("address=\"")?;
            Some(rest.split('"').next()?.to_owned())
        })
        .await
        .unwrap()
}

/// A call, but for the moment that it was made at.
fn timeless(mut call: Received) -> Received {
    for (_, value) in call.headers.iter_mut().filter(|(name, _)| name == "grpc-timeout") {
        value.clear();
    }
    call
}

#[tokio::test]
async fn the_runtime_sees_what_crictl_sent() {
    let Some(binary) = peers::binary("crictl") else { return };
    let bench = Bench::new();
    let runtime = recording(&bench);
    let (_proxy, socket) = start(&bench, runtime.path()).await;

    let script = script(&bench);
    let (mut calls, mut succeeded) = (0, 0);
    for args in &script {
        let args: Vec<_> = args.split(' ').collect();
        let (direct, sent) = recorded(&runtime, crictl(&binary, runtime.path(), &args)).await;
        let (through, arrived) = recorded(&runtime, crictl(&binary, &socket, &args)).await;
        assert_eq!(direct.status.code(), through.status.code(), "{args:?}: {through:?}");
        assert!(direct.stdout == through.stdout, "{args:?}: {through:?}");
        assert_eq!(sent.len(), arrived.len(), "{args:?}");
        for (sent, arrived) in sent.iter().zip(&arrived) {
            assert!(sent.data == arrived.data, "{args:?}: the data of {} differs", sent.method);
            assert_eq!(sent.headers, arrived.headers, "{args:?}: {}", sent.method);
            assert!(sent == arrived, "{args:?}: {} differs", sent.method);
        }
        calls += sent.len();
        succeeded += usize::from(direct.status.success());
    }
    assert!(
        calls > script.len() && succeeded > script.len() / 2,
        "{calls} calls, {succeeded} well"
    );
}

/// What crictl is asked to do, with whatever there is to be done to a pod and its container among
/// it.
pub(crate) fn script(bench: &Bench) -> Vec<String> {
    let metadata = json!({ "name": "p", "namespace": "n", "uid": "u", "attempt": 1 });
    let pod = json!({
        "metadata": metadata,
        // One of each: Go writes maps in any order.
        "labels": { "a": "b" },
        "annotations": { "long": "x".repeat(100_000) },
        "linux": { "cgroup_parent": "/p", "security_context": { "namespace_options": { "userns_options": { "mode": 2 } } } },
    });
    let container = json!({
        "metadata": { "name": "c" },
        "image": { "image": "busybox" },
        "envs": [{ "key": "A", "value": "1" }, { "key": "A", "value": "2" }],
        "mounts": [{ "host_path": "/", "container_path": "/host", "readonly": true, "recursive_read_only": true }],
        "CDI_devices": [{ "name": "vendor.com/gpu=0" }],
    });
    let (pod_file, container_file) = (bench.path("pod.json"), bench.path("container.json"));
    std::fs::write(&pod_file, pod.to_string()).unwrap();
    std::fs::write(&container_file, container.to_string()).unwrap();
    let (pod, container) = (pod_file.display(), container_file.display());
    [
        "version",
        "info",
        &format!("runp {pod}"),
        &format!("create --no-pull id-1 {container} {pod}"),
        "start id-1",
        "exec --sync id-1 echo a word",
        "update --cpuset-cpus 0 id-1",
        "ps --all --label a=b",
        "pods --output json",
        "stats --output json --seconds 0",
        "images",
        "pull registry.example/image:1",
        "imagefsinfo",
        "stop --timeout 3 id-1",
        "rm id-1",
        "stopp id-1",
        "rmp id-1",
        "runtime-config",
    ]
    .map(str::to_owned)
    .into()
}

/// What the runtime records while `crictl` runs.
pub(crate) async fn recorded(
    runtime: &Runtime,
    crictl: impl Future<Output = Output>,
) -> (Output, Vec<Received>) {
    let before = runtime.calls().len();
    let output = crictl.await;
    let calls = runtime.calls().split_off(before);
    (output, calls.into_iter().map(timeless).collect())
}

#[tokio::test]
async fn crictl_follows_events_and_leaves() {
    let Some(binary) = peers::binary("crictl") else { return };
    let bench = Bench::new();
    let runtime = Runtime::start(&bench.path("runtime.sock"));
    let events = vec![message(b"\x0a\x05first\x10\x01"), message(b"\x0a\x06second\x10\x02")];
    runtime.answer(move |method| match method {
        "/runtime.v1.RuntimeService/GetContainerEvents" => Reply::then(events.clone(), Then::Never),
        _ => Reply::default(),
    });
    let (_proxy, socket) = start(&bench, runtime.path()).await;
    let command = command(&binary, &socket, &["events"]);
    let mut crictl = Process::start("crictl", &command, bench.folder.path()).unwrap();
    for id in ["first", "second"] {
        crictl.line(PATIENCE, id, |line| line.contains(id).then_some(())).await.unwrap();
    }
    crictl.signal(Signal::KILL).unwrap();
    runtime
        .seen(|calls| {
            let mut events = calls.iter().filter(|call| call.method.ends_with("Events"));
            events.next().is_some_and(|call| call.end == End::Reset(8))
        })
        .await;
}

#[tokio::test]
async fn a_stop_does_not_wait_for_the_end_of_events() {
    let Some(binary) = peers::binary("crictl") else { return };
    let bench = Bench::new();
    let runtime = Runtime::start(&bench.path("runtime.sock"));
    runtime.answer(|method| match method.ends_with("/GetContainerEvents") {
        true => Reply::then(vec![message(b"\x0a\x05first\x10\x01")], Then::Never),
        false => Reply::default(),
    });
    // More than anybody waits for here.
    let mut proxy = launch(&bench, runtime.path(), &["--drain", "1h"]);
    address(&mut proxy).await;
    let command = command(&binary, &bench.path("proxy.sock"), &["events"]);
    let mut crictl = Process::start("crictl", &command, bench.folder.path()).unwrap();
    crictl.line(PATIENCE, "event", |line| line.contains("first").then_some(())).await.unwrap();
    assert!(proxy.stop(PATIENCE).await.unwrap().success());
    runtime.seen(|calls| calls.iter().all(|call| call.end != End::Open)).await;
}

#[tokio::test]
async fn a_stop_waits_for_calls_as_long_as_it_is_told_to() {
    let bench = Bench::new();
    let runtime = Runtime::start(&bench.path("runtime.sock"));
    runtime.answer(|_| Reply::then(Vec::new(), Then::Never));
    let mut proxy = launch(&bench, runtime.path(), &["--drain", "100ms"]);
    address(&mut proxy).await;
    let client = Client::dial(&bench.path("proxy.sock")).await;
    let hanging = client.call("/runtime.v1.RuntimeService/Version", Vec::new());
    let stopping = async {
        runtime.seen(|calls| calls.len() == 1).await;
        let log = proxy.log().to_owned();
        assert!(proxy.stop(PATIENCE).await.unwrap().success());
        let log = std::fs::read_to_string(log).unwrap();
        let cut = |line: &str| line.contains("closing connections in use");
        assert!(log.lines().any(|line| cut(line) && line.contains("drain=\"100ms\"")), "{log}");
    };
    let (answer, ()) = tokio::join!(hanging, stopping);
    answer.unwrap_err();
}

#[tokio::test]
async fn readiness_and_metrics_follow_the_runtime() {
    let Some(binary) = peers::binary("crictl") else { return };
    let bench = Bench::new();
    let (mut proxy, socket) = start(&bench, &bench.path("runtime.sock")).await;
    let address = address(&mut proxy).await;
    let url = |path: &str| format!("http://{address}{path}");
    assert_eq!(get(&url("/healthz")).0, 200);
    let (code, body) = get(&url("/readyz"));
    assert_eq!(code, 503);
    assert!(body.contains("runtime.sock"), "{body}");
    let output = crictl(&binary, &socket, &["version"]).await;
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("runtime.sock"), "{error}");

    let runtime = recording(&bench);
    proxy.ready(PATIENCE, "readyz", || ok(url("/readyz"))).await.unwrap();
    assert!(crictl(&binary, &socket, &["version"]).await.status.success());
    let (_, metrics) = get(&url("/metrics"));
    for line in [
        "wharf_proxy_runtime_connected 1",
        "wharf_proxy_calls_in_flight 0",
        "wharf_proxy_calls_total{method=\"/runtime.v1.RuntimeService/Version\",code=\"OK\"}",
        "wharf_proxy_calls_total{method=\"/runtime.v1.RuntimeService/Version\",code=\"Unavailable\"}",
    ] {
        assert!(metrics.contains(line), "no {line} in\n{metrics}");
    }
    runtime.kill().await;
    proxy
        .ready(PATIENCE, "the loss of the runtime", || async {
            (get(&url("/readyz")).0 == 503).then_some(())
        })
        .await
        .unwrap();
}

#[tokio::test]
async fn a_killed_proxy_is_replaced_and_a_stopped_one_leaves_nothing() {
    let Some(binary) = peers::binary("crictl") else { return };
    let bench = Bench::new();
    let runtime = recording(&bench);
    let (mut proxy, socket) = start(&bench, runtime.path()).await;
    proxy.signal(Signal::KILL).unwrap();
    proxy.wait(PATIENCE).await.unwrap();
    assert!(socket.exists());
    let (proxy, socket) = start(&bench, runtime.path()).await;
    assert!(crictl(&binary, &socket, &["version"]).await.status.success());
    assert!(proxy.stop(PATIENCE).await.unwrap().success());
    assert!(!socket.exists());
}

#[test]
fn bad_flags_are_named() {
    let cases: [(&[&str], &str); 3] = [
        (&["--listen", "a.sock", "--runtime", "/r.sock"], "absolute path"),
        (&["--listen", "/a.sock", "--runtime", "tcp://127.0.0.1:1"], "is not a unix socket"),
        (&["--listen", "/tmp/r.sock", "--runtime", "unix:///tmp/r.sock"], "the same socket"),
    ];
    for (args, wanted) in cases {
        let output = wharf(&[&["proxy"], args].concat());
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(wanted), "{args:?}: {error}");
    }
}
