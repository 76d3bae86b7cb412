//! The end of pods and containers: each is told of once, with what came of it.

use std::time::Duration;

use tonic::{Code, Status};
use wharf_criproxy::Skip;
use wharf_facts::hook;
use wharf_proto::cri::RunPodSandboxRequest;
use wharf_testkit::hook_server::{Answer, HookCall, HookScript, HookServer};

use super::{
    node::{FAIL, IGNORE, Plan, file},
    past::{CONTAINER, POD, Past},
    samples::{create, pod_config, run},
};

/// What was told after the fact, with the codes of the runtime's answers.
fn told(server: &HookServer) -> Vec<(&'static str, String)> {
    let outcome = |call: &HookCall| call.metadata.get("wharf-outcome-code").cloned();
    server.calls().iter().filter_map(|call| Some((call.hook, outcome(call)?))).collect()
}

fn ends(told: &[(&'static str, &str)]) -> Vec<(&'static str, String)> {
    told.iter().map(|(hook, code)| (*hook, (*code).to_owned())).collect()
}

/// Kubelets stop what runs, and only remove what has ended by itself: every crash and every Job.
#[tokio::test]
async fn a_container_that_ended_by_itself_is_told_of_when_it_is_removed() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start().await;
    let (_, container) = node.container().await;
    node.fail("RemoveContainer", Code::Internal, "device busy");
    node.kubelet.remove(&container).await.unwrap_err();
    assert_eq!(told(&server), ends(&[]), "it is still there");
    node.has_records(1, 1).await;
    node.heal();
    node.kubelet.remove(&container).await.unwrap();
    assert_eq!(told(&server), ends(&[("PostStopContainer", "0")]));
    let last = server.calls().pop().unwrap();
    assert_eq!(last.container().container_meta.as_ref().unwrap().id, container);
    node.has_records(1, 0).await;
    node.kubelet.remove(&container).await.unwrap();
    assert_eq!(told(&server).len(), 1);
}

#[tokio::test]
async fn containers_that_ended_by_themselves_are_told_of_when_their_pod_is_stopped() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start().await;
    let (pod, stopped) = node.container().await;
    let exited = node.kubelet.create(&create(&pod)).await.unwrap();
    node.kubelet.stop(&stopped).await.unwrap();
    node.kubelet.stop_pod(&pod).await.unwrap();
    let all = [("PostStopContainer", "0"), ("PostStopContainer", "0"), ("PostStopPodSandbox", "0")];
    assert_eq!(told(&server), ends(&all));
    let ids: Vec<_> = server.calls()[3..5]
        .iter()
        .map(|call| call.container().container_meta.as_ref().unwrap().id.clone())
        .collect();
    assert_eq!(ids, [stopped.clone(), exited.clone()]);

    // What kubelet's garbage collection does, in its order.
    node.kubelet.remove(&stopped).await.unwrap();
    node.kubelet.remove(&exited).await.unwrap();
    node.kubelet.stop_pod(&pod).await.unwrap();
    node.kubelet.remove_pod(&pod).await.unwrap();
    assert_eq!(told(&server).len(), 3, "once each");
    node.has_records(0, 0).await;
}

#[tokio::test]
async fn a_pod_that_is_only_removed_takes_its_containers_along() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start().await;
    let (pod, _) = node.container().await;
    node.kubelet.remove_pod(&pod).await.unwrap();
    let all = [("PostStopContainer", "0"), ("PostStopPodSandbox", "0")];
    assert_eq!(told(&server), ends(&all));
    node.has_records(0, 0).await;
}

