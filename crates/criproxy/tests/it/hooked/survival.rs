//! What ends koord-runtime-proxy, which does not survive a panic.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicUsize, Ordering},
};

use prost::Message;
use tokio::task::JoinSet;
use tonic::Code;
use wharf_proto::{
    cri,
    hooks::{ContainerResourceHookResponse, LinuxContainerResources, PodSandboxHookResponse},
};
use wharf_testkit::hook_server::{HookScript, echo};

use super::{
    node::{FAIL, IGNORE, Node, Plan, file},
    past::{CONTAINER, POD, Past},
    samples::{create, env, map, run, update},
};
use crate::fixture::soon;

/// A file that is empty while it is written leaves koord-runtime-proxy with a server without a
/// configuration.
#[tokio::test]
async fn calls_go_on_while_files_are_half_written() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let good = file(&plan.socket("a.json"), FAIL);
    let node = plan.start().await;
    let done = AtomicBool::new(false);
    let made = AtomicUsize::new(0);
    let calls = async {
        while !done.load(Ordering::Relaxed) {
            node.pod().await;
            made.fetch_add(1, Ordering::Relaxed);
        }
    };
    let files = async {
        for bad in ["", "{", "null", r#"{"remote-endpoint": "relative.sock"}"#] {
            let state = if bad.is_empty() { "empty" } else { "refused" };
            let line =
                |files: u8| format!("wharf_proxy_hook_config_files{{state=\"{state}\"}} {files}");
            // A new file, and one that was good before.
            node.write("b.json", bad);
            node.fixture.counts(&line(1)).await;
            node.write("a.json", bad);
            node.fixture.counts(&line(2)).await;
            let before = made.load(Ordering::Relaxed);
            while made.load(Ordering::Relaxed) < before + 3 {
                tokio::task::yield_now().await;
            }
            node.write("a.json", &good);
            node.remove("b.json");
            node.fixture.counts(&line(0)).await;
        }
        done.store(true, Ordering::Relaxed);
    };
    soon(async { tokio::join!(calls, files) }).await;
    let made = made.into_inner();
    assert_eq!((server.calls().len(), node.received("RunPodSandbox").len()), (made, made));
}

/// The runtime of this test makes containers of pods that do not exist, which is more than any will
/// do.
#[tokio::test]
async fn a_container_of_a_pod_that_nobody_knows() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start_before(Past::empty()).await;
    let container = node.kubelet.create(&create("nobody's")).await.unwrap();
    node.kubelet.start(&container).await.unwrap();
    node.kubelet.update(&update(&container, "cpu.weight")).await.unwrap();
    node.kubelet.stop(&container).await.unwrap();
    node.kubelet.remove(&container).await.unwrap();
    assert_eq!(server.hooks(), [""; 0], "there is no pod to tell of");
    assert_eq!(node.runtime.calls().len(), 5);
    node.container().await;
    assert_eq!(server.hooks(), ["PreRunPodSandbox", "PreCreateContainer"]);
}

#[tokio::test]
async fn a_container_of_a_pod_that_only_the_runtime_knows() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start_before(Past::empty()).await;
    // It came to be behind our back, after the runtime was asked for all that it runs.
    node.runtime
        .inquired(|asked| asked.iter().any(|call| call.method.ends_with("/ListContainers")))
        .await;
    node.has_records(0, 0).await;
    Past { container: None, ..Past::one() }.of(&node.runtime);
    node.kubelet.create(&create(POD)).await.unwrap();
    let [asked] = &server.calls()[..] else { panic!("{:?}", server.hooks()) };
    assert_eq!(asked.hook, "PreCreateContainer");
    assert_eq!(asked.container().pod_labels, map(&[("app", "web")]));
    assert_eq!(asked.container().pod_meta.as_ref().unwrap().name, "web-0");
    node.has_records(1, 1).await;
}

