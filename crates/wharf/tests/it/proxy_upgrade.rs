//! Upgrades of `wharf proxy`: a successor takes over without a failed call.

use std::{fs, process::Command, sync::Arc};

use prost_reflect::prost::Message;
use rustix::process::Signal;
use tokio::sync::Notify;
use wharf_proto::cri;
use wharf_testkit::{
    client::Client,
    hook_server::{HookScript, HookServer},
    peers,
    process::{Process, wait_for},
    runtime::{End, Reply, Runtime, Then, message},
};

use crate::{
    proxy::{address, recording, register},
    proxy_generations::{Generations, Successor, call, processes_of, version},
    support::{Bench, PATIENCE, get, wharf},
};

const HOOKS: &[&str] = &["PreCreateContainer", "PreStartContainer", "PostStopContainer"];

#[tokio::test]
async fn a_successor_takes_over_and_the_old_process_ends() {
    let bench = Bench::new();
    let runtime = recording(&bench);
    let generations = Generations::before(bench, &runtime);
    let mut old = generations.start().await;
    let http = address(&mut old).await;
    let held = Client::dial(&generations.socket()).await;
    version(&held).await.unwrap();

    let successor = generations.upgrade().await;
    assert!(old.wait(PATIENCE).await.unwrap().success());
    version(&held).await.unwrap();
    generations.call().await.unwrap();
    let ready =
        || std::future::ready((get(&format!("http://{http}/readyz")).0 == 200).then_some(()));
    wait_for(PATIENCE, "readiness at the same address", ready).await.unwrap();
    let control = generations.control();
    assert!(wharf(&["proxy", "status", "--control", control.to_str().unwrap()]).status.success());

    successor.stop().await;
    assert!(!generations.socket().exists() && !control.exists(), "they were the successor's");
}

#[tokio::test]
async fn a_hangup_is_a_wish_for_an_upgrade() {
    let bench = Bench::new();
    let runtime = recording(&bench);
    let generations = Generations::before(bench, &runtime);
    let mut old = generations.start().await;
    old.signal(Signal::HUP).unwrap();
    let state = generations.notified.next().await;
    assert!(state.starts_with("RELOADING=1\nMONOTONIC_USEC="), "{state}");
    let state = generations.notified.next().await;
    assert!(state.starts_with("MAINPID=") && state.contains("\nREADY=1"), "{state}");
    let pid = state.lines().next().and_then(|line| line.strip_prefix("MAINPID=")).unwrap();
    let _successor = Successor::with_pid(pid.parse().unwrap());
    generations.call().await.unwrap();
    assert!(old.wait(PATIENCE).await.unwrap().success());
}

#[tokio::test]
async fn a_successor_that_fails_changes_nothing() {
    let bench = Bench::new();
    let runtime = recording(&bench);
    let generations = Generations::before(bench, &runtime);
    let old = generations.start().await;
    let scripts = [
        ("#!/bin/sh\nexit 3\n", "exit status: 3"),
        ("#!/no/such/shell\n", "cannot start"),
        // As a release does that knows of no hand-over.
        ("#!/bin/sh\nexec sleep 1000\n", "did not get ready within"),
    ];
    for (script, reason) in scripts {
        generations.replace_program(script);
        let output = generations.ask_for_upgrade().await;
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(reason), "{reason}: {said}");
        let state = generations.notified.until("STATUS=upgrade failed").await;
        assert!(state.contains("READY=1") && state.contains(reason), "{state}");
        generations.call().await.unwrap();
    }
    let log = fs::read_to_string(old.log()).unwrap();
    assert_eq!(log.matches("upgrade failed, this process continues to serve").count(), 3, "{log}");
    assert_eq!(processes_of(&generations.program()).len(), 1, "no successor is left over");
    assert!(old.stop(PATIENCE).await.unwrap().success());
    assert!(!generations.socket().exists());
}

/// A runtime whose stream of events says something, and goes on.
fn with_events(bench: &Bench) -> Runtime {
    let runtime = Runtime::start(&bench.path("runtime.sock"));
    runtime.answer(|method| match method.ends_with("/GetContainerEvents") {
        true => Reply::then(vec![message(b"\x0a\x05first\x10\x01")], Then::Never),
        false => Reply::default(),
    });
    runtime
}

/// How many streams of events the runtime serves: their requests have ended, and nobody has reset
/// them.
fn open(runtime: &Runtime) -> usize {
    let calls = runtime.calls();
    let events = calls.iter().filter(|call| call.method.ends_with("/GetContainerEvents"));
    events.filter(|call| call.end == End::Ended).count()
}

