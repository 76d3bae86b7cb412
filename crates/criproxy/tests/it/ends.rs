//! Ends of containers: told of once, of the right one, and never in place of what the runtime said.

use std::{path::Path, sync::Arc};

use prost::Message;
use tokio::sync::Notify;
use tonic::{Code, Status};
use wharf_proto::cri;
use wharf_testkit::{
    client::Client,
    hook_server::{Answer, HookScript, HookServer},
    runtime::{Received, Reply, Runtime, Then, message},
};

use crate::fixture::{DRAIN, Fixture};

/// A proxy, its runtime, and a server that is asked at the end of pods and containers, and must be.
struct Node {
    runtime: Runtime,
    server: HookServer,
    client: Client,
    _bench: Fixture,
    _folder: tempfile::TempDir,
}

impl Node {
    /// With a pod `pod` and these containers in it.
    async fn with(containers: &[&'static str]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let hooks = folder.path().join("hooks");
        let server = HookServer::serve(&folder.path().join("h.sock"), HookScript::default());
        register(&hooks, server.path());
        let fixture = Fixture::with(DRAIN, |options| options.hooks = hooks).await;
        let runtime = fixture.runtime().await;
        let client = Client::dial(&fixture.socket()).await;
        let node = Self { runtime, server, client, _bench: fixture, _folder: folder };
        node.runtime.answer(|_| made("pod"));
        node.call("RunPodSandbox", &cri::RunPodSandboxRequest::default()).await.unwrap();
        for id in containers {
            node.runtime.answer(|_| made(id));
            let create =
                cri::CreateContainerRequest { pod_sandbox_id: "pod".into(), ..Default::default() };
            node.call("CreateContainer", &create).await.unwrap();
        }
        node.runtime.answer(|_| Reply::default());
        node
    }

    async fn call(&self, method: &str, request: &impl Message) -> Result<(), Status> {
        let path = format!("/runtime.v1.RuntimeService/{method}");
        self.client.call(&path, request.encode_to_vec()).await.map(drop)
    }

    async fn stop(&self, id: &str) -> Result<(), Status> {
        let stop = cri::StopContainerRequest { container_id: id.into(), timeout: 0 };
        self.call("StopContainer", &stop).await
    }

    fn told_of(&self, id: &str) -> usize {
        let calls = self.server.calls();
        let ends = calls.iter().filter(|call| call.hook == "PostStopContainer");
        ends.filter(|call| call.container().container_meta.as_ref().unwrap().id == id).count()
    }
}

fn register(folder: &Path, socket: &Path) {
    std::fs::create_dir(folder).unwrap();
    let text = format!(
        r#"{{"remote-endpoint": {socket:?},
            "failure-policies": {{"PostStopContainer": "Fail", "PostStopPodSandbox": "Fail"}},
            "runtime-hooks": ["PostStopContainer", "PostStopPodSandbox"]}}"#
    );
    std::fs::write(folder.join("a.json"), text).unwrap();
}

fn made(id: &str) -> Reply {
    Reply::of(vec![message(
        &cri::RunPodSandboxResponse { pod_sandbox_id: id.to_owned() }.encode_to_vec(),
    )])
}

fn failed(code: &'static [u8]) -> Reply {
    let status = ("grpc-status".to_owned(), code.to_vec());
    Reply { headers: vec![status], ..Reply::then(Vec::new(), Then::Headers) }
}

#[tokio::test]
async fn an_update_that_ends_after_the_stop_does_not_undo_it() {
    let node = Node::with(&["a"]).await;
    let ended = Arc::new(Notify::new());
    let pause = Some(ended.clone());
    node.runtime.answer(move |method| match method.ends_with("/UpdateContainerResources") {
        true => Reply { pause: pause.clone(), ..Reply::default() },
        false => Reply::default(),
    });
    let update =
        cri::UpdateContainerResourcesRequest { container_id: "a".into(), ..Default::default() };
    let updating = node.call("UpdateContainerResources", &update);
    let stopping = async {
        let arrived = |call: &Received| call.method.ends_with("/UpdateContainerResources");
        node.runtime.seen(|calls| calls.iter().any(arrived)).await;
        node.stop("a").await.unwrap();
        assert_eq!(node.told_of("a"), 1);
        ended.notify_one();
    };
    let (updated, ()) = tokio::join!(updating, stopping);
    updated.unwrap();
    let remove = cri::RemoveContainerRequest { container_id: "a".into() };
    node.call("RemoveContainer", &remove).await.unwrap();
    assert_eq!(node.told_of("a"), 1);
}

#[tokio::test]
async fn the_runtimes_own_failure_is_what_the_caller_gets() {
    let node = Node::with(&["a"]).await;
    node.server.change(|script| {
        script.answer = Answer::Error(Status::aborted("no"));
    });
    node.runtime.answer(|_| failed(b"13"));
    assert_eq!(node.stop("a").await.unwrap_err().code(), Code::Internal);
    node.runtime.answer(|_| Reply::default());
    assert_eq!(node.stop("a").await.unwrap_err().code(), Code::Unknown);
}

/// Of no id there is no container, even where there is only one.
#[tokio::test]
async fn an_empty_id_is_nobodys() {
    let node = Node::with(&[]).await;
    node.runtime.tell(|method| match method.rsplit('/').next() {
        Some("ListContainers") => {
            let containers = vec![cri::Container {
                id: "only".into(),
                pod_sandbox_id: "pod".into(),
                ..Default::default()
            }];
            Reply::of(vec![message(&cri::ListContainersResponse { containers }.encode_to_vec())])
        }
        Some("ContainerStatus") => {
            let status = Some(cri::ContainerStatus { id: "only".into(), ..Default::default() });
            let answer = cri::ContainerStatusResponse { status, ..Default::default() };
            Reply::of(vec![message(&answer.encode_to_vec())])
        }
        _ => Reply::default(),
    });
    node.runtime.answer(|_| failed(b"3"));
    assert_eq!(node.stop("").await.unwrap_err().code(), Code::InvalidArgument);
    assert_eq!(node.told_of("only"), 0);
}