/// Where an answer belongs is made if the request does not have it.
#[tokio::test]
async fn answers_to_requests_that_lack_where_they_belong() {
    let plan = Plan::new();
    let script = HookScript {
        pod: Arc::new(|_, _| PodSandboxHookResponse {
            labels: map(&[("l", "1")]),
            annotations: map(&[("a", "1")]),
            cgroup_parent: "/new".into(),
            ..Default::default()
        }),
        container: Arc::new(|_, _| ContainerResourceHookResponse {
            container_annotations: map(&[("c", "1")]),
            container_resources: Some(LinuxContainerResources {
                cpu_shares: 7,
                cpuset_cpus: "0".into(),
                unified: map(&[("cpu.weight", "9")]),
                ..Default::default()
            }),
            pod_cgroup_parent: "/newer".into(),
            container_envs: map(&[("E", "1")]),
            ..Default::default()
        }),
        ..HookScript::default()
    };
    let _server = plan.server("a.json", FAIL, script);
    let node = plan.start().await;
    let bare = cri::PodSandboxConfig::default();
    for config in [None, Some(bare.clone())] {
        let request = cri::RunPodSandboxRequest { config, ..Default::default() };
        let pod = node.kubelet.run(&request).await.unwrap();
        let ran: cri::RunPodSandboxRequest = node.last("RunPodSandbox");
        let config = ran.config.unwrap();
        assert_eq!((config.labels, config.annotations), (map(&[("l", "1")]), map(&[("a", "1")])));
        assert_eq!(config.linux.unwrap().cgroup_parent, "/new");

        for (config, sandbox_config) in
            [(None, None), (Some(cri::ContainerConfig::default()), Some(bare.clone()))]
        {
            let pod_sandbox_id = pod.clone();
            let request = cri::CreateContainerRequest { pod_sandbox_id, config, sandbox_config };
            let container = node.kubelet.create(&request).await.unwrap();
            let created: cri::CreateContainerRequest = node.last("CreateContainer");
            assert_eq!(created.sandbox_config.unwrap().linux.unwrap().cgroup_parent, "/newer");
            let config = created.config.unwrap();
            assert_eq!(config.annotations, map(&[("c", "1")]));
            assert_eq!(config.envs, [env("E", "1")]);
            let resources = config.linux.unwrap().resources.unwrap();
            assert_eq!((resources.cpu_shares, resources.cpuset_cpus.as_str()), (7, "0"));
            assert_eq!(resources.unified, map(&[("cpu.weight", "9")]));

            let container_id = container.clone();
            let request =
                cri::UpdateContainerResourcesRequest { container_id, ..Default::default() };
            node.kubelet.update(&request).await.unwrap();
            let updated: cri::UpdateContainerResourcesRequest =
                node.last("UpdateContainerResources");
            assert_eq!(updated.linux.unwrap().cpu_shares, 7);
            assert_eq!(updated.annotations, map(&[("c", "1")]));
        }
    }
}

/// Each update adds a file of cgroup v2 to what is remembered, so that the last one has them all
/// unless one was lost.
#[tokio::test(flavor = "multi_thread")]
async fn a_container_that_is_started_and_updated_by_many_at_a_time() {
    const CALLERS: usize = 8;
    const ROUNDS: usize = 12;
    let plan = Plan::new();
    let script = HookScript {
        container: Arc::new(|hook, asked| {
            let mut answer = echo(asked);
            answer.container_annotations.insert(hook.to_owned(), "seen".to_owned());
            answer
        }),
        ..HookScript::default()
    };
    let _server = plan.server("a.json", FAIL, script);
    let node = Arc::new(plan.start().await);
    let (_, container) = node.container().await;
    let mut callers = JoinSet::new();
    for caller in 0..CALLERS {
        let (node, container) = (node.clone(), container.clone());
        callers.spawn(async move {
            for round in 0..ROUNDS {
                let file = format!("file.{caller}.{round}");
                node.kubelet.start(&container).await.unwrap();
                node.kubelet.update(&update(&container, &file)).await.unwrap();
            }
        });
    }
    while let Some(caller) = soon(callers.join_next()).await {
        caller.unwrap();
    }
    // As the runtime saw them: each on top of the one before.
    let updates = node.received("UpdateContainerResources");
    assert_eq!(updates.len(), CALLERS * ROUNDS);
    for (before, call) in updates.iter().enumerate() {
        let update = cri::UpdateContainerResourcesRequest::decode(&call.data[5..]).unwrap();
        assert_eq!(update.linux.unwrap().unified.len(), before + 1);
    }
    node.kubelet.update(&update(&container, "last")).await.unwrap();
    let last: cri::UpdateContainerResourcesRequest = node.last("UpdateContainerResources");
    assert_eq!(last.linux.unwrap().unified.len(), CALLERS * ROUNDS + 1);
    assert_eq!(last.annotations["PreStartContainer"], "seen");
}

/// A runtime that cannot tell of a container is no reason to refuse a call, unless a server has to
/// be asked.
#[tokio::test]
async fn a_runtime_that_does_not_tell_what_it_has() {
    for policy in [FAIL, IGNORE] {
        let plan = Plan::new();
        let server = plan.server("a.json", policy, HookScript::echo());
        let node: Node = plan.start().await;
        node.runtime.tell(|_| super::node::failing(Code::Internal, "out of order"));
        let started = node.kubelet.start(CONTAINER).await;
        let created = node.kubelet.create(&create(POD)).await;
        match policy {
            FAIL => {
                assert_eq!(started.unwrap_err().code(), Code::Internal);
                assert_eq!(created.unwrap_err().code(), Code::Internal);
                assert_eq!(node.runtime.calls(), []);
            }
            _ => {
                started.unwrap();
                created.unwrap();
                assert_eq!(node.runtime.calls().len(), 2);
            }
        }
        assert_eq!(server.calls(), []);
        // Pods that it is told of are another matter.
        node.kubelet.run(&run()).await.unwrap();
        assert_eq!(server.hooks(), ["PreRunPodSandbox"]);
    }
}