async fn events(generations: &Generations, name: &str) -> Option<Process> {
    let binary = peers::binary("crictl")?;
    let mut command = Command::new(binary);
    command.args(["--config", "/dev/null", "--runtime-endpoint"]);
    command.arg(format!("unix://{}", generations.socket().display())).arg("events");
    let mut crictl = Process::start(name, &command, generations.bench.folder.path()).unwrap();
    let first = |line: &str| line.contains("first").then_some(());
    crictl.line(PATIENCE, "an event", first).await.unwrap();
    Some(crictl)
}

#[tokio::test]
async fn streams_of_events_stay_with_the_old_process_until_the_next_upgrade() {
    let bench = Bench::new();
    let runtime = with_events(&bench);
    let generations = Generations::before(bench, &runtime);
    let mut first = generations.start().await;
    let Some(mut early) = events(&generations, "early").await else { return };

    let second = generations.upgrade().await;
    let _late = events(&generations, "late").await;
    for _ in 0..20 {
        generations.call().await.unwrap();
    }
    assert_eq!(open(&runtime), 2, "that of the first process goes on");

    let _third = generations.upgrade().await;
    assert!(first.wait(PATIENCE).await.unwrap().success(), "one old process lingers, not two");
    early.wait(PATIENCE).await.unwrap();
    let closed = async || (open(&runtime) < 2).then_some(());
    wait_for(PATIENCE, "the runtime to see the end of a process", closed).await.unwrap();
    assert_eq!(open(&runtime), 1, "that of the second process goes on");
    generations.call().await.unwrap();
    // Nobody leads it any more.
    drop(_third);
    second.ended().await;
}

/// A runtime with a pod and a container of it, to which a call of this method is answered once it
/// is let.
fn hesitant(bench: &Bench, method: &'static str) -> (Runtime, Arc<Notify>) {
    let (runtime, go) = (Runtime::start(&bench.path("runtime.sock")), Arc::new(Notify::new()));
    let pause = go.clone();
    runtime.answer(move |called| {
        let pause = called.ends_with(method).then(|| pause.clone());
        Reply { pause, ..quick(called) }
    });
    let (id, pod_sandbox_id) = ("id-1".to_owned(), "pod-1".to_owned());
    let pod = cri::PodSandbox { id: pod_sandbox_id.clone(), ..Default::default() };
    let container = cri::Container { id, pod_sandbox_id, ..Default::default() };
    let pods = cri::ListPodSandboxResponse { items: vec![pod] }.encode_to_vec();
    let containers = cri::ListContainersResponse { containers: vec![container] }.encode_to_vec();
    runtime.tell(move |called| match called.rsplit('/').next() {
        Some("ListPodSandbox") => Reply::of(vec![message(&pods)]),
        Some("ListContainers") => Reply::of(vec![message(&containers)]),
        _ => Reply::default(),
    });
    (runtime, go)
}

fn quick(method: &str) -> Reply {
    Reply::of(vec![match method.ends_with("/RunPodSandbox") {
        true => message(b"\x0a\x05pod-1"),
        false => message(b"\x0a\x04id-1"),
    }])
}

async fn run_pod(client: &Client) {
    let metadata = cri::PodSandboxMetadata {
        name: "p".to_owned(),
        uid: "u".to_owned(),
        namespace: "n".to_owned(),
        attempt: 0,
    };
    let config = cri::PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
    let request = cri::RunPodSandboxRequest { config: Some(config), ..Default::default() };
    call::<cri::RunPodSandboxResponse>(client, "RunPodSandbox", &request).await.unwrap();
}

fn create() -> cri::CreateContainerRequest {
    let metadata = cri::ContainerMetadata { name: "c".to_owned(), attempt: 0 };
    let secret = cri::KeyValue { key: "KEY".to_owned(), value: b"value".to_vec() };
    let config =
        cri::ContainerConfig { metadata: Some(metadata), envs: vec![secret], ..Default::default() };
    cri::CreateContainerRequest {
        pod_sandbox_id: "pod-1".to_owned(),
        config: Some(config),
        sandbox_config: None,
    }
}

fn stop() -> cri::StopContainerRequest {
    cri::StopContainerRequest { container_id: "id-1".to_owned(), timeout: 0 }
}

