//! Callers that give up, at every stage: what they asked for ends, and the next call about the pod
//! goes on.

use std::{sync::Arc, time::Duration};

use h2::Reason;
use wharf_proto::cri;
use wharf_testkit::{
    hook_server::{Answer, HookScript, HookServer},
    runtime::{End, Reply, Then},
};

use super::{
    kubelet::Kubelet,
    node::{FAIL, Node, Plan},
    samples::{create, run},
};
use crate::fixture::soon;

/// A pod whose hook server hangs from now on. Only a caller can end what it is asked.
async fn hanging() -> (HookServer, Node, String) {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start_with(|options| options.budget = Duration::from_secs(600)).await;
    let pod = node.pod().await;
    server.change(|script| script.answer = Answer::Never);
    (server, node, pod)
}

#[tokio::test]
async fn a_call_that_is_cancelled_during_a_hook_never_reaches_the_runtime() {
    let (server, mut node, pod) = hanging().await;
    for vanishes in [false, true] {
        server.change(|script| script.answer = Answer::Never);
        let asked = server.calls().len();
        let (response, mut sink) = node.kubelet.begin("CreateContainer", &create(&pod)).await;
        server.seen(|calls| calls.len() > asked).await;
        // One that waits for its turn, and goes away as well.
        let (waiting, mut waits) = node.kubelet.begin("CreateContainer", &create(&pod)).await;
        if vanishes {
            let socket = node.fixture.socket();
            let new = Kubelet::dial(&socket).await;
            std::mem::replace(&mut node.kubelet, new).client.vanish().await;
            drop((response, sink, waiting, waits));
        } else {
            waits.send_reset(Reason::CANCEL);
            sink.send_reset(Reason::CANCEL);
        }
        node.fixture.counts("wharf_proxy_calls_in_flight 0").await;
        server.change(|script| script.answer = Answer::AtOnce);
        let before = node.received("CreateContainer").len();
        soon(node.kubelet.create(&create(&pod))).await.unwrap();
        assert_eq!(node.received("CreateContainer").len(), before + 1);
    }
    node.has_records(1, 2).await;
}

#[tokio::test]
async fn a_call_that_is_cancelled_at_the_runtime_is_cancelled_there() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start().await;
    let (pod, container) = node.container().await;
    let named = cri::StopContainerRequest { container_id: container.clone(), timeout: 30 };
    for (number, vanishes) in [false, true].into_iter().enumerate() {
        node.answer("StopContainer", || Reply::then(Vec::new(), Then::Never));
        let impatient = Kubelet::dial(&node.fixture.socket()).await;
        let (response, mut sink) = impatient.begin("StopContainer", &named).await;
        let reached = |calls: &[wharf_testkit::runtime::Received], end: End| {
            let mut stops = calls.iter().filter(|call| call.method.ends_with("/StopContainer"));
            stops.nth(number).is_some_and(|call| call.end == end)
        };
        node.runtime.seen(|calls| reached(calls, End::Ended)).await;
        // Others about the same pod do not wait for it.
        soon(node.kubelet.create(&create(&pod))).await.unwrap();
        if vanishes {
            impatient.client.vanish().await;
            drop((response, sink));
        } else {
            sink.send_reset(Reason::CANCEL);
        }
        node.runtime.seen(|calls| reached(calls, End::Reset(Reason::CANCEL.into()))).await;
        node.fixture.counts("wharf_proxy_calls_in_flight 0").await;
        assert!(!server.hooks().contains(&"PostStopContainer"), "nobody knows what came of it");
    }
    // Whoever asks again has the hook.
    node.heal();
    node.kubelet.stop(&container).await.unwrap();
    assert_eq!(server.hooks().pop(), Some("PostStopContainer"));
}

/// The answer is known by then: servers are told of it, whether anybody waits for it or not.
#[tokio::test]
async fn a_call_that_is_cancelled_during_its_post_hook_is_told_of_once() {
    let (server, node, pod) = hanging().await;
    server.change(|script| script.answer = Answer::AtOnce);
    let container = node.kubelet.create(&create(&pod)).await.unwrap();
    server.change(|script| script.answer = Answer::After(Duration::from_millis(200)));
    let named = cri::StopContainerRequest { container_id: container.clone(), timeout: 30 };
    let (_response, mut sink) = node.kubelet.begin("StopContainer", &named).await;
    server.seen(|calls| calls.last().is_some_and(|call| call.hook == "PostStopContainer")).await;
    sink.send_reset(Reason::CANCEL);
    node.fixture.counts("wharf_proxy_calls_in_flight 0").await;
    node.kubelet.stop(&container).await.unwrap();
    let told = server.hooks().iter().filter(|hook| **hook == "PostStopContainer").count();
    assert_eq!(told, 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_storm_of_cancelled_calls_leaves_nothing_behind() {
    let plan = Plan::new();
    let script =
        HookScript { answer: Answer::After(Duration::from_millis(1)), ..HookScript::echo() };
    let server = plan.server("a.json", FAIL, script);
    let node = Arc::new(plan.start().await);
    let pod = node.pod().await;
    for number in 0..200_u32 {
        let (response, mut sink) = node.kubelet.begin("CreateContainer", &create(&pod)).await;
        // Some are given up at once, some on their way.
        server.seen(|calls| calls.len() as u32 >= number / 40).await;
        sink.send_reset(Reason::CANCEL);
        drop(response);
    }
    node.fixture.counts("wharf_proxy_calls_in_flight 0").await;
    soon(node.kubelet.create(&create(&pod))).await.unwrap();
    soon(node.kubelet.remove_pod(&pod)).await.unwrap();
    node.has_records(0, 0).await;
}

/// More calls than a process may give up at a time.
const GIVEN_UP: usize = 600;

/// A hook server works on these calls like a runtime does on others.
#[tokio::test(flavor = "multi_thread")]
async fn calls_that_are_given_up_during_a_hook_restrain_the_process() {
    let (server, mut node, _pod) = hanging().await;
    let asked = server.calls().len();
    let mut calls = Vec::new();
    for number in 0..GIVEN_UP {
        let mut request = run();
        let config = request.config.as_mut().unwrap();
        config.metadata.as_mut().unwrap().name = format!("given-up-{number}");
        calls.push(node.kubelet.begin("RunPodSandbox", &request).await);
    }
    server.seen(|calls| calls.len() == asked + GIVEN_UP).await;
    let new = Kubelet::dial(&node.fixture.socket()).await;
    std::mem::replace(&mut node.kubelet, new).client.vanish().await;
    drop(calls);
    node.fixture.counts(&format!("wharf_proxy_calls_given_up_total {GIVEN_UP}")).await;
    node.fixture.counts("wharf_proxy_client_restraints_total 1").await;
}
