use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::fixture::{CLAIMS, Fixture, VOLUMES};
use crate::driver::Answer;

const RESIZING: &str = "Resizing";
const PRE_RESIZE: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

#[tokio::test]
async fn a_claim_that_has_changed_is_decided_anew_and_nobody_is_told() {
    let Some(mut fixture) = Fixture::new("fault-begin").await else { return };
    fixture.claim().await;
    fixture.journal.fail_once(Method::PATCH, "fault-begin/status", 409);
    fixture.start().await;
    let [begin, expand, resized, finish] = fixture.grow_lines(2);
    let read = "GET namespaces/default/persistentvolumeclaims/fault-begin".to_owned();
    fixture.expect([format!("{begin} -> 409"), read, begin, expand, resized, finish]).await;
    let resizing = "External resizer is resizing volume fault-begin";
    let successful = ("VolumeResizeSuccessful", "Resize volume succeeded");
    fixture.expect_events([(RESIZING, resizing), successful]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_claim_that_has_changed_meanwhile_is_marked_all_the_same() {
    let Some(mut fixture) = Fixture::new("fault-finish").await else { return };
    let told = CancellationToken::new();
    fixture.driver.answer(Answer::When(told.clone()));
    fixture.claim().await;
    fixture.start().await;
    fixture.journal.wait_for(2).await;
    fixture.journal.fail_once(Method::PATCH, "fault-finish/status", 409);
    told.cancel();
    let [begin, expand, resized, finish] = fixture.grow_lines(2);
    let read = "GET namespaces/default/persistentvolumeclaims/fault-finish".to_owned();
    fixture.expect([begin, expand, resized, format!("{finish} -> 409"), read, finish]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_node_that_has_finished_meanwhile_is_not_waited_for() {
    let Some(mut fixture) = Fixture::with_node("fault-node").await else { return };
    let (first, second) = (CancellationToken::new(), CancellationToken::new());
    fixture.driver.answer(Answer::When(first.clone()));
    fixture.claim().await;
    fixture.start().await;
    fixture.journal.wait_for(2).await;
    fixture.driver.answer(Answer::When(second.clone()));
    fixture.journal.fail_once(Method::PATCH, "fault-node/status", 500);
    first.cancel();
    fixture.journal.wait_for(5).await;
    // The write of a kubelet that has seen the earlier writes.
    let done = json!({
        "capacity": { "storage": "2Gi" }, "allocatedResourceStatuses": null, "conditions": null,
    });
    fixture.patch_status(done).await;
    second.cancel();
    let [begin, expand, resized, _] = fixture.grow_lines(2);
    let annotated = |size| json!({ "annotations": { PRE_RESIZE: size } });
    let capacity = json!({ "capacity": { "storage": "2Gi" } });
    let noted =
        fixture.volume_line(&json!({ "metadata": annotated(json!("1Gi")), "spec": capacity }));
    let settled = fixture.volume_line(&json!({ "metadata": annotated(json!(null)) }));
    let pending = fixture.pending_line();
    let read = "GET namespaces/default/persistentvolumeclaims/fault-node".to_owned();
    let [lost, late] = ["500", "409"].map(|code| format!("{pending} -> {code}"));
    fixture
        .expect([begin, expand.clone(), noted, lost, expand, resized, late, read, settled])
        .await;
    let two = json!({ "storage": "2Gi" });
    assert_eq!(fixture.status().await, json!({ "capacity": two, "allocatedResources": two }));
    fixture.stop().await;
}

#[tokio::test]
async fn claims_are_begun_while_the_driver_is_busy_and_wait_for_their_turn() {
    let Some(mut fixture) = Fixture::new("fault-busy").await else { return };
    fixture.options.workers = 1;
    let told = CancellationToken::new();
    fixture.driver.answer(Answer::When(told.clone()));
    fixture.claim().await;
    fixture.start().await;
    fixture.journal.wait_for(2).await;
    let others = ["busy-second", "busy-third"];
    for name in others {
        fixture.bound_as(name, |_| {}, |_| {}, json!({})).await;
        assert_eq!(fixture.about(name, 1).await, [fixture.begin_line(2)]);
    }
    let calls = fixture.journal.lines().into_iter().filter(|it| it.starts_with("Controller"));
    assert_eq!(calls.collect::<Vec<_>>(), [fixture.expand_line(2)]);
    told.cancel();
    for name in others {
        assert_eq!(fixture.about(name, 4).await, fixture.grow_lines(2));
    }
    fixture.stop().await;
}

#[tokio::test]
async fn a_size_that_cannot_be_written_down_is_asked_for_again() {
    let Some(mut fixture) = Fixture::new("fault-volume").await else { return };
    fixture.claim().await;
    fixture.journal.fail_once(Method::PATCH, "persistentvolumes/fault-volume", 500);
    fixture.start().await;
    let [begin, expand, resized, finish] = fixture.grow_lines(2);
    let lost = format!("{resized} -> 500");
    fixture.expect([begin, expand.clone(), lost, expand, resized, finish]).await;
    let failed = "error updating pv \"fault-volume\" by resizer: PersistentVolume fault-volume: told to answer 500";
    let resizing = "External resizer is resizing volume fault-volume";
    fixture.first_events([(RESIZING, resizing), ("VolumeResizeFailed", failed)]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_refusal_that_could_not_be_shown_does_not_rest() {
    let Some(mut fixture) = Fixture::new("fault-refusal").await else { return };
    let (told, refusal) = (CancellationToken::new(), Status::out_of_range("too large"));
    fixture.driver.answer(Answer::ErrorWhen(told.clone(), refusal.clone()));
    fixture.driver.answer(Answer::Error(refusal));
    fixture.claim().await;
    fixture.start().await;
    fixture.journal.wait_for(2).await;
    fixture.journal.fail_once(Method::PATCH, "fault-refusal/status", 500);
    told.cancel();
    let expand = format!("{} -> OutOfRange", fixture.expand_line(2));
    let refused = fixture.refused_line("rpc error: code = OutOfRange desc = too large", true);
    let lost = format!("{refused} -> 500");
    fixture.expect([fixture.begin_line(2), expand.clone(), lost, expand, refused]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_driver_that_hangs_is_asked_again() {
    let Some(mut fixture) = Fixture::new("fault-hang").await else { return };
    fixture.driver.answer(Answer::Never);
    fixture.claim().await;
    fixture.start_with_timeout(Duration::from_millis(500)).await;
    let [begin, expand, resized, finish] = fixture.grow_lines(2);
    fixture.expect([begin, format!("{expand} -> never"), expand, resized, finish]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_call_that_hangs_does_not_keep_the_resizer_from_stopping() {
    let Some(mut fixture) = Fixture::new("fault-stop").await else { return };
    fixture.driver.answer(Answer::Never);
    fixture.claim().await;
    fixture.start().await;
    fixture.journal.wait_for(2).await;
    tokio::time::timeout(crate::journal::DEADLINE / 2, fixture.stop()).await.unwrap();
}

#[tokio::test]
async fn what_a_killed_process_left_is_finished_by_the_next() {
    let Some(mut fixture) = Fixture::with_node("fault-killed").await else { return };
    fixture.options.backoff.first = Duration::from_mins(5);
    fixture.claim().await;
    let told = CancellationToken::new();
    fixture.driver.answer(Answer::When(told.clone()));
    fixture.start().await;
    let [begin, expand, resized, _] = fixture.grow_lines(2);
    let capacity = json!({ "capacity": { "storage": "2Gi" } });
    let noted = json!({ "metadata": { "annotations": { PRE_RESIZE: "1Gi" } }, "spec": capacity });
    let noted = fixture.volume_line(&noted);
    let pending = fixture.pending_line();

    // It is stopped during the call, after which nothing is written any more.
    fixture.expect([begin, expand.clone()]).await;
    fixture.journal.fail_once(Method::PATCH, "persistentvolumes/fault-killed", 500);
    fixture.restart().await;
    told.cancel();
    fixture.expect([expand.clone(), format!("{noted} -> 500")]).await;
    // It is stopped after the call.
    fixture.journal.clear();
    fixture.journal.fail_once(Method::PATCH, "fault-killed/status", 500);
    fixture.restart().await;
    fixture.expect([expand.clone(), noted, format!("{pending} -> 500")]).await;
    // It is stopped after the write to the volume. The noted size is that before the first attempt.
    fixture.restart().await;
    fixture.expect([expand, resized, pending]).await;
    let volume = fixture.get(VOLUMES).await.unwrap();
    assert_eq!(volume["metadata"]["annotations"][PRE_RESIZE], "1Gi");
    fixture.stop().await;
}

#[tokio::test]
async fn a_claim_made_anew_does_not_get_the_status_of_the_one_before() {
    let Some(mut fixture) = Fixture::new("fault-anew").await else { return };
    let told = CancellationToken::new();
    fixture.driver.answer(Answer::When(told.clone()));
    fixture.claim().await;
    fixture.start().await;
    fixture.journal.wait_for(2).await;
    fixture.patch(CLAIMS, json!({ "metadata": { "finalizers": null } })).await;
    fixture.delete(CLAIMS).await;
    let spec = json!({
        "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "9Gi" } },
    });
    let claim = json!({ "metadata": { "name": fixture.name }, "spec": spec });
    fixture.create(CLAIMS, "PersistentVolumeClaim", claim).await;
    told.cancel();
    let lines = fixture.journal.wait_for(4).await;
    assert!(lines[3].ends_with(" -> 409") || lines[3].ends_with(" -> 422"), "{lines:?}");
    let status = fixture.status().await;
    assert_eq!(status, json!({}), "nothing was done for this one");
    fixture.stop().await;
}