/// Asserts that the last hook was told of all that was asked for.
fn knows_the_container(hooks: &HookServer, hook: &str) {
    let calls = hooks.calls();
    let last = calls.last().unwrap();
    assert_eq!(last.hook, hook);
    let question = last.container();
    assert_eq!(question.container_envs["KEY"], "value", "{question:?}");
    assert_eq!(question.pod_meta.as_ref().unwrap().name, "p");
    assert_eq!(question.container_meta.as_ref().unwrap().id, "id-1");
}

/// A container that a call under way makes is known to the successor before its maker has the
/// answer.
#[tokio::test]
async fn what_a_call_under_way_makes_is_known_to_the_successor() {
    let bench = Bench::new();
    let (runtime, go) = hesitant(&bench, "/CreateContainer");
    let hooks = HookServer::serve(&bench.path("hooks.sock"), HookScript::echo());
    register(&bench, &hooks, HOOKS);
    let generations = Generations::before(bench, &runtime);
    let mut old = generations.start().await;
    let client = Client::dial(&generations.socket()).await;
    run_pod(&client).await;
    let request = create();
    let creating = call::<cri::CreateContainerResponse>(&client, "CreateContainer", &request);
    let replacing = async {
        runtime.seen(|calls| calls.iter().any(|it| it.method.ends_with("Container"))).await;
        let successor = generations.upgrade().await;
        generations.call().await.unwrap();
        go.notify_one();
        successor
    };
    let (created, _successor) = tokio::join!(creating, replacing);
    created.unwrap();

    let client = Client::dial(&generations.socket()).await;
    let request = cri::StartContainerRequest { container_id: "id-1".to_owned() };
    call::<cri::StartContainerResponse>(&client, "StartContainer", &request).await.unwrap();
    knows_the_container(&hooks, "PreStartContainer");
    call::<cri::StopContainerResponse>(&client, "StopContainer", &stop()).await.unwrap();
    knows_the_container(&hooks, "PostStopContainer");
    assert!(old.wait(PATIENCE).await.unwrap().success());
}

/// Of two stops of one container in two processes, one tells.
#[tokio::test]
async fn the_end_of_a_container_is_told_once_by_two_processes() {
    let bench = Bench::new();
    let (runtime, go) = hesitant(&bench, "/StopContainer");
    let hooks = HookServer::serve(&bench.path("hooks.sock"), HookScript::echo());
    register(&bench, &hooks, HOOKS);
    let generations = Generations::before(bench, &runtime);
    let mut old = generations.start().await;
    let client = Client::dial(&generations.socket()).await;
    run_pod(&client).await;
    call::<cri::CreateContainerResponse>(&client, "CreateContainer", &create()).await.unwrap();
    let request = stop();
    let first = call::<cri::StopContainerResponse>(&client, "StopContainer", &request);
    let replaced = async {
        runtime.seen(|calls| calls.iter().any(|it| it.method.ends_with("/StopContainer"))).await;
        runtime.answer(quick);
        // Through two generations.
        let successors = (generations.upgrade().await, generations.upgrade().await);
        let client = Client::dial(&generations.socket()).await;
        let again = call::<cri::StopContainerResponse>(&client, "StopContainer", &request);
        let others = async {
            // About something else, and so not held up.
            run_pod(&Client::dial(&generations.socket()).await).await;
            generations.call().await.unwrap();
            go.notify_one();
        };
        let (again, ()) = tokio::join!(again, others);
        again.unwrap();
        successors
    };
    let (first, _successors) = tokio::join!(first, replaced);
    first.unwrap();
    let told = hooks.hooks().iter().filter(|hook| **hook == "PostStopContainer").count();
    assert_eq!(told, 1);
    assert!(old.wait(PATIENCE).await.unwrap().success());
}

#[tokio::test]
async fn a_second_upgrade_follows_the_first() {
    let bench = Bench::new();
    let (runtime, _) = hesitant(&bench, "/no method");
    let hooks = HookServer::serve(&bench.path("hooks.sock"), HookScript::echo());
    register(&bench, &hooks, HOOKS);
    let generations = Generations::before(bench, &runtime);
    let mut first = generations.start().await;
    let client = Client::dial(&generations.socket()).await;
    run_pod(&client).await;
    call::<cri::CreateContainerResponse>(&client, "CreateContainer", &create()).await.unwrap();
    let second = generations.upgrade().await;
    let _third = generations.upgrade().await;
    assert!(first.wait(PATIENCE).await.unwrap().success());
    second.ended().await;
    call::<cri::StopContainerResponse>(&client, "StopContainer", &stop()).await.unwrap();
    knows_the_container(&hooks, "PostStopContainer");
}
