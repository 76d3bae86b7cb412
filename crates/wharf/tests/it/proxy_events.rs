//! Ends of containers that the runtime reports, while one process of the proxy takes over from
//! another.

use prost_reflect::prost::{Message, bytes::Bytes};
use tokio::sync::watch;
use wharf_proto::cri;
use wharf_testkit::{
    client::Client,
    hook_server::{HookScript, HookServer},
    process::wait_for,
    runtime::{Reply, Runtime, message},
};

use crate::{
    proxy::register,
    proxy_generations::{Generations, call},
    support::{Bench, PATIENCE, wharf},
};

const EVENTS: &str = "/GetContainerEvents";

/// A runtime that makes the pod `pod` and the containers `first` and `second`, and sends `events`
/// on every stream.
fn runtime(bench: &Bench, events: &watch::Sender<Vec<Bytes>>) -> Runtime {
    let runtime = Runtime::start(&bench.path("runtime.sock"));
    runtime.answer(|method| match method.rsplit('/').next() {
        Some("RunPodSandbox") => Reply::of(vec![message(b"\x0a\x03pod")]),
        Some("CreateContainer") => Reply::of(vec![message(b"\x0a\x05first")]),
        _ => Reply::default(),
    });
    let pods = vec![cri::PodSandbox { id: "pod".to_owned(), ..Default::default() }];
    let pods = cri::ListPodSandboxResponse { items: pods }.encode_to_vec();
    let container = cri::Container {
        id: "first".to_owned(),
        pod_sandbox_id: "pod".to_owned(),
        state: cri::ContainerState::ContainerRunning.into(),
        ..Default::default()
    };
    let containers = cri::ListContainersResponse { containers: vec![container] }.encode_to_vec();
    let events = events.subscribe();
    runtime.tell(move |method| match method.rsplit('/').next() {
        Some("GetContainerEvents") => Reply { more: Some(events.clone()), ..Reply::of(Vec::new()) },
        Some("ListPodSandbox") => Reply::of(vec![message(&pods)]),
        Some("ListContainers") => Reply::of(vec![message(&containers)]),
        _ => Reply::default(),
    });
    runtime
}

async fn make(client: &Client) {
    let metadata = cri::PodSandboxMetadata {
        name: "p".to_owned(),
        uid: "u".to_owned(),
        namespace: "n".to_owned(),
        attempt: 0,
    };
    let config = cri::PodSandboxConfig { metadata: Some(metadata), ..Default::default() };
    let request = cri::RunPodSandboxRequest { config: Some(config), ..Default::default() };
    call::<cri::RunPodSandboxResponse>(client, "RunPodSandbox", &request).await.unwrap();
    let metadata = cri::ContainerMetadata { name: "c".to_owned(), attempt: 0 };
    let request = cri::CreateContainerRequest {
        pod_sandbox_id: "pod".to_owned(),
        config: Some(cri::ContainerConfig { metadata: Some(metadata), ..Default::default() }),
        sandbox_config: None,
    };
    call::<cri::CreateContainerResponse>(client, "CreateContainer", &request).await.unwrap();
}

fn stopped() -> Bytes {
    let event = cri::ContainerEventResponse {
        container_id: "first".to_owned(),
        container_event_type: cri::ContainerEventType::ContainerStoppedEvent.into(),
        ..Default::default()
    };
    message(&event.encode_to_vec())
}

/// How often the end was told of.
fn told(server: &HookServer) -> usize {
    server.calls().iter().filter(|call| call.hook == "PostStopContainer").count()
}

async fn is_told(server: &HookServer) {
    let is_told = || std::future::ready((told(server) > 0).then_some(()));
    wait_for(PATIENCE, "a hook", is_told).await.unwrap();
}

fn streams(runtime: &Runtime) -> usize {
    runtime.inquiries().iter().filter(|call| call.method.ends_with(EVENTS)).count()
}

/// The event comes before or after the hand-over: one of the two processes sends PostStopContainer,
/// once.
#[tokio::test]
async fn one_of_two_generations_tells_of_an_end() {
    for early in [true, false] {
        let bench = Bench::new();
        let events = watch::Sender::default();
        let runtime = runtime(&bench, &events);
        let server = HookServer::serve(&bench.path("hooks.sock"), HookScript::default());
        register(&bench, &server, &["PostStopContainer"]);
        let generations = Generations::before(bench, &runtime);
        let mut old = generations.start().await;
        make(&Client::dial(&generations.socket()).await).await;
        runtime.inquired(|calls| calls.iter().any(|call| call.method.ends_with(EVENTS))).await;
        if early {
            events.send_modify(|events: &mut Vec<_>| events.push(stopped()));
            is_told(&server).await;
        }
        let before = streams(&runtime);
        let _successor = generations.upgrade().await;
        assert!(old.wait(PATIENCE).await.unwrap().success());
        // The successor hears of all events, too.
        runtime
            .inquired(|calls| {
                calls.iter().filter(|call| call.method.ends_with(EVENTS)).count() > before
            })
            .await;
        events.send_modify(|events| events.push(stopped()));
        is_told(&server).await;
        let request = cri::StopContainerRequest { container_id: "first".to_owned(), timeout: 0 };
        let client = Client::dial(&generations.socket()).await;
        call::<cri::StopContainerResponse>(&client, "StopContainer", &request).await.unwrap();
        assert_eq!(told(&server), 1, "early: {early}");
    }
}

#[tokio::test]
async fn status_says_that_a_runtime_has_no_events() {
    let bench = Bench::new();
    let runtime = Runtime::start(&bench.path("runtime.sock"));
    runtime.tell(|method| match method.ends_with(EVENTS) {
        true => Reply {
            headers: vec![("grpc-status".to_owned(), b"12".to_vec())],
            ..Reply::then(Vec::new(), wharf_testkit::runtime::Then::Headers)
        },
        false => Reply::default(),
    });
    let server = HookServer::serve(&bench.path("hooks.sock"), HookScript::default());
    register(&bench, &server, &["PostStopContainer"]);
    let generations = Generations::before(bench, &runtime);
    let _proxy = generations.start().await;
    let control = generations.control();
    let says = || {
        let output = wharf(&["proxy", "status", "--control", control.to_str().unwrap()]);
        let said = String::from_utf8(output.stdout).unwrap();
        std::future::ready(said.contains("has no container events").then_some(()))
    };
    wait_for(PATIENCE, "a note", says).await.unwrap();
}
