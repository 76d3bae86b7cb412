//! After a restart of the proxy or of the runtime hooks see what they saw before.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use prost::Message;
use serde_json::json;
use tokio::{sync::watch, task::JoinSet};
use tonic::Code;
use wharf_facts::hook;
use wharf_proto::cri;
use wharf_testkit::hook_server::{HookScript, HookServer, echo};

use super::{
    kubelet::{Kubelet, V1, V1ALPHA2},
    node::{FAIL, Plan},
    past::{CONTAINER, HOOKED_PARENT, POD, Past},
    samples::{as_hooks_see, create, map, resources, run, update},
};
use crate::{
    client::USUAL,
    fixture::{DRAIN, Fixture, soon},
};

/// After a restart koord-runtime-proxy knows no resources, and drops every answer about them.
#[tokio::test]
async fn an_update_hook_works_on_containers_from_before() {
    let plan = Plan::new();
    let script = HookScript {
        container: Arc::new(|_, asked| {
            let mut answer = echo(asked);
            answer.container_resources.as_mut().unwrap().cpuset_cpus = "2".into();
            answer
        }),
        ..HookScript::default()
    };
    let server = plan.server("a.json", FAIL, script);
    let node = plan.start_before(Past::one()).await;
    node.has_records(1, 1).await;
    node.kubelet.update(&update(CONTAINER, "cpu.weight")).await.unwrap();
    let asked = server.calls().pop().unwrap();
    let asked = asked.container();
    let whole =
        cri::LinuxContainerResources { unified: map(&[("cpu.weight", "1")]), ..resources() };
    assert_eq!(asked.container_resources, Some(as_hooks_see(&whole)));
    assert_eq!(asked.container_envs, map(&[("A", "2"), ("B", "1")]));
    assert_eq!(asked.pod_cgroup_parent, HOOKED_PARENT);
    let updated: cri::UpdateContainerResourcesRequest = node.last("UpdateContainerResources");
    let linux = updated.linux.unwrap();
    assert_eq!((linux.cpuset_cpus.as_str(), linux.cpu_shares), ("2", 512));
    // What came of it is remembered as for any other.
    node.kubelet.stop(CONTAINER).await.unwrap();
    let asked = server.calls().pop().unwrap();
    assert_eq!(asked.container().container_resources.as_ref().unwrap().cpuset_cpus, "2");
}

#[tokio::test]
async fn a_cgroup_parent_of_the_pod_reaches_containers_that_are_made_after_a_restart() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start_before(Past::one()).await;
    node.has_records(1, 1).await;
    let node = node.restart_proxy().await;
    node.has_records(1, 1).await;
    node.kubelet.create(&create(POD)).await.unwrap();
    assert_eq!(server.calls().pop().unwrap().container().pod_cgroup_parent, HOOKED_PARENT);
    let created: cri::CreateContainerRequest = node.last("CreateContainer");
    assert_eq!(created.sandbox_config.unwrap().linux.unwrap().cgroup_parent, HOOKED_PARENT);
}

/// What a sandbox has beyond a request was taken back by kubelet, unless a hook may have put it
/// there.
#[tokio::test]
async fn without_a_server_for_pods_nothing_is_carried_after_a_restart() {
    let skip = || (hook::SKIP_LABEL.to_owned(), hook::SKIP_VALUE.to_owned());
    for (hooks, skipped) in [
        (&[][..], false),
        (&["PreCreateContainer", "PostStopPodSandbox"], false),
        (&["PreRunPodSandbox", "PreCreateContainer"], true),
    ] {
        let plan = Plan::new();
        let socket = plan.socket("a.json");
        let keys =
            json!({"remote-endpoint": socket, "failure-policy": FAIL, "runtime-hooks": hooks});
        plan.file("a.json", &keys.to_string());
        let server = HookServer::serve(&socket, HookScript::echo());
        let mut request = create(POD);
        let mut past = Past::one();
        let pod = past.pod.as_mut().unwrap();
        if skipped {
            pod.labels.extend([skip()]);
            request.sandbox_config.as_mut().unwrap().labels.extend([skip()]);
        }
        pod.annotations.insert("foo".to_owned(), "of yesterday".to_owned());
        let node = plan.start_before(past).await;
        node.has_records(1, 1).await;
        let sent = request.encode_to_vec();
        node.kubelet.send("CreateContainer", sent.clone(), USUAL).await.unwrap();
        assert_eq!(node.last_bytes("CreateContainer"), sent, "{hooks:?}");
        let asked = usize::from(!skipped && hooks.contains(&"PreCreateContainer"));
        assert_eq!(server.calls().len(), asked);
    }
}

/// koord-runtime-proxy decodes the list of containers as one of pods, which ends it on a node
/// without any.
#[tokio::test]
async fn a_runtime_that_knows_only_the_old_version() {
    for past in [Past::empty(), Past { container: None, ..Past::one() }, Past::one()] {
        let plan = Plan::new();
        let server = plan.server("a.json", FAIL, HookScript::echo());
        let (pods, containers) = (past.pod.iter().count(), past.container.iter().count());
        let past = Past { service: Some(V1ALPHA2), ..past };
        let mut node = plan.start_before(past).await;
        node.has_records(pods, containers).await;
        node.kubelet.service = V1ALPHA2;
        if containers == 1 {
            node.kubelet.update(&update(CONTAINER, "cpu.weight")).await.unwrap();
            let asked = server.calls().pop().unwrap();
            assert_eq!(asked.container().container_resources.as_ref().unwrap().cpu_shares, 512);
        }
        node.container().await;
        assert!(server.hooks().ends_with(&["PreRunPodSandbox", "PreCreateContainer"]));
        assert!(node.runtime.calls().iter().all(|call| call.method.starts_with(V1ALPHA2)));
    }
}

