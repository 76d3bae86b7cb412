//! What answers come to in requests: as koord-runtime-proxy has it, but for what harms.

use std::sync::Arc;

use prost::Message;
use tonic::Code;
use wharf_criproxy::Reading;
use wharf_proto::{
    cri,
    hooks::{
        ContainerResourceHookRequest, ContainerResourceHookResponse, HugepageLimit,
        LinuxContainerResources, PodSandboxHookResponse,
    },
};
use wharf_testkit::hook_server::{HookScript, echo};

use super::{
    node::{FAIL, Plan},
    samples::{as_hooks_see, create, map, resources, run, update},
};
use crate::client::USUAL;

/// Answers every question about containers with these resources, and says nothing else.
fn answering(resources: LinuxContainerResources) -> HookScript {
    HookScript {
        container: Arc::new(move |_, _| ContainerResourceHookResponse {
            container_resources: Some(resources.clone()),
            ..Default::default()
        }),
        ..HookScript::default()
    }
}

fn created(request: &cri::CreateContainerRequest) -> cri::LinuxContainerResources {
    request.config.as_ref().unwrap().linux.as_ref().unwrap().resources.clone().unwrap()
}

/// A server that does not repeat what it was told takes the cpuset away, as with
/// koord-runtime-proxy, but not the OOM score, which would make the container the last one to be
/// killed.
#[tokio::test]
async fn a_server_that_does_not_echo() {
    for zero_oom_score_adj in [false, true] {
        let plan = Plan::new();
        let answer = LinuxContainerResources { cpu_shares: 7, ..Default::default() };
        let _server = plan.server("a.json", FAIL, answering(answer));
        let node =
            plan.start_with(|options| options.reading = Reading { zero_oom_score_adj }).await;
        node.container().await;
        let arrived = created(&node.last("CreateContainer"));
        let oom_score_adj = if zero_oom_score_adj { 0 } else { 998 };
        let expected = cri::LinuxContainerResources {
            cpu_shares: 7,
            cpuset_cpus: String::new(),
            oom_score_adj,
            ..resources()
        };
        assert_eq!(arrived, expected);
    }
}

#[tokio::test]
async fn hugepages_are_the_requests_own() {
    let plan = Plan::new();
    let script = HookScript {
        container: Arc::new(|_, asked| {
            let mut answer = echo(asked);
            let limits = HugepageLimit { page_size: "1GB".into(), limit: 1 };
            answer.container_resources.as_mut().unwrap().hugepage_limits = vec![limits];
            answer
        }),
        ..HookScript::default()
    };
    let server = plan.server("a.json", FAIL, script);
    let node = plan.start().await;
    let (_, container) = node.container().await;
    assert_eq!(created(&node.last("CreateContainer")), resources());
    let asked = server.calls().pop().unwrap();
    assert_eq!(asked.container().container_resources, Some(as_hooks_see(&resources())));

    let own = cri::HugepageLimit { page_size: "2MB".into(), limit: 8 << 20 };
    let mut request = update(&container, "memory.high");
    request.linux.as_mut().unwrap().hugepage_limits = vec![own.clone()];
    node.kubelet.update(&request).await.unwrap();
    let updated: cri::UpdateContainerResourcesRequest = node.last("UpdateContainerResources");
    assert_eq!(updated.linux.unwrap().hugepage_limits, [own]);
}

/// The protocol has more of pods than a runtime's interface is asked with, and no answer about it
/// counts.
#[tokio::test]
async fn resources_overhead_and_attempt_of_pods_are_not_told() {
    let plan = Plan::new();
    let script = HookScript {
        pod: Arc::new(|_, _| PodSandboxHookResponse {
            resources: Some(LinuxContainerResources { cpu_shares: 7, ..Default::default() }),
            ..Default::default()
        }),
        ..HookScript::default()
    };
    let server = plan.server("a.json", FAIL, script);
    let node = plan.start().await;
    let mut request = run();
    let linux = request.config.as_mut().unwrap().linux.as_mut().unwrap();
    linux.resources = Some(resources());
    linux.overhead = Some(resources());
    node.kubelet.run(&request).await.unwrap();
    let asked = server.calls().pop().unwrap();
    assert_eq!((&asked.pod().resources, &asked.pod().overhead), (&None, &None));
    assert_eq!(asked.pod().pod_meta.as_ref().unwrap().attempt, 0);
    assert_eq!(node.last::<cri::RunPodSandboxRequest>("RunPodSandbox"), request);
}

