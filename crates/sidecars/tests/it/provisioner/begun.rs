//! Volumes that the driver may have, of claims that cannot be marked any more: only the process
//! knows of them.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::fixture::{CLAIMS, CLASSES, Fixture, made, marked};
use crate::driver::Answer;

/// Errors about the caller or another request; they do not tell whether there is a volume.
#[tokio::test]
async fn an_answer_that_tells_nothing_of_the_volume_ends_nothing() {
    let Some(mut fixture) = Fixture::new("begun-denied", &[]).await else { return };
    let gone = CancellationToken::new();
    fixture.driver.answer(Answer::ErrorWhen(gone.clone(), Status::unavailable("away")));
    for status in [
        Status::permission_denied("not you"),
        Status::unauthenticated("who is it"),
        Status::already_exists("another one"),
    ] {
        fixture.driver.answer(Answer::Error(status));
    }
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    fixture.journal.wait_for(1).await;
    fixture.delete_claim().await;
    gone.cancel();
    let [create, post] = made(&name);
    let failed = |code: &str| format!("{create} -> {code}");
    let calls = ["Unavailable", "PermissionDenied", "Unauthenticated", "AlreadyExists"].map(failed);
    for call in calls {
        fixture.journal.line(&call).await;
    }
    fixture.journal.line(&post).await;
    fixture.stop().await;
}

/// A first answer is final, whatever its code: there was no earlier call.
#[tokio::test]
async fn a_first_request_that_is_denied_is_forgotten_with_its_claim() {
    let Some(mut fixture) = Fixture::new("begun-first", &[]).await else { return };
    let gone = CancellationToken::new();
    fixture.driver.answer(Answer::ErrorWhen(gone.clone(), Status::permission_denied("not you")));
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    fixture.journal.wait_for(1).await;
    fixture.delete_claim().await;
    gone.cancel();
    fixture.journal.event("Warning ProvisioningFailed rpc error: code = PermissionDenied").await;
    // Its back-off has ended when the next claim is served.
    let next = fixture.claim(|it| it["metadata"]["name"] = json!("begun-first-next")).await;
    let ([create, _], [other, post]) = (made(&name), made(&next));
    fixture.journal.expect([format!("{create} -> PermissionDenied"), other, post]).await;
    fixture.stop().await;
}

/// A claim that a foreign finalizer keeps while it is deleted, and a class that no volume can be
/// created from.
#[tokio::test]
async fn a_class_that_is_refused_meanwhile_ends_nothing() {
    let Some(mut fixture) = Fixture::new("begun-refused", &[]).await else { return };
    let told = CancellationToken::new();
    fixture.driver.answer(Answer::ErrorWhen(told.clone(), Status::unavailable("away")));
    fixture.class(|it| it["parameters"] = json!({ "tier": "fast" })).await;
    let name = fixture.claim(|it| it["metadata"]["finalizers"] = json!(["example.com/held"])).await;
    fixture.start();
    fixture.journal.wait_for(1).await;
    fixture.delete(CLAIMS).await;
    fixture.delete(CLASSES).await;
    let parameters = json!({ "tier": "fast", "csi.storage.k8s.io/no-such-key": "x" });
    fixture.class(|it| it["parameters"] = parameters).await;
    told.cancel();
    let ([create, post], [get, _]) = (made(&name), marked(fixture.name));
    fixture.journal.line(&format!("{create} -> Unavailable")).await;
    fixture.journal.line(&get).await;
    fixture.journal.line(&post).await;
    let asked = fixture.driver.volumes().last_asked();
    assert_eq!((asked.name.as_str(), asked.parameters["tier"].as_str()), (&*name, "fast"));
    fixture.patch(CLAIMS, json!({ "metadata": { "finalizers": null } })).await;
    fixture.stop().await;
}

/// As with SIGTERM: the answer to the call in progress is the last one.
#[tokio::test]
async fn a_provisioner_that_is_stopped_uses_the_answer_to_a_call_under_way() {
    let Some(mut fixture) = Fixture::new("begun-stopped", &[]).await else { return };
    let told = CancellationToken::new();
    fixture.driver.answer(Answer::When(told.clone()));
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    fixture.journal.wait_for(1).await;
    fixture.delete_claim().await;
    fixture.stop.cancel();
    told.cancel();
    fixture.stop_controller().await;
    assert!(fixture.persistent_volume(&name).await.is_some(), "{:?}", fixture.journal.lines());
    fixture.stop().await;
}

/// No call is in progress: the next one would follow after a pause.
#[tokio::test]
async fn a_provisioner_that_is_stopped_asks_once_more_for_a_volume_that_only_it_knows() {
    let Some(mut fixture) = Fixture::new("begun-waiting", &[]).await else { return };
    fixture.options.backoff.first = Duration::from_mins(5);
    let gone = CancellationToken::new();
    fixture.driver.answer(Answer::ErrorWhen(gone.clone(), Status::unavailable("away")));
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    fixture.journal.wait_for(1).await;
    fixture.delete_claim().await;
    gone.cancel();
    fixture.journal.event("Warning ProvisioningFailed rpc error: code = Unavailable").await;
    fixture.stop_controller().await;
    let ([create, post], lines) = (made(&name), fixture.journal.lines());
    assert!(lines.contains(&create) && lines.contains(&post), "{lines:?}");
    fixture.stop().await;
}

/// The claim has its mark, so the next leader finds the volume.
#[tokio::test]
async fn a_provisioner_that_is_stopped_does_not_wait_for_the_volume_of_a_marked_claim() {
    let Some(mut fixture) = Fixture::new("begun-marked", &[]).await else { return };
    fixture.driver.answer(Answer::Never);
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    fixture.journal.wait_for(1).await;
    fixture.stop_controller().await;
    let ([create, _], [get, put]) = (made(&name), marked(fixture.name));
    fixture.journal.expect([format!("{create} -> never"), get, put]).await;
    fixture.stop().await;
}
