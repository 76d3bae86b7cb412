//! Pods that are made from a checkpoint.

use std::sync::Arc;

use prost::Message;
use tonic::Status;
use wharf_proto::{cri, hooks::PodSandboxHookResponse};
use wharf_testkit::{
    hook_server::{Answer, HookScript, echo},
    runtime::{Reply, message},
};

use super::{
    node::{FAIL, Node, Plan},
    samples::{create, env, map, pod_config},
};

fn restore() -> cri::RestorePodRequest {
    cri::RestorePodRequest {
        checkpoint_path: "/var/lib/checkpoint".into(),
        config: Some(pod_config()),
        runtime_handler: "runc".into(),
        container_configs: vec![create("").config.unwrap()],
        ..Default::default()
    }
}

async fn send(node: &Node) -> Result<cri::RestorePodResponse, Status> {
    node.kubelet.call("RestorePod", &restore()).await
}

fn restoring(node: &Node) {
    node.answer("RestorePod", || {
        let restored =
            cri::RestoredContainer { name: "nginx".into(), container_id: "restored-1".into() };
        let answer = cri::RestorePodResponse {
            pod_sandbox_id: "restored".into(),
            restored_containers: vec![restored],
        };
        Reply::of(vec![message(&answer.encode_to_vec())])
    });
}

/// A restore goes around no hook of the sandbox or of its containers.
#[tokio::test]
async fn a_restored_pod_is_hooked_like_one_that_is_made() {
    let plan = Plan::new();
    let script = HookScript {
        pod: Arc::new(|_, _| PodSandboxHookResponse {
            labels: map(&[("hooked", "yes")]),
            ..Default::default()
        }),
        container: Arc::new(|_, asked| {
            let mut answer = echo(asked);
            answer.container_envs.insert("HOOKED".into(), "yes".into());
            answer
        }),
        ..HookScript::default()
    };
    let server = plan.server("a.json", FAIL, script);
    let node = plan.start().await;
    restoring(&node);
    send(&node).await.unwrap();
    assert_eq!(server.hooks(), ["PreRunPodSandbox", "PreCreateContainer"]);
    assert_eq!(server.calls()[1].container().pod_labels["hooked"], "yes");
    let mut expected = restore();
    expected.config.as_mut().unwrap().labels.insert("hooked".into(), "yes".into());
    expected.container_configs[0].envs.push(env("HOOKED", "yes"));
    assert_eq!(node.last::<cri::RestorePodRequest>("RestorePod"), expected);
    node.has_records(1, 1).await;
    node.kubelet.stop("restored-1").await.unwrap();
    assert_eq!(server.hooks().last(), Some(&"PostStopContainer"));

    server.change(|script| script.answer = Answer::Error(Status::internal("no")));
    let refused = send(&node).await.unwrap_err();
    assert!(refused.message().starts_with("hook server err"), "{refused}");
    assert_eq!(node.received("RestorePod").len(), 1);
}

#[tokio::test]
async fn without_a_change_it_keeps_its_bytes() {
    let plan = Plan::new();
    let _server = plan.server("a.json", FAIL, HookScript::default());
    let node = plan.start().await;
    restoring(&node);
    send(&node).await.unwrap();
    assert_eq!(node.last_bytes("RestorePod"), restore().encode_to_vec());
}