/// A runtime places a container by the sandbox_config of its own request: without this a pod is
/// split in two.
#[tokio::test]
async fn a_cgroup_parent_of_the_pod_reaches_each_of_its_containers() {
    let plan = Plan::new();
    let script = HookScript {
        pod: Arc::new(|_, _| PodSandboxHookResponse {
            labels: map(&[("pool", "a")]),
            annotations: map(&[("owner", "hook")]),
            cgroup_parent: "/hooked".into(),
            ..Default::default()
        }),
        ..HookScript::default()
    };
    let server = plan.server("a.json", FAIL, script);
    let node = plan.start().await;
    let pod = node.pod().await;
    for _ in 0..2 {
        node.kubelet.create(&create(&pod)).await.unwrap();
        let asked = server.calls().pop().unwrap();
        assert_eq!(asked.container().pod_cgroup_parent, "/hooked");
        assert_eq!(asked.container().pod_annotations, map(&[("owner", "hook")]));
        let created: cri::CreateContainerRequest = node.last("CreateContainer");
        let mut expected = create(&pod);
        let sandbox = expected.sandbox_config.as_mut().unwrap();
        sandbox.labels = map(&[("app", "web"), ("pool", "a")]);
        sandbox.annotations = map(&[("owner", "hook")]);
        sandbox.linux.as_mut().unwrap().cgroup_parent = "/hooked".into();
        assert_eq!(created, expected);
    }
}

#[tokio::test]
async fn an_answered_update_carries_all_that_is_remembered() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start().await;
    let (_, container) = node.container().await;
    let cpuset = cri::LinuxContainerResources { cpuset_cpus: "1".into(), ..Default::default() };
    let mut request = update(&container, "cpu.weight");
    request.linux = Some(cpuset.clone());
    request.annotations = map(&[("of the request", "1")]);
    node.kubelet.update(&request).await.unwrap();
    let whole = cri::LinuxContainerResources { cpuset_cpus: "1".into(), ..resources() };
    let asked = server.calls().pop().unwrap();
    assert_eq!(asked.container().container_resources, Some(as_hooks_see(&whole)));
    let updated: cri::UpdateContainerResourcesRequest = node.last("UpdateContainerResources");
    let hugepage_limits = Vec::new();
    assert_eq!(updated.linux, Some(cri::LinuxContainerResources { hugepage_limits, ..whole }));
    assert_eq!(updated.annotations, map(&[("note", "kept")]));

    // One that nobody is asked about arrives as it was.
    node.remove("a.json");
    node.fixture.counts("wharf_proxy_hook_config_files{state=\"loaded\"} 0").await;
    node.kubelet.update(&request).await.unwrap();
    let updated: cri::UpdateContainerResourcesRequest = node.last("UpdateContainerResources");
    assert_eq!(updated, request);
}

/// koord-runtime-proxy makes a full update of it, of what it remembers. Whoever only watches must
/// not do that.
#[tokio::test]
async fn an_answer_without_a_word_leaves_an_update_as_it_came() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::default());
    let node = plan.start().await;
    let (_, container) = node.container().await;
    let mut request = update(&container, "cpu.weight");
    request.annotations = map(&[("of the request", "1")]);
    let sent = [request.encode_to_vec(), b"\xfa\x01\x02hi".to_vec()].concat();
    node.kubelet.send("UpdateContainerResources", sent.clone(), USUAL).await.unwrap();
    assert_eq!(node.last_bytes("UpdateContainerResources"), sent);
    // What it comes to is remembered all the same.
    node.kubelet.stop(&container).await.unwrap();
    let asked = server.calls().pop().unwrap();
    let own = asked.container().container_resources.as_ref().unwrap();
    assert_eq!((own.cpu_shares, &own.unified), (512, &map(&[("cpu.weight", "1")])));
}

/// What a server answers before a start reaches the runtime with the next update.
#[tokio::test]
async fn what_the_runtime_refused_is_not_remembered() {
    let plan = Plan::new();
    let script = HookScript {
        container: Arc::new(|hook, asked: &ContainerResourceHookRequest| {
            let mut answer = echo(asked);
            answer.container_annotations.insert(hook.to_owned(), "seen".to_owned());
            answer
        }),
        ..HookScript::default()
    };
    let server = plan.server("a.json", FAIL, script);
    let node = plan.start().await;
    let (_, container) = node.container().await;

    node.fail("StartContainer", Code::Internal, "no such file");
    let error = node.kubelet.start(&container).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Internal, "no such file"));
    node.fail("UpdateContainerResources", Code::Internal, "device busy");
    let mut request = update(&container, "refused");
    request.linux.as_mut().unwrap().cpu_shares = 7;
    let error = node.kubelet.update(&request).await.unwrap_err();
    assert_eq!((error.code(), error.message()), (Code::Internal, "device busy"));
    node.heal();

    node.kubelet.update(&update(&container, "agreed")).await.unwrap();
    let asked = server.calls().pop().unwrap();
    let unified = map(&[("agreed", "1")]);
    let expected = cri::LinuxContainerResources { unified, ..resources() };
    assert_eq!(asked.container().container_resources, Some(as_hooks_see(&expected)));
    let annotations = map(&[("note", "kept"), ("PreCreateContainer", "seen")]);
    assert_eq!(asked.container().container_annotations, annotations);

    node.kubelet.start(&container).await.unwrap();
    node.kubelet.update(&update(&container, "again")).await.unwrap();
    let updated: cri::UpdateContainerResourcesRequest = node.last("UpdateContainerResources");
    assert_eq!(updated.annotations["PreStartContainer"], "seen");
    assert_eq!(updated.linux.unwrap().unified, map(&[("agreed", "1"), ("again", "1")]));
}
