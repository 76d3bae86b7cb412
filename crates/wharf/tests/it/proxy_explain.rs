//! `wharf proxy explain`: requests to hook servers, and the effects of their answers.

use std::{fs, process::Output, sync::Arc};

use anyhow::{Context, Result, ensure};
use prost_reflect::prost::Message;
use serde_json::{Value, json};
use tonic::Code;
use wharf_proto::{
    cri::{
        ContainerConfig, ContainerMetadata, CreateContainerRequest, CreateContainerResponse,
        KeyValue, PodSandboxConfig, PodSandboxMetadata, RestorePodRequest, RestorePodResponse,
        RestoredContainer, RunPodSandboxRequest, RunPodSandboxResponse, StopContainerRequest,
        StopContainerResponse,
    },
    hooks::PodSandboxHookResponse,
};
use wharf_testkit::{
    client::Client,
    cluster::Cluster,
    hook_server::{Answer, HookScript, HookServer, echo},
    peers,
    process::{Process, wait_for},
    runtime::{Reply, Runtime, message},
};

use crate::{
    proxy::{hook_folder, register, start},
    proxy_containerd::{Crictl, pod},
    proxy_generations::call,
    support::{Bench, PATIENCE, wharf},
};

const SECRET: &str = "hunter2-correct-horse";
/// A name that would clear the screen.
const EVIL: &str = "evil\u{1b}[2J\u{9b}2J";

const HOOKS: &[&str] = &["PreRunPodSandbox", "PreCreateContainer", "PostStopContainer"];

/// A runtime whose pods and containers have ids of their own.
pub(crate) fn runtime(bench: &Bench) -> Runtime {
    let runtime = Runtime::start(&bench.path("runtime.sock"));
    runtime.answer(|method| {
        let answer: &[u8] = match method.rsplit('/').next() {
            Some("RunPodSandbox") => b"\x0a\x05pod-1",
            Some("CreateContainer") => b"\x0a\x06ctr-12",
            _ => b"",
        };
        Reply::of(vec![message(answer)])
    });
    runtime
}

pub(crate) fn sandbox(namespace: &str, name: &str) -> PodSandboxConfig {
    let (name, namespace) = (name.to_owned(), namespace.to_owned());
    let metadata = PodSandboxMetadata { name, namespace, ..Default::default() };
    PodSandboxConfig { metadata: Some(metadata), ..Default::default() }
}

pub(crate) async fn run_pod(client: &Client, config: PodSandboxConfig) -> String {
    let request = RunPodSandboxRequest { config: Some(config), ..Default::default() };
    let made: RunPodSandboxResponse = call(client, "RunPodSandbox", &request).await.unwrap();
    made.pod_sandbox_id
}

/// A container with a secret.
fn container(name: &str) -> CreateContainerRequest {
    let metadata = ContainerMetadata { name: name.to_owned(), ..Default::default() };
    let env = KeyValue { key: "TOKEN".to_owned(), value: SECRET.into() };
    let config =
        ContainerConfig { metadata: Some(metadata), envs: vec![env], ..Default::default() };
    CreateContainerRequest {
        pod_sandbox_id: "pod-1".to_owned(),
        config: Some(config),
        ..Default::default()
    }
}

pub(crate) async fn create(client: &Client, name: &str) -> Result<String, tonic::Status> {
    let made: CreateContainerResponse = call(client, "CreateContainer", &container(name)).await?;
    Ok(made.container_id)
}

/// A hook server that changes a secret, an annotation, and CPUs.
fn changing() -> HookScript {
    HookScript {
        container: Arc::new(|_, asked| {
            let mut answer = echo(asked);
            answer.container_envs.insert("TOKEN".into(), format!("{SECRET}, changed"));
            answer.container_annotations.insert("vault".into(), SECRET.into());
            answer.container_resources.get_or_insert_default().cpuset_cpus = "0-1".into();
            answer
        }),
        ..HookScript::default()
    }
}

struct Node {
    client: Client,
    bench: Bench,
    _proxy: Process,
    _runtime: Runtime,
    hooks: HookServer,
}

