//! Claims that change while they wait for a call of the driver.

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::fixture::{CLAIMS, Fixture, VOLUMES};
use crate::driver::Answer;

/// The resizer makes one call at a time, and the driver answers the call about claim `busy` when
/// the token is cancelled.
async fn busy_fixture(name: &'static str, busy: &str) -> Option<(Fixture, CancellationToken)> {
    let mut fixture = Fixture::new(name).await?;
    fixture.options.workers = 1;
    fixture.growing_class().await;
    let answer = CancellationToken::new();
    fixture.driver.answer_about(busy, Answer::When(answer.clone()));
    fixture.bound_as(busy, |_| {}, |_| {}, json!({})).await;
    fixture.start().await;
    fixture.about(busy, 2).await;
    Some((fixture, answer))
}

/// Waits until the resizer has seen all earlier writes to claims and volumes.
async fn barrier(fixture: &Fixture, name: &str) {
    fixture.bound_as(name, |_| {}, |_| {}, json!({})).await;
    fixture.about(name, 1).await;
}

fn calls_about(fixture: &Fixture, name: &str) -> usize {
    let call = format!("ControllerExpandVolume {name}-handle");
    fixture.journal.lines().iter().filter(|line| line.starts_with(&call)).count()
}

#[tokio::test]
async fn a_request_that_is_lowered_during_the_wait_is_what_the_driver_is_asked_for() {
    let Some((fixture, answer)) = busy_fixture("wait-lowered", "lowered-busy").await else {
        return;
    };
    let ten = |it: &mut Value| it["spec"]["resources"]["requests"] = json!({ "storage": "10Gi" });
    fixture.bound(ten, |_| {}, json!({})).await;
    assert_eq!(fixture.about("wait-lowered", 1).await, [fixture.begin_line(10)]);
    fixture.ask_for("3Gi").await;
    barrier(&fixture, "lowered-barrier").await;
    answer.cancel();
    let [begin, expand, resized, finish] = fixture.grow_lines(3);
    let lines = fixture.about("wait-lowered", 5).await;
    assert_eq!(lines, [fixture.begin_line(10), begin, expand, resized, finish]);
    let three = json!({ "storage": "3Gi" });
    assert_eq!(fixture.status().await, json!({ "capacity": three, "allocatedResources": three }));
    fixture.stop().await;
}

#[tokio::test]
async fn a_claim_that_is_deleted_during_the_wait_is_not_grown() {
    let Some((fixture, answer)) = busy_fixture("wait-gone", "gone-busy").await else { return };
    fixture.bound(|_| {}, |_| {}, json!({})).await;
    fixture.about("wait-gone", 1).await;
    fixture.bound_as("kept-by-a-pod", |_| {}, |_| {}, json!({})).await;
    fixture.about("kept-by-a-pod", 1).await;
    fixture.patch(CLAIMS, json!({ "metadata": { "finalizers": null } })).await;
    fixture.delete(CLAIMS).await;
    // Kubernetes' finalizer for claims in use keeps this one.
    fixture.delete_at(&format!("{CLAIMS}/kept-by-a-pod")).await;
    barrier(&fixture, "gone-barrier").await;
    answer.cancel();
    // Claims are expanded in the order of their arrival.
    fixture.about("gone-barrier", 4).await;
    assert_eq!(["wait-gone", "kept-by-a-pod"].map(|name| calls_about(&fixture, name)), [0, 0]);
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_that_is_bound_to_another_claim_during_the_wait_is_not_grown() {
    let Some((fixture, answer)) = busy_fixture("wait-rebound", "rebound-busy").await else {
        return;
    };
    fixture.bound(|_| {}, |_| {}, json!({})).await;
    fixture.about("wait-rebound", 1).await;
    let uid = "00000000-0000-0000-0000-000000000001";
    fixture.patch(VOLUMES, json!({ "spec": { "claimRef": { "uid": uid } } })).await;
    barrier(&fixture, "rebound-barrier").await;
    answer.cancel();
    fixture.about("rebound-barrier", 4).await;
    assert_eq!(calls_about(&fixture, "wait-rebound"), 0);
    fixture.stop().await;
}

#[tokio::test]
async fn a_growth_whose_secret_was_missing_gives_way_to_a_smaller_one() {
    let Some(mut fixture) = Fixture::new("wait-secret").await else { return };
    fixture.options.backoff.first = std::time::Duration::from_mins(1);
    fixture.growing_class().await;
    let reference = json!({ "name": "wait-secret", "namespace": "default" });
    let ten = |it: &mut Value| it["spec"]["resources"]["requests"] = json!({ "storage": "10Gi" });
    let secret = |it: &mut Value| it["spec"]["csi"]["controllerExpandSecretRef"] = reference;
    fixture.bound(ten, secret, json!({})).await;
    fixture.start().await;
    let missing = "GET namespaces/default/secrets/wait-secret -> 404".to_owned();
    fixture.expect([fixture.begin_line(10), missing]).await;
    fixture.journal.clear();
    let secret = json!({ "metadata": { "name": "wait-secret" }, "stringData": { "key": "hush" } });
    fixture.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    fixture.ask_for("3Gi").await;
    let [begin, expand, resized, finish] = fixture.grow_lines(3);
    let read = "GET namespaces/default/secrets/wait-secret".to_owned();
    fixture.expect([begin, read, expand, resized, finish]).await;
    fixture.stop().await;
}
