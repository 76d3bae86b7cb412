use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::bench::{Bench, CLAIMS, PODS};
use crate::driver::Answer;

const ERROR: &str = "rpc error: code = FailedPrecondition desc = in use";

/// A pod that uses the claim.
async fn pod(bench: &Bench) {
    let account = json!({ "metadata": { "name": bench.name } });
    bench.create("/api/v1/namespaces/default/serviceaccounts", "ServiceAccount", account).await;
    let volume = json!({ "name": "data", "persistentVolumeClaim": { "claimName": bench.name } });
    let pod = json!({
        "metadata": { "name": bench.name },
        "spec": {
            "serviceAccountName": bench.name,
            "automountServiceAccountToken": false,
            "containers": [{ "name": "main", "image": "pause" }],
            "volumes": [volume],
        },
    });
    bench.create(PODS, "Pod", pod).await;
}

#[tokio::test]
async fn a_volume_that_does_not_grow_in_use_waits_for_its_pod() {
    let Some(mut bench) = Bench::new("use-pod").await else { return };
    bench.driver.answer(Answer::Error(Status::failed_precondition("in use")));
    pod(&bench).await;
    bench.claim().await;
    bench.start().await;
    let [begin, expand, resized, _] = bench.grow_lines(2);
    let refused = bench.refused_line(ERROR, false);
    bench.expect([begin, format!("{expand} -> FailedPrecondition"), refused]).await;
    let failed =
        format!("resize volume \"use-pod\" by resizer \"use-pod.csi.test\" failed: {ERROR}");
    let unable = "Unable to expand default/use-pod because CSI driver use-pod.csi.test only supports offline expansion \
        and volume is currently in-use";
    let resizing = "External resizer is resizing volume use-pod";
    let told =
        [("Resizing", resizing), ("VolumeResizeFailed", &*failed), ("VolumeResizeFailed", unable)];
    bench.first_events(told).await;

    bench.journal.clear();
    bench.delete(PODS).await;
    let lines = bench.journal.wait_for(3).await;
    assert_eq!(lines[..2], [expand, resized]);
    bench.stop().await;
}

#[tokio::test]
async fn a_pod_that_has_ended_uses_nothing() {
    let Some(mut bench) = Bench::new("use-ended").await else { return };
    bench.driver.answer(Answer::Error(Status::failed_precondition("in use")));
    pod(&bench).await;
    let request = http::Request::patch(format!("{PODS}/use-ended/status"))
        .header("content-type", "application/merge-patch+json")
        .body(json!({ "status": { "phase": "Succeeded" } }).to_string().into_bytes())
        .unwrap();
    bench.admin.request::<Value>(request).await.unwrap();
    bench.claim().await;
    bench.start().await;
    let lines = bench.journal.wait_for(6).await;
    assert_eq!(lines[3], bench.expand_line(2));
    bench.stop().await;
}

#[tokio::test]
async fn a_claim_made_anew_is_not_judged_by_the_one_before() {
    let Some(mut bench) = Bench::new("use-anew").await else { return };
    let told = CancellationToken::new();
    let refusal = Status::failed_precondition("in use");
    bench.driver.answer(Answer::ErrorWhen(told.clone(), refusal));
    pod(&bench).await;
    bench.claim().await;
    bench.start().await;
    bench.journal.wait_for(2).await;
    bench.patch(CLAIMS, json!({ "metadata": { "finalizers": null } })).await;
    bench.delete(CLAIMS).await;
    // Once this one has grown, the other is known to be gone.
    bench.bound_as("use-barrier", |_| {}, |_| {}, json!({})).await;
    bench.about("use-barrier", 4).await;
    bench.journal.clear();
    told.cancel();
    let refused = format!("{} -> 404", bench.refused_line(ERROR, false));
    bench.expect([refused]).await;

    bench.journal.clear();
    let volume = json!("use-anew-second");
    let named = |it: &mut Value| it["spec"]["volumeName"] = volume.clone();
    bench.bound(named, |it| it["metadata"]["name"] = volume.clone(), json!({})).await;
    let lines = bench.journal.wait_for(2).await;
    assert_eq!(lines[1], bench.expand_line(2));
    bench.stop().await;
}

#[tokio::test]
async fn pods_are_not_asked_about_unless_wanted() {
    let Some(mut bench) = Bench::new("use-off").await else { return };
    bench.options.in_use = false;
    bench.options.backoff.first = Duration::from_millis(5);
    bench.driver.answer(Answer::Error(Status::failed_precondition("in use")));
    pod(&bench).await;
    bench.claim().await;
    bench.start().await;
    let lines = bench.journal.wait_for(6).await;
    assert_eq!(lines[3], bench.expand_line(2));
    assert_eq!(bench.journal.lists(), 2, "claims and volumes");
    bench.stop().await;
}
