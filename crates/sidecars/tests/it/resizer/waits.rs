//! Claims that change while they wait for a call to the driver.

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, CLAIMS, VOLUMES};
use crate::driver::Answer;

/// The resizer makes one call at a time, and the driver answers the call about claim `busy` when the token is cancelled.
async fn busy_bench(name: &'static str, busy: &str) -> Option<(Bench, CancellationToken)> {
    let mut bench = Bench::new(name).await?;
    bench.options.workers = 1;
    bench.growing_class().await;
    let answer = CancellationToken::new();
    bench.driver.answer_about(busy, Answer::When(answer.clone()));
    bench.bound_as(busy, |_| {}, |_| {}, json!({})).await;
    bench.start().await;
    bench.about(busy, 2).await;
    Some((bench, answer))
}

/// Waits until the resizer has seen all that was written to claims and volumes so far.
async fn barrier(bench: &Bench, name: &str) {
    bench.bound_as(name, |_| {}, |_| {}, json!({})).await;
    bench.about(name, 1).await;
}

fn calls_about(bench: &Bench, name: &str) -> usize {
    let call = format!("ControllerExpandVolume {name}-handle");
    bench.journal.lines().iter().filter(|line| line.starts_with(&call)).count()
}

#[tokio::test]
async fn a_request_that_is_lowered_during_the_wait_is_what_the_driver_is_asked_for() {
    let Some((bench, answer)) = busy_bench("wait-lowered", "lowered-busy").await else { return };
    let ten = |it: &mut Value| it["spec"]["resources"]["requests"] = json!({ "storage": "10Gi" });
    bench.bound(ten, |_| {}, json!({})).await;
    assert_eq!(bench.about("wait-lowered", 1).await, [bench.begin_line(10)]);
    bench.ask_for("3Gi").await;
    barrier(&bench, "lowered-barrier").await;
    answer.cancel();
    let [begin, expand, resized, finish] = bench.grow_lines(3);
    let lines = bench.about("wait-lowered", 5).await;
    assert_eq!(lines, [bench.begin_line(10), begin, expand, resized, finish]);
    let three = json!({ "storage": "3Gi" });
    assert_eq!(bench.status().await, json!({ "capacity": three, "allocatedResources": three }));
    bench.stop().await;
}

#[tokio::test]
async fn a_claim_that_is_deleted_during_the_wait_is_not_grown() {
    let Some((bench, answer)) = busy_bench("wait-gone", "gone-busy").await else { return };
    bench.bound(|_| {}, |_| {}, json!({})).await;
    bench.about("wait-gone", 1).await;
    bench.bound_as("kept-by-a-pod", |_| {}, |_| {}, json!({})).await;
    bench.about("kept-by-a-pod", 1).await;
    bench.patch(CLAIMS, json!({ "metadata": { "finalizers": null } })).await;
    bench.delete(CLAIMS).await;
    // The finalizer for claims that pods use holds this one.
    bench.delete_at(&format!("{CLAIMS}/kept-by-a-pod")).await;
    barrier(&bench, "gone-barrier").await;
    answer.cancel();
    // Claims are grown in the order in which they came.
    bench.about("gone-barrier", 4).await;
    assert_eq!(["wait-gone", "kept-by-a-pod"].map(|name| calls_about(&bench, name)), [0, 0]);
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_that_is_bound_to_another_claim_during_the_wait_is_not_grown() {
    let Some((bench, answer)) = busy_bench("wait-rebound", "rebound-busy").await else { return };
    bench.bound(|_| {}, |_| {}, json!({})).await;
    bench.about("wait-rebound", 1).await;
    let uid = "00000000-0000-0000-0000-000000000001";
    bench.patch(VOLUMES, json!({ "spec": { "claimRef": { "uid": uid } } })).await;
    barrier(&bench, "rebound-barrier").await;
    answer.cancel();
    bench.about("rebound-barrier", 4).await;
    assert_eq!(calls_about(&bench, "wait-rebound"), 0);
    bench.stop().await;
}

#[tokio::test]
async fn a_growth_whose_secret_was_missing_gives_way_to_a_smaller_one() {
    let Some(mut bench) = Bench::new("wait-secret").await else { return };
    bench.options.backoff.first = std::time::Duration::from_mins(1);
    bench.growing_class().await;
    let reference = json!({ "name": "wait-secret", "namespace": "default" });
    let ten = |it: &mut Value| it["spec"]["resources"]["requests"] = json!({ "storage": "10Gi" });
    let secret = |it: &mut Value| it["spec"]["csi"]["controllerExpandSecretRef"] = reference;
    bench.bound(ten, secret, json!({})).await;
    bench.start().await;
    let missing = "GET namespaces/default/secrets/wait-secret -> 404".to_owned();
    bench.expect([bench.begin_line(10), missing]).await;
    bench.journal.clear();
    let secret = json!({ "metadata": { "name": "wait-secret" }, "stringData": { "key": "hush" } });
    bench.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    bench.ask_for("3Gi").await;
    let [begin, expand, resized, finish] = bench.grow_lines(3);
    let read = "GET namespaces/default/secrets/wait-secret".to_owned();
    bench.expect([begin, read, expand, resized, finish]).await;
    bench.stop().await;
}
