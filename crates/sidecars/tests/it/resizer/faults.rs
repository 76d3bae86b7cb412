use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::bench::{Bench, CLAIMS, VOLUMES};
use crate::driver::Answer;

const RESIZING: &str = "Resizing";
const PRE_RESIZE: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

#[tokio::test]
async fn a_claim_that_has_changed_is_decided_anew_and_nobody_is_told() {
    let Some(mut bench) = Bench::new("fault-begin").await else { return };
    bench.claim().await;
    bench.journal.fail_once(Method::PATCH, "fault-begin/status", 409);
    bench.start().await;
    let [begin, expand, resized, finish] = bench.grow_lines(2);
    let read = "GET namespaces/default/persistentvolumeclaims/fault-begin".to_owned();
    bench.expect([format!("{begin} -> 409"), read, begin, expand, resized, finish]).await;
    let resizing = "External resizer is resizing volume fault-begin";
    let successful = ("VolumeResizeSuccessful", "Resize volume succeeded");
    bench.expect_events([(RESIZING, resizing), successful]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_claim_that_has_changed_meanwhile_is_marked_all_the_same() {
    let Some(mut bench) = Bench::new("fault-finish").await else { return };
    let told = CancellationToken::new();
    bench.driver.answer(Answer::When(told.clone()));
    bench.claim().await;
    bench.start().await;
    bench.journal.wait_for(2).await;
    bench.journal.fail_once(Method::PATCH, "fault-finish/status", 409);
    told.cancel();
    let [begin, expand, resized, finish] = bench.grow_lines(2);
    let read = "GET namespaces/default/persistentvolumeclaims/fault-finish".to_owned();
    bench.expect([begin, expand, resized, format!("{finish} -> 409"), read, finish]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_node_that_has_finished_meanwhile_is_not_waited_for() {
    let Some(mut bench) = Bench::with_node("fault-node").await else { return };
    let (first, second) = (CancellationToken::new(), CancellationToken::new());
    bench.driver.answer(Answer::When(first.clone()));
    bench.claim().await;
    bench.start().await;
    bench.journal.wait_for(2).await;
    bench.driver.answer(Answer::When(second.clone()));
    bench.journal.fail_once(Method::PATCH, "fault-node/status", 500);
    first.cancel();
    bench.journal.wait_for(5).await;
    // What the kubelet does, which has seen what was written.
    let done = json!({
        "capacity": { "storage": "2Gi" }, "allocatedResourceStatuses": null, "conditions": null,
    });
    bench.patch_status(done).await;
    second.cancel();
    let [begin, expand, resized, _] = bench.grow_lines(2);
    let annotated = |size| json!({ "annotations": { PRE_RESIZE: size } });
    let capacity = json!({ "capacity": { "storage": "2Gi" } });
    let noted =
        bench.volume_line(&json!({ "metadata": annotated(json!("1Gi")), "spec": capacity }));
    let settled = bench.volume_line(&json!({ "metadata": annotated(json!(null)) }));
    let pending = bench.pending_line();
    let read = "GET namespaces/default/persistentvolumeclaims/fault-node".to_owned();
    let [lost, late] = ["500", "409"].map(|code| format!("{pending} -> {code}"));
    bench.expect([begin, expand.clone(), noted, lost, expand, resized, late, read, settled]).await;
    let two = json!({ "storage": "2Gi" });
    assert_eq!(bench.status().await, json!({ "capacity": two, "allocatedResources": two }));
    bench.stop().await;
}

#[tokio::test]
async fn claims_are_begun_while_the_driver_is_busy_and_wait_for_their_turn() {
    let Some(mut bench) = Bench::new("fault-busy").await else { return };
    bench.options.workers = 1;
    let told = CancellationToken::new();
    bench.driver.answer(Answer::When(told.clone()));
    bench.claim().await;
    bench.start().await;
    bench.journal.wait_for(2).await;
    let others = ["busy-second", "busy-third"];
    for name in others {
        bench.bound_as(name, |_| {}, |_| {}, json!({})).await;
        assert_eq!(bench.about(name, 1).await, [bench.begin_line(2)]);
    }
    let calls = bench.journal.lines().into_iter().filter(|it| it.starts_with("Controller"));
    assert_eq!(calls.collect::<Vec<_>>(), [bench.expand_line(2)]);
    told.cancel();
    for name in others {
        assert_eq!(bench.about(name, 4).await, bench.grow_lines(2));
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_size_that_cannot_be_written_down_is_asked_for_again() {
    let Some(mut bench) = Bench::new("fault-volume").await else { return };
    bench.claim().await;
    bench.journal.fail_once(Method::PATCH, "persistentvolumes/fault-volume", 500);
    bench.start().await;
    let [begin, expand, resized, finish] = bench.grow_lines(2);
    let lost = format!("{resized} -> 500");
    bench.expect([begin, expand.clone(), lost, expand, resized, finish]).await;
    let failed = "error updating pv \"fault-volume\" by resizer: PersistentVolume fault-volume: told to answer 500";
    let resizing = "External resizer is resizing volume fault-volume";
    bench.first_events([(RESIZING, resizing), ("VolumeResizeFailed", failed)]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_refusal_that_could_not_be_shown_does_not_rest() {
    let Some(mut bench) = Bench::new("fault-refusal").await else { return };
    let (told, refusal) = (CancellationToken::new(), Status::out_of_range("too large"));
    bench.driver.answer(Answer::ErrorWhen(told.clone(), refusal.clone()));
    bench.driver.answer(Answer::Error(refusal));
    bench.claim().await;
    bench.start().await;
    bench.journal.wait_for(2).await;
    bench.journal.fail_once(Method::PATCH, "fault-refusal/status", 500);
    told.cancel();
    let expand = format!("{} -> OutOfRange", bench.expand_line(2));
    let refused = bench.refused_line("rpc error: code = OutOfRange desc = too large", true);
    let lost = format!("{refused} -> 500");
    bench.expect([bench.begin_line(2), expand.clone(), lost, expand, refused]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_driver_that_hangs_is_asked_again() {
    let Some(mut bench) = Bench::new("fault-hang").await else { return };
    bench.driver.answer(Answer::Never);
    bench.claim().await;
    bench.start_with_timeout(Duration::from_millis(500)).await;
    let [begin, expand, resized, finish] = bench.grow_lines(2);
    bench.expect([begin, format!("{expand} -> never"), expand, resized, finish]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_call_that_hangs_does_not_keep_the_resizer_from_stopping() {
    let Some(mut bench) = Bench::new("fault-stop").await else { return };
    bench.driver.answer(Answer::Never);
    bench.claim().await;
    bench.start().await;
    bench.journal.wait_for(2).await;
    tokio::time::timeout(crate::journal::DEADLINE / 2, bench.stop()).await.unwrap();
}

#[tokio::test]
async fn what_a_killed_process_left_is_finished_by_the_next() {
    let Some(mut bench) = Bench::with_node("fault-killed").await else { return };
    bench.options.backoff.first = Duration::from_mins(5);
    bench.claim().await;
    let told = CancellationToken::new();
    bench.driver.answer(Answer::When(told.clone()));
    bench.start().await;
    let [begin, expand, resized, _] = bench.grow_lines(2);
    let capacity = json!({ "capacity": { "storage": "2Gi" } });
    let noted = json!({ "metadata": { "annotations": { PRE_RESIZE: "1Gi" } }, "spec": capacity });
    let noted = bench.volume_line(&noted);
    let pending = bench.pending_line();

    // It ends while the driver works, after which nothing is written any more.
    bench.expect([begin, expand.clone()]).await;
    bench.journal.fail_once(Method::PATCH, "persistentvolumes/fault-killed", 500);
    bench.restart().await;
    told.cancel();
    bench.expect([expand.clone(), format!("{noted} -> 500")]).await;
    // It ends after the driver has worked.
    bench.journal.clear();
    bench.journal.fail_once(Method::PATCH, "fault-killed/status", 500);
    bench.restart().await;
    bench.expect([expand.clone(), noted, format!("{pending} -> 500")]).await;
    // It ends after the volume was written. The size before is that before it all.
    bench.restart().await;
    bench.expect([expand, resized, pending]).await;
    let volume = bench.get(VOLUMES).await.unwrap();
    assert_eq!(volume["metadata"]["annotations"][PRE_RESIZE], "1Gi");
    bench.stop().await;
}

#[tokio::test]
async fn a_claim_made_anew_does_not_get_the_status_of_the_one_before() {
    let Some(mut bench) = Bench::new("fault-anew").await else { return };
    let told = CancellationToken::new();
    bench.driver.answer(Answer::When(told.clone()));
    bench.claim().await;
    bench.start().await;
    bench.journal.wait_for(2).await;
    bench.patch(CLAIMS, json!({ "metadata": { "finalizers": null } })).await;
    bench.delete(CLAIMS).await;
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "9Gi" } },
    });
    let claim = json!({ "metadata": { "name": bench.name }, "spec": spec });
    bench.create(CLAIMS, "PersistentVolumeClaim", claim).await;
    told.cancel();
    let lines = bench.journal.wait_for(4).await;
    assert!(lines[3].ends_with(" -> 409") || lines[3].ends_with(" -> 422"), "{lines:?}");
    let status = bench.status().await;
    assert_eq!(status, json!({}), "nothing was done for this one");
    bench.stop().await;
}