/// koord-runtime-proxy asks for versions once, and lets calls of one that did not answer then pass
/// without hooks.
#[tokio::test]
async fn both_versions_have_their_hooks_at_any_time() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let mut node = plan.start().await;
    for (run_by, create_by) in [(V1, V1ALPHA2), (V1ALPHA2, V1)] {
        node.kubelet.service = run_by;
        let pod = node.pod().await;
        node.kubelet.service = create_by;
        let container = node.kubelet.create(&create(&pod)).await.unwrap();
        node.kubelet.update(&update(&container, "cpu.weight")).await.unwrap();
        let methods: Vec<_> = node.runtime.calls().iter().map(|call| call.method.clone()).collect();
        let expected = [
            format!("{run_by}/RunPodSandbox"),
            format!("{create_by}/CreateContainer"),
            format!("{create_by}/UpdateContainerResources"),
        ];
        assert!(methods.ends_with(&expected), "{methods:?}");
        let hooks = ["PreRunPodSandbox", "PreCreateContainer", "PreUpdateContainerResources"];
        assert!(server.hooks().ends_with(&hooks), "{:?}", server.hooks());
        // A runtime that was upgraded meanwhile.
        node = node.restart_runtime(async {}).await;
    }
    assert_eq!(server.calls().len(), 6);
}

#[tokio::test]
async fn a_runtime_that_comes_after_the_proxy_is_asked_what_it_runs() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let folder = tempfile::tempdir().unwrap();
    std::fs::rename(plan.folder().join("hooks"), folder.path().join("hooks")).unwrap();
    let fixture = Fixture::within(folder, DRAIN, |_| {}).await;
    let kubelet = Kubelet::dial(&fixture.socket()).await;
    let error = kubelet.run(&run()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert!(error.message().contains("runtime.sock"), "{error}");
    let error = kubelet.start(CONTAINER).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
    assert_eq!(server.hooks(), ["PreRunPodSandbox"]);

    let runtime = wharf_testkit::runtime::Runtime::start(&fixture.runtime_socket());
    Past::one().of(&runtime);
    fixture.counts("wharf_proxy_records{kind=\"container\"} 1").await;
    kubelet.start(CONTAINER).await.unwrap();
    let hooks = ["PreRunPodSandbox", "PreStartContainer", "PostStartContainer"];
    assert_eq!(server.hooks(), hooks);
}

/// Updates of many containers while the runtime goes and comes back: what it agreed to is
/// remembered, and nothing else.
#[tokio::test(flavor = "multi_thread")]
async fn a_runtime_that_restarts_under_load_loses_nothing() {
    const CONTAINERS: usize = 8;
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let mut node = plan.start().await;
    let mut containers = Vec::new();
    for _ in 0..CONTAINERS {
        containers.push(node.container().await.1);
    }
    let (done, failures) = (Arc::new(AtomicBool::new(false)), watch::Sender::new(0));
    let mut callers = JoinSet::new();
    for container in containers {
        let kubelet = Kubelet::dial(&node.fixture.socket()).await;
        let (done, failures) = (done.clone(), failures.clone());
        callers.spawn(async move {
            let mut agreed = BTreeMap::new();
            for round in 0.. {
                let file = format!("file.{round}");
                match kubelet.update(&update(&container, &file)).await {
                    Ok(()) => drop(agreed.insert(file, "1".to_owned())),
                    Err(status) => {
                        assert_eq!(status.code(), Code::Unavailable, "{status}");
                        failures.send_modify(|count| *count += 1);
                    }
                }
                if done.load(Ordering::Relaxed) {
                    break;
                }
            }
            (container, agreed)
        });
    }
    let updates = |calls: &[wharf_testkit::runtime::Received]| {
        calls.iter().filter(|call| call.method.ends_with("/UpdateContainerResources")).count()
    };
    for _ in 0..2 {
        node.runtime.seen(|calls| updates(calls) > 10 * CONTAINERS).await;
        let before = *failures.borrow();
        let mut failing = failures.subscribe();
        node = node.restart_runtime(failing.wait_for(|count| *count > before)).await;
    }
    node.runtime.seen(|calls| updates(calls) > 10 * CONTAINERS).await;
    done.store(true, Ordering::Relaxed);
    for (container, mut agreed) in soon(callers.join_all()).await {
        node.kubelet.update(&update(&container, "last")).await.unwrap();
        agreed.insert("last".to_owned(), "1".to_owned());
        let asked = server.calls().pop().unwrap();
        assert_eq!(asked.container().container_resources.as_ref().unwrap().unified, agreed);
        let updated: cri::UpdateContainerResourcesRequest = node.last("UpdateContainerResources");
        assert_eq!(updated.linux.unwrap().unified, agreed);
    }
    node.has_records(CONTAINERS, CONTAINERS).await;
}
