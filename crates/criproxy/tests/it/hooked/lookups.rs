//! What is not known is asked of the runtime: not for long, and only if somebody wants to hear of
//! it.

use std::time::Duration;

use tonic::Code;
use wharf_testkit::{
    hook_server::{HookScript, HookServer},
    runtime::{Reply, Then},
};

use super::{
    node::{FAIL, IGNORE, Node, Plan, file},
    past::{CONTAINER, POD, Past},
    samples::{create, update},
};
use crate::fixture::DEADLINE;

/// Lists are what a rebuild begins with, and all that it asks of a runtime without pods.
async fn rebuilt(node: &Node) {
    node.runtime
        .inquired(|asked| {
            let of = |list: &str| asked.iter().any(|call| call.method.ends_with(list));
            of("/ListPodSandbox") && of("/ListContainers")
        })
        .await;
}

fn tells_nothing(node: &Node) {
    node.runtime.tell(|_| Reply::then(Vec::new(), Then::Never));
}

#[tokio::test]
async fn a_call_that_nobody_wants_to_hear_of_waits_for_nothing() {
    let node = Plan::new().start().await;
    rebuilt(&node).await;
    tells_nothing(&node);
    let asked = node.runtime.inquiries().len();
    // A question to the runtime alone may take twice as long.
    let calls = tokio::time::timeout(DEADLINE / 4, async {
        node.kubelet.start(CONTAINER).await.unwrap();
        node.kubelet.stop(CONTAINER).await.unwrap();
        node.kubelet.remove(CONTAINER).await.unwrap();
        node.kubelet.stop_pod(POD).await.unwrap();
        node.kubelet.remove_pod(POD).await.unwrap();
        assert_eq!(node.runtime.inquiries().len(), asked, "there is nothing to ask");
        node.kubelet.create(&create(POD)).await.unwrap();
        node.kubelet.update(&update(CONTAINER, "cpu.weight")).await.unwrap();
    });
    calls.await.expect("no call waits for what the runtime tells");
    assert_eq!(node.runtime.calls().len(), 7);
}

#[tokio::test]
async fn a_runtime_that_takes_its_time_to_tell_is_not_waited_for() {
    for policy in [FAIL, IGNORE] {
        let plan = Plan::new();
        let server = plan.server("a.json", policy, HookScript::echo());
        let budget = Duration::from_millis(50);
        let node = plan.start_with(|options| options.budget = budget).await;
        rebuilt(&node).await;
        tells_nothing(&node);
        let started = node.kubelet.start(CONTAINER).await;
        let created = node.kubelet.create(&create(POD)).await.map(drop);
        for (result, id) in [(started, CONTAINER), (created, POD)] {
            match policy {
                FAIL => {
                    let error = result.unwrap_err();
                    assert_eq!(error.code(), Code::DeadlineExceeded);
                    let text = format!("the runtime did not report {id:?} within 50ms");
                    assert_eq!(error.message(), text);
                }
                _ => result.unwrap(),
            }
        }
        // What is to be stopped is stopped.
        node.kubelet.stop(CONTAINER).await.unwrap();
        let passed = if policy == FAIL { 1 } else { 3 };
        assert_eq!((node.runtime.calls().len(), server.calls().len()), (passed, 0));
    }
}

/// A pod that came to be behind our back, or in the moment of our start.
#[tokio::test]
async fn what_nobody_wanted_to_hear_of_is_known_to_servers_that_come_later() {
    let plan = Plan::new();
    let socket = plan.socket("a.json");
    let node = plan.start_before(Past::empty()).await;
    rebuilt(&node).await;
    let mut past = Past::one();
    // As this runtime names the first thing that it makes.
    past.container.as_mut().unwrap().id = "container-0".to_owned();
    past.of(&node.runtime);
    assert_eq!(node.kubelet.create(&create(POD)).await.unwrap(), "container-0");
    node.has_records(1, 1).await;
    node.kubelet.update(&update("container-0", "cpu.weight")).await.unwrap();

    let server = HookServer::serve(&socket, HookScript::echo());
    node.write("a.json", &file(&socket, FAIL));
    node.fixture.counts("wharf_proxy_hook_config_files{state=\"loaded\"} 1").await;
    // It ended by itself.
    node.kubelet.stop_pod(POD).await.unwrap();
    assert_eq!(server.hooks(), ["PostStopContainer", "PostStopPodSandbox"]);
    let asked = &server.calls()[0];
    let own = asked.container().container_resources.as_ref().unwrap();
    assert_eq!(own.unified.get("cpu.weight").map(String::as_str), Some("1"));
}

#[tokio::test]
async fn what_is_gone_is_forgotten_by_the_beginning_of_its_id() {
    let node = Plan::new().start_before(Past::one()).await;
    node.has_records(1, 1).await;
    let asked = node.runtime.inquiries().len();
    node.kubelet.remove(&CONTAINER[..4]).await.unwrap();
    node.has_records(1, 0).await;
    node.kubelet.remove_pod(&POD[..4]).await.unwrap();
    node.has_records(0, 0).await;
    assert_eq!(node.runtime.inquiries().len(), asked);
}