/// koord-runtime-proxy forgets a container when it is asked to stop it, whatever comes of that.
#[tokio::test]
async fn a_stop_that_failed_is_told_of_as_one_and_its_retry_too() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start().await;
    let (pod, container) = node.container().await;
    node.fail("StopContainer", Code::DeadlineExceeded, "it does not want to");
    let error = node.kubelet.stop(&container).await.unwrap_err();
    assert_eq!(error.code(), Code::DeadlineExceeded);
    let last = server.calls().pop().unwrap();
    assert_eq!(last.metadata["wharf-outcome-code"], "4");
    assert_eq!(last.metadata["wharf-outcome-message"], "it does not want to");
    last.metadata["wharf-outcome-duration-ms"].parse::<u64>().unwrap();
    node.fail("StopPodSandbox", Code::Internal, "no network");
    node.kubelet.stop_pod(&pod).await.unwrap_err();

    node.heal();
    for _ in 0..2 {
        node.kubelet.stop(&container).await.unwrap();
        node.kubelet.stop_pod(&pod).await.unwrap();
    }
    let all = [
        ("PostStopContainer", "4"),
        ("PostStopPodSandbox", "13"),
        ("PostStopContainer", "0"),
        ("PostStopPodSandbox", "0"),
    ];
    assert_eq!(told(&server), ends(&all));
    node.has_records(1, 1).await;
}

#[tokio::test]
async fn a_start_that_failed_is_told_of_as_one() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start().await;
    let (_, container) = node.container().await;
    node.fail("StartContainer", Code::NotFound, "sh: 100%25 gone");
    node.kubelet.start(&container).await.unwrap_err();
    assert_eq!(told(&server), ends(&[("PostStartContainer", "5")]));
    assert!(server.calls()[2].metadata.keys().all(|key| !key.starts_with("wharf-")), "before it");
    let last = server.calls().pop().unwrap();
    assert_eq!(last.metadata["wharf-outcome-message"], "sh: 100%25 gone");
}

/// Nobody can stop a pod again and again until a hook server is back.
#[tokio::test]
async fn a_server_that_is_down_keeps_nothing_running() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start().await;
    let (pod, container) = node.container().await;
    node.kubelet.start(&container).await.unwrap();
    drop(server);
    node.kubelet.stop(&container).await.unwrap();
    node.kubelet.stop_pod(&pod).await.unwrap();
    let error = node.kubelet.create(&create(&pod)).await.unwrap_err();
    assert!(error.message().starts_with("hook server err: a.json"), "{error}");
}

/// The runtime has done it; whoever asked is told that a server that must know does not, and asks
/// again.
#[tokio::test]
async fn a_server_that_must_be_told_and_was_not_fails_the_call() {
    for policy in [FAIL, IGNORE] {
        let plan = Plan::new();
        let server = plan.strict_server("a.json", policy, HookScript::echo());
        let node = plan.start().await;
        let (pod, container) = node.container().await;
        let broken = Answer::Error(Status::not_found("no such container"));
        server.change(|script| script.answer = broken);
        let results = [node.kubelet.stop(&container).await, node.kubelet.stop_pod(&pod).await];
        for result in results {
            match policy {
                FAIL => {
                    let error = result.unwrap_err();
                    assert_eq!(error.code(), Code::Unknown, "NOT_FOUND is success to a kubelet");
                    assert!(error.message().starts_with("hook server err: a.json"), "{error}");
                }
                _ => result.unwrap(),
            }
        }
        server.change(|script| script.answer = Answer::AtOnce);
        let before = server.calls().len();
        node.kubelet.stop_pod(&pod).await.unwrap();
        let again: &[_] = match policy {
            FAIL => &["PostStopContainer", "PostStopPodSandbox"],
            _ => &[],
        };
        assert_eq!(&server.hooks()[before..], again);
        // A container that is gone cannot be removed again, so its record goes whatever a server
        // says.
        server.change(|script| script.answer = Answer::Error(Status::internal("still")));
        node.kubelet.remove(&container).await.unwrap();
        node.kubelet.remove_pod(&pod).await.unwrap();
        node.has_records(0, 0).await;
    }
}