impl Node {
    async fn start(script: HookScript) -> Self {
        let bench = Bench::new();
        let runtime = runtime(&bench);
        Self::before(bench, runtime, script).await
    }

    async fn before(bench: Bench, runtime: Runtime, script: HookScript) -> Self {
        let hooks = HookServer::serve(&bench.path("hooks.sock"), script);
        register(&bench, &hooks, HOOKS);
        let (proxy, socket) = start(&bench, runtime.path()).await;
        let client = Client::dial(&socket).await;
        Self { client, bench, _proxy: proxy, _runtime: runtime, hooks }
    }

    fn explain(&self, more: &[&str]) -> Output {
        let control = self.bench.path("state/control.sock");
        wharf(&[&["proxy", "explain", "--control", control.to_str().unwrap()], more].concat())
    }

    fn shown(&self, more: &[&str]) -> String {
        let output = self.explain(more);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// Why a name is refused.
    fn refused(&self, name: &str) -> String {
        let output = self.explain(&[name]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(output.stdout.is_empty(), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    }
}

fn is_safe(text: &str) {
    assert!(!text.contains("hunter2"), "{text}");
    let is_control = |char: char| char.is_control() && char != '\n';
    assert!(!text.contains(is_control), "{text:?}");
}

#[tokio::test]
async fn a_container_is_explained_by_id_name_and_pod() {
    let node = Node::start(changing()).await;
    run_pod(&node.client, sandbox("default", "web")).await;
    let id = create(&node.client, EVIL).await.unwrap();
    let request = StopContainerRequest { container_id: id, timeout: 0 };
    let _: StopContainerResponse = call(&node.client, "StopContainer", &request).await.unwrap();

    let whole = node.shown(&["ctr-12"]);
    for name in ["ctr-1", EVIL, &format!("default/web/{EVIL}")] {
        let shown = node.shown(&[name]);
        let records = |text: &str| text.split_once('\n').unwrap().1.to_owned();
        assert_eq!(records(&shown), records(&whole), "{name:?}");
    }
    is_safe(&whole);
    for expected in [
        "container default/web/evil\\u{1b}[2J\\u{9b}2J, id ctr-12\n2 hook calls since ",
        " PreCreateContainer default/web evil\\u{1b}[2J\\u{9b}2J (ctr-12), ",
        "; CreateContainer ended with OK after ",
        "\n  asked with envs[TOKEN]=(21 bytes)\n",
        "\n  test.json: ok after ",
        "\n    applied: cpuset_cpus: \"\" -> \"0-1\"",
        "\n    applied: envs[TOKEN]: (21 bytes) -> (30 bytes)",
        "\n    applied: annotations[vault]: absent -> (21 bytes)",
        " PostStopContainer default/web evil",
        "; StopContainer ended with OK after ",
    ] {
        assert!(whole.contains(expected), "no {expected:?} in\n{whole}");
    }

    let pod = node.shown(&["default/web"]);
    assert!(pod.starts_with("pod default/web\n3 hook calls since "), "{pod}");
    assert!(pod.contains(" PreRunPodSandbox default/web (pod-1), "), "{pod}");
    let text = node.shown(&["-o", "json", "pod-1"]);
    is_safe(&text);
    let explained: Value = serde_json::from_str(&text).unwrap();
    let [pod, create, stop] = &explained["decisions"].as_array().unwrap()[..] else {
        panic!("{text}")
    };
    assert_eq!((&pod["hook"], &pod["podId"]), (&json!("PreRunPodSandbox"), &json!("pod-1")));
    assert_eq!(create["container"], json!(EVIL));
    assert_eq!(create["request"]["envs[TOKEN]"], json!({ "bytes": 21 }));
    assert_eq!(create["call"]["code"], json!("OK"));
    assert_eq!((&stop["containerId"], &stop["verdict"]), (&json!("ctr-12"), &json!("went-on")));
}

#[tokio::test]
async fn names_that_mean_nothing_or_too_much_are_refused_with_a_reason() {
    let node = Node::start(HookScript::echo()).await;
    let unknown = node.refused("web");
    for expected in
        ["no hook call about \"web\" is kept", "the last 1000 hook calls", "has 0 since"]
    {
        assert!(unknown.contains(expected), "no {expected:?} in {unknown}");
    }
    for namespace in ["default", &format!("other{EVIL}")] {
        run_pod(&node.client, sandbox(namespace, "web")).await;
    }
    let ambiguous = node.refused("web");
    assert!(ambiguous.contains("pod default/web; pod other"), "{ambiguous}");
    is_safe(&ambiguous);
    let empty = node.explain(&[""]);
    assert_eq!(empty.status.code(), Some(2), "{empty:?}");
    let output = wharf(&["proxy", "explain", "--control", "/no/such/socket", "web"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(
        said.contains("no proxy answers at /no/such/socket: start the proxy, or set"),
        "{said}"
    );
}

#[tokio::test]
async fn a_refused_call_and_a_pod_without_hooks_are_explained() {
    let node = Node::start(HookScript::default()).await;
    let mut config = sandbox("kube-system", "hooks");
    let (key, value) = ("runtimeproxy.koordinator.sh/skip-hookserver", "true");
    config.labels.insert(key.to_owned(), value.to_owned());
    run_pod(&node.client, config).await;
    let shown = node.shown(&["kube-system/hooks"]);
    assert!(shown.contains("no hooks: --skip leaves out pods with its label"), "{shown}");

    run_pod(&node.client, sandbox("default", "web")).await;
    fs::write(
        hook_folder(&node.bench).join("test.json"),
        json!({
            "remote-endpoint": node.bench.path("nobody.sock"),
            "failure-policy": "Fail",
            "runtime-hooks": ["PreCreateContainer"],
        })
        .to_string(),
    )
    .unwrap();
    let refused = || async { create(&node.client, "main").await.err() };
    let error = wait_for(PATIENCE, "the new file", refused).await.unwrap();
    assert_eq!(error.code(), Code::Unavailable);
    let shown = node.shown(&["main"]);
    for expected in [
        ", refused; CreateContainer ended with Unavailable after ",
        "test.json: Unavailable after ",
        ", policy Fail\n    error: ",
        "nobody.sock",
    ] {
        assert!(shown.contains(expected), "no {expected:?} in\n{shown}");
    }
}

#[tokio::test]
async fn a_life_in_containerd_is_explained_and_was_shown_as_it_went() -> Result<()> {
    let Some(binary) = peers::binary("crictl") else { return Ok(()) };
    let Some(cluster) = Cluster::builder().containerd(true).start().await? else { return Ok(()) };
    let bench = Bench::new();
    let hooks = HookServer::serve(&bench.path("hooks.sock"), HookScript::echo());
    register(&bench, &hooks, HOOKS);
    let (proxy, socket) = start(&bench, &cluster.runtime_socket()).await;
    let control = bench.path("state/control.sock");
    let control = control.to_str().context("a path of text")?;
    let mut tap = bench.start("tap", &["proxy", "tap", "--control", control, "--pod", "p"]);
    let header = |line: &str| line.starts_with("TIME ").then_some(());
    tap.line(PATIENCE, "its header", header).await?;
    pod(&cluster, &Crictl { binary, socket }).await?;

    let last = |line: &str| line.contains(" RemovePodSandbox ").then_some(());
    tap.line(PATIENCE, "the end of the pod", last).await?;
    let shown = fs::read_to_string(tap.log())?;
    let is_shown =
        |words: &[&str]| shown.lines().any(|line| words.iter().all(|word| line.contains(word)));
    for method in ["RunPodSandbox", "StopPodSandbox"] {
        ensure!(is_shown(&[method, " default/p ", " OK"]), "{method}: {shown}");
    }
    for method in ["CreateContainer", "StartContainer", "UpdateContainerResources"] {
        ensure!(is_shown(&[method, " default/p ", " c ", " OK"]), "{method}: {shown}");
    }
    for command in [&["c"][..], &["default/p/c"], &["default/p"]] {
        let output = wharf(&[&["proxy", "explain", "--control", control], command].concat());
        ensure!(output.status.success(), "{command:?}: {output:?}");
        let shown = String::from_utf8(output.stdout)?;
        for expected in ["PreCreateContainer default/p c (", "PostStopContainer", "ended with OK"] {
            ensure!(shown.contains(expected), "no {expected} in {shown}");
        }
        ensure!(!shown.contains("inside"), "a variable's value: {shown}");
    }
    ensure!(proxy.stop(PATIENCE).await?.success());
    cluster.stop().await
}

/// A hook server that changes every pod and every container.
fn labelling() -> HookScript {
    HookScript {
        pod: Arc::new(|_, _| PodSandboxHookResponse {
            labels: [("hooked".to_owned(), "yes".to_owned())].into(),
            annotations: [("vault".to_owned(), SECRET.to_owned())].into(),
            ..Default::default()
        }),
        ..changing()
    }
}

#[tokio::test]
async fn what_is_carried_from_a_pod_into_its_container_is_explained() {
    let node = Node::start(labelling()).await;
    run_pod(&node.client, sandbox("default", "web")).await;
    create(&node.client, "main").await.unwrap();
    let shown = node.shown(&["default/web/main"]);
    is_safe(&shown);
    let carried =
        "\n  changed at PreRunPodSandbox, and repeated in the container\n  test.json: carried";
    for expected in [
        carried,
        "\n    applied: labels[hooked]: absent -> \"yes\"",
        "\n    applied: annotations[vault]: absent -> (21 bytes)",
    ] {
        assert!(shown.contains(expected), "no {expected:?} in\n{shown}");
    }
    let text = node.shown(&["-o", "json", "ctr-12"]);
    let explained: Value = serde_json::from_str(&text).unwrap();
    let records = explained["decisions"].as_array().unwrap();
    let outcomes = records.iter().map(|record| &record["servers"][0]["outcome"]);
    let carried = outcomes.filter(|outcome| **outcome == json!("carried")).count();
    assert_eq!((records.len(), carried), (2, 1), "{text}");
}

#[tokio::test]
async fn a_restored_pod_and_its_containers_are_explained() {
    let bench = Bench::new();
    let runtime = runtime(&bench);
    let restored = RestorePodResponse {
        pod_sandbox_id: "pod-1".to_owned(),
        restored_containers: vec![RestoredContainer {
            name: "main".to_owned(),
            container_id: "ctr-12".to_owned(),
        }],
    };
    let answer = restored.encode_to_vec();
    runtime.answer(move |_| Reply::of(vec![message(&answer)]));
    let node = Node::before(bench, runtime, labelling()).await;
    let request = RestorePodRequest {
        config: Some(sandbox("default", "web")),
        container_configs: vec![container("main").config.unwrap()],
        ..Default::default()
    };
    let _: RestorePodResponse = call(&node.client, "RestorePod", &request).await.unwrap();

    let pod = node.shown(&["default/web"]);
    is_safe(&pod);
    assert!(pod.starts_with("pod default/web\n2 hook calls since "), "{pod}");
    for expected in [
        " PreRunPodSandbox default/web (pod-1), ",
        "; RestorePod ended with OK after ",
        "\n    applied: labels[hooked]: absent -> \"yes\"",
        " PreCreateContainer default/web main",
        "\n    applied: cpuset_cpus: \"\" -> \"0-1\"",
    ] {
        assert!(pod.contains(expected), "no {expected:?} in\n{pod}");
    }
    for name in ["main", "default/web/main"] {
        let shown = node.shown(&[name]);
        assert!(shown.contains("\n1 hook calls since "), "{name}: {shown}");
        assert!(shown.contains("; RestorePod ended with OK after "), "{name}: {shown}");
    }

    node.hooks.change(|script| script.answer = Answer::Error(tonic::Status::internal("no")));
    let refused = call::<RestorePodResponse>(&node.client, "RestorePod", &request).await;
    refused.unwrap_err();
    let pod = node.shown(&["default/web"]);
    assert!(pod.contains(", refused; RestorePod ended with Unknown after "), "{pod}");
}
