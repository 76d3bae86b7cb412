use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::fixture::{CLAIMS, Fixture, PODS};
use crate::driver::Answer;

const ERROR: &str = "rpc error: code = FailedPrecondition desc = in use";

/// A pod that uses the claim.
async fn pod(fixture: &Fixture) {
    let account = json!({ "metadata": { "name": fixture.name } });
    fixture.create("/api/v1/namespaces/default/serviceaccounts", "ServiceAccount", account).await;
    let volume = json!({ "name": "data", "persistentVolumeClaim": { "claimName": fixture.name } });
    let pod = json!({
        "metadata": { "name": fixture.name },
        "spec": {
            "serviceAccountName": fixture.name,
            "automountServiceAccountToken": false,
            "containers": [{ "name": "main", "image": "pause" }],
            "volumes": [volume],
        },
    });
    fixture.create(PODS, "Pod", pod).await;
}

#[tokio::test]
async fn a_volume_that_does_not_grow_in_use_waits_for_its_pod() {
    let Some(mut fixture) = Fixture::new("use-pod").await else { return };
    fixture.driver.answer(Answer::Error(Status::failed_precondition("in use")));
    pod(&fixture).await;
    fixture.claim().await;
    fixture.start().await;
    let [begin, expand, resized, _] = fixture.grow_lines(2);
    let refused = fixture.refused_line(ERROR, false);
    fixture.expect([begin, format!("{expand} -> FailedPrecondition"), refused]).await;
    let failed =
        format!("resize volume \"use-pod\" by resizer \"use-pod.csi.test\" failed: {ERROR}");
    let unable = "Unable to expand default/use-pod because CSI driver use-pod.csi.test only supports offline expansion \
        and volume is currently in-use";
    let resizing = "External resizer is resizing volume use-pod";
    let told =
        [("Resizing", resizing), ("VolumeResizeFailed", &*failed), ("VolumeResizeFailed", unable)];
    fixture.first_events(told).await;

    fixture.journal.clear();
    fixture.delete(PODS).await;
    let lines = fixture.journal.wait_for(3).await;
    assert_eq!(lines[..2], [expand, resized]);
    fixture.stop().await;
}

#[tokio::test]
async fn a_pod_that_has_ended_uses_nothing() {
    let Some(mut fixture) = Fixture::new("use-ended").await else { return };
    fixture.driver.answer(Answer::Error(Status::failed_precondition("in use")));
    pod(&fixture).await;
    let request = http::Request::patch(format!("{PODS}/use-ended/status"))
        .header("content-type", "application/merge-patch+json")
        .body(json!({ "status": { "phase": "Succeeded" } }).to_string().into_bytes())
        .unwrap();
    fixture.admin.request::<Value>(request).await.unwrap();
    fixture.claim().await;
    fixture.start().await;
    let lines = fixture.journal.wait_for(6).await;
    assert_eq!(lines[3], fixture.expand_line(2));
    fixture.stop().await;
}

#[tokio::test]
async fn a_claim_made_anew_is_not_judged_by_the_one_before() {
    let Some(mut fixture) = Fixture::new("use-anew").await else { return };
    let told = CancellationToken::new();
    let refusal = Status::failed_precondition("in use");
    fixture.driver.answer(Answer::ErrorWhen(told.clone(), refusal));
    pod(&fixture).await;
    fixture.claim().await;
    fixture.start().await;
    fixture.journal.wait_for(2).await;
    fixture.patch(CLAIMS, json!({ "metadata": { "finalizers": null } })).await;
    fixture.delete(CLAIMS).await;
    // Its expansion shows that the deletion of the other was seen.
    fixture.bound_as("use-barrier", |_| {}, |_| {}, json!({})).await;
    fixture.about("use-barrier", 4).await;
    fixture.journal.clear();
    told.cancel();
    let refused = format!("{} -> 404", fixture.refused_line(ERROR, false));
    fixture.expect([refused]).await;

    fixture.journal.clear();
    let volume = json!("use-anew-second");
    let named = |it: &mut Value| it["spec"]["volumeName"] = volume.clone();
    fixture.bound(named, |it| it["metadata"]["name"] = volume.clone(), json!({})).await;
    let lines = fixture.journal.wait_for(2).await;
    assert_eq!(lines[1], fixture.expand_line(2));
    fixture.stop().await;
}

#[tokio::test]
async fn pods_are_not_asked_about_unless_wanted() {
    let Some(mut fixture) = Fixture::new("use-off").await else { return };
    fixture.options.in_use = false;
    fixture.options.backoff.first = Duration::from_millis(5);
    fixture.driver.answer(Answer::Error(Status::failed_precondition("in use")));
    pod(&fixture).await;
    fixture.claim().await;
    fixture.start().await;
    let lines = fixture.journal.wait_for(6).await;
    assert_eq!(lines[3], fixture.expand_line(2));
    assert_eq!(fixture.journal.lists(), 2, "claims and volumes");
    fixture.stop().await;
}