#[tokio::test]
async fn a_server_that_was_told_is_not_told_again_for_one_that_was_not() {
    let plan = Plan::new();
    let first = plan.server("a.json", IGNORE, HookScript::echo());
    let second = plan.strict_server("b.json", FAIL, HookScript::echo());
    let node = plan.start().await;
    let (pod, container) = node.container().await;
    let breaks = || second.change(|script| script.answer = Answer::Error(Status::internal("down")));
    let heals = || second.change(|script| script.answer = Answer::AtOnce);
    breaks();
    for _ in 0..3 {
        node.kubelet.stop(&container).await.unwrap_err();
    }
    // Who knows that it ended is not told that it did not.
    node.fail("StopContainer", Code::DeadlineExceeded, "it does not want to");
    node.kubelet.stop(&container).await.unwrap_err();
    node.heal();
    heals();
    for _ in 0..2 {
        node.kubelet.stop(&container).await.unwrap();
    }
    breaks();
    for _ in 0..2 {
        node.kubelet.stop_pod(&pod).await.unwrap_err();
    }
    heals();
    for _ in 0..2 {
        node.kubelet.stop_pod(&pod).await.unwrap();
    }
    assert_eq!(told(&first), ends(&[("PostStopContainer", "0"), ("PostStopPodSandbox", "0")]));
    let stops = ["0", "0", "0", "4", "0"].map(|code| ("PostStopContainer", code));
    let all = [&stops[..], &[("PostStopPodSandbox", "0"); 3]].concat();
    assert_eq!(told(&second), ends(&all));
}

/// crictl's users type the beginning of an id.
#[tokio::test]
async fn the_beginning_of_an_id_names_what_it_names_to_the_runtime() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start_before(Past::one()).await;
    node.has_records(1, 1).await;
    for id in [&CONTAINER[..4], CONTAINER, &CONTAINER[..12]] {
        node.kubelet.stop(id).await.unwrap();
    }
    node.kubelet.stop_pod(&POD[..6]).await.unwrap();
    assert_eq!(server.hooks(), ["PostStopContainer", "PostStopPodSandbox"]);
    assert_eq!(server.calls()[0].container().container_meta.as_ref().unwrap().id, CONTAINER);
    assert_eq!(node.last_bytes("StopPodSandbox"), b"\x0a\x069a1fe2", "as it was typed");
    node.kubelet.remove(&CONTAINER[..4]).await.unwrap();
    node.has_records(1, 0).await;
    node.kubelet.remove_pod(&POD[..4]).await.unwrap();
    node.has_records(0, 0).await;
    assert_eq!(server.calls().len(), 2);
}

/// A pod with the label, or the annotation, that has pods passed on without hooks.
fn skipping(as_label: bool) -> RunPodSandboxRequest {
    let mut config = pod_config();
    let map = if as_label { &mut config.labels } else { &mut config.annotations };
    map.insert(hook::SKIP_LABEL.to_owned(), hook::SKIP_VALUE.to_owned());
    RunPodSandboxRequest { config: Some(config), ..run() }
}

/// A hook server that runs as a pod must not wait for itself.
#[tokio::test]
async fn a_pod_that_wants_no_hooks_has_none_in_all_its_life() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start().await;
    let pod = node.kubelet.run(&skipping(true)).await.unwrap();
    let container = node.kubelet.create(&create(&pod)).await.unwrap();
    node.kubelet.start(&container).await.unwrap();
    node.kubelet.update(&super::samples::update(&container, "cpu.weight")).await.unwrap();
    node.has_records(1, 1).await;
    node.kubelet.stop(&container).await.unwrap();
    node.kubelet.stop_pod(&pod).await.unwrap();
    node.kubelet.remove(&container).await.unwrap();
    node.kubelet.remove_pod(&pod).await.unwrap();
    node.has_records(0, 0).await;
    assert_eq!(server.hooks(), [""; 0]);
    assert_eq!(node.runtime.calls().len(), 8);
    node.pod().await;
    assert_eq!(server.hooks(), ["PreRunPodSandbox"]);
}

/// Admission policies know labels; an annotation would go around them.
#[tokio::test]
async fn an_annotation_takes_no_pod_out_unless_that_is_wanted() {
    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let node = plan.start().await;
    node.kubelet.run(&skipping(false)).await.unwrap();
    assert_eq!(server.hooks(), ["PreRunPodSandbox"]);

    let plan = Plan::new();
    let server = plan.server("a.json", FAIL, HookScript::echo());
    let by_annotation = Some(Skip { by_annotation: true, ..Skip::default() });
    let node = plan.start_with(|options| options.skip = by_annotation).await;
    node.kubelet.run(&skipping(false)).await.unwrap();
    assert_eq!(server.hooks(), [""; 0]);
}

#[tokio::test]
async fn no_pod_goes_without_hooks_where_that_is_switched_off_or_in_other_namespaces() {
    let elsewhere = Skip { namespaces: ["elsewhere".to_owned()].into(), ..Skip::default() };
    for skip in [None, Some(elsewhere)] {
        let plan = Plan::new();
        let server = plan.server("a.json", FAIL, HookScript::echo());
        let node = plan.start_with(|options| options.skip = skip).await;
        let pod = node.kubelet.run(&skipping(true)).await.unwrap();
        node.kubelet.create(&create(&pod)).await.unwrap();
        assert_eq!(server.hooks(), ["PreRunPodSandbox", "PreCreateContainer"]);
    }
}

/// Once for the whole call, not for each container and then for the pod.
#[tokio::test]
async fn a_server_that_hangs_costs_a_stop_of_ten_containers_its_time_once() {
    let plan = Plan::new();
    let hanging = HookScript { answer: Answer::Never, ..HookScript::default() };
    let socket = plan.socket("a.json");
    let _hanging = HookServer::serve(&socket, hanging);
    let other = plan.server("b.json", IGNORE, HookScript::default());
    let node = plan.start_with(|options| options.budget = Duration::from_millis(400)).await;
    let pod = node.pod().await;
    for _ in 0..10 {
        node.kubelet.create(&create(&pod)).await.unwrap();
    }
    // Known only now, so that it hangs at the end and not before.
    node.write("a.json", &file(&socket, IGNORE));
    node.fixture.counts("wharf_proxy_hook_config_files{state=\"loaded\"} 2").await;
    node.kubelet.stop_pod(&pod).await.unwrap();
    for (hook, outcome, count) in
        [("PostStopContainer", "timeout", 10), ("PostStopPodSandbox", "left-out", 1)]
    {
        node.fixture
            .counts(&format!(
                "wharf_proxy_hook_calls_total{{server=\"a.json\",hook=\"{hook}\",outcome=\"{outcome}\"}} {count}"
            ))
            .await;
    }
    let told = told(&other);
    assert_eq!(told.len(), 11, "{told:?}");
    assert_eq!(told[10].0, "PostStopPodSandbox");
}

/// What the runtime lost while it was away has ended, and nobody stops or removes it any more.
#[tokio::test]
async fn what_vanished_while_the_runtime_was_away_is_told_of() {
    let plan = Plan::new();
    let server = plan.server("a.json", IGNORE, HookScript::echo());
    let node = plan.start().await;
    let (pod, container) = node.container().await;
    let (other, stopped) = node.container().await;
    node.kubelet.stop(&stopped).await.unwrap();
    let kept = node.pod().await;
    node.ids.forget(&[pod, container, other, stopped]);
    let before = server.calls().len();
    let node = node.restart_runtime(async {}).await;
    let calls = server.seen(|calls| calls.len() == before + 3).await;
    let ends: Vec<_> = calls[before..].iter().map(|call| call.hook).collect();
    assert_eq!(ends, ["PostStopContainer", "PostStopPodSandbox", "PostStopPodSandbox"]);
    let last = calls.last().unwrap();
    assert_eq!(last.metadata["wharf-outcome-message"], "the runtime no longer has it");
    node.has_records(1, 0).await;
    node.kubelet.stop_pod(&kept).await.unwrap();
    assert_eq!(server.calls().len(), before + 4, "nothing else was told of again");
}
