//! Volumes that the driver may have, of claims that take no mark any more: only the process remembers them.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::bench::{Bench, CLAIMS, CLASSES, made, marked};
use crate::driver::Answer;

/// Each tells about the caller or about another request, and not whether there is a volume.
#[tokio::test]
async fn an_answer_that_tells_nothing_of_the_volume_ends_nothing() {
    let Some(mut bench) = Bench::new("begun-denied", &[]).await else { return };
    let gone = CancellationToken::new();
    bench.driver.answer(Answer::ErrorWhen(gone.clone(), Status::unavailable("away")));
    for status in [
        Status::permission_denied("not you"),
        Status::unauthenticated("who is it"),
        Status::already_exists("another one"),
    ] {
        bench.driver.answer(Answer::Error(status));
    }
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    bench.journal.wait_for(1).await;
    bench.delete_claim().await;
    gone.cancel();
    let [create, post] = made(&name);
    let failed = |code: &str| format!("{create} -> {code}");
    let calls = ["Unavailable", "PermissionDenied", "Unauthenticated", "AlreadyExists"].map(failed);
    for call in calls {
        bench.journal.line(&call).await;
    }
    bench.journal.line(&post).await;
    bench.stop().await;
}

/// A first answer is final, whatever it says: nothing was asked for before it.
#[tokio::test]
async fn a_first_request_that_is_denied_is_forgotten_with_its_claim() {
    let Some(mut bench) = Bench::new("begun-first", &[]).await else { return };
    let gone = CancellationToken::new();
    bench.driver.answer(Answer::ErrorWhen(gone.clone(), Status::permission_denied("not you")));
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    bench.journal.wait_for(1).await;
    bench.delete_claim().await;
    gone.cancel();
    bench.journal.event("Warning ProvisioningFailed rpc error: code = PermissionDenied").await;
    // Its back-off is long over when the next claim is served.
    let next = bench.claim(|it| it["metadata"]["name"] = json!("begun-first-next")).await;
    let ([create, _], [other, post]) = (made(&name), made(&next));
    bench.journal.expect([format!("{create} -> PermissionDenied"), other, post]).await;
    bench.stop().await;
}

/// A claim that somebody else holds while it is deleted, and a class that no volume can be made of.
#[tokio::test]
async fn a_class_that_is_refused_meanwhile_ends_nothing() {
    let Some(mut bench) = Bench::new("begun-refused", &[]).await else { return };
    let told = CancellationToken::new();
    bench.driver.answer(Answer::ErrorWhen(told.clone(), Status::unavailable("away")));
    bench.class(|it| it["parameters"] = json!({ "tier": "fast" })).await;
    let name = bench.claim(|it| it["metadata"]["finalizers"] = json!(["example.com/held"])).await;
    bench.start();
    bench.journal.wait_for(1).await;
    bench.delete(CLAIMS).await;
    bench.delete(CLASSES).await;
    let parameters = json!({ "tier": "fast", "csi.storage.k8s.io/no-such-key": "x" });
    bench.class(|it| it["parameters"] = parameters).await;
    told.cancel();
    let ([create, post], [get, _]) = (made(&name), marked(bench.name));
    bench.journal.line(&format!("{create} -> Unavailable")).await;
    bench.journal.line(&get).await;
    bench.journal.line(&post).await;
    let asked = bench.driver.volumes().last_asked();
    assert_eq!((asked.name.as_str(), asked.parameters["tier"].as_str()), (&*name, "fast"));
    bench.patch(CLAIMS, json!({ "metadata": { "finalizers": null } })).await;
    bench.stop().await;
}

/// As with SIGTERM: the answer to the call under way is the last that can be learnt of the volume.
#[tokio::test]
async fn a_provisioner_that_is_stopped_uses_the_answer_to_a_call_under_way() {
    let Some(mut bench) = Bench::new("begun-stopped", &[]).await else { return };
    let told = CancellationToken::new();
    bench.driver.answer(Answer::When(told.clone()));
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    bench.journal.wait_for(1).await;
    bench.delete_claim().await;
    bench.stop.cancel();
    told.cancel();
    bench.stop_controller().await;
    assert!(bench.persistent_volume(&name).await.is_some(), "{:?}", bench.journal.lines());
    bench.stop().await;
}

/// No call is under way: the next one would have been made after a pause.
#[tokio::test]
async fn a_provisioner_that_is_stopped_asks_once_more_for_a_volume_that_only_it_knows() {
    let Some(mut bench) = Bench::new("begun-waiting", &[]).await else { return };
    bench.options.backoff.first = Duration::from_mins(5);
    let gone = CancellationToken::new();
    bench.driver.answer(Answer::ErrorWhen(gone.clone(), Status::unavailable("away")));
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    bench.journal.wait_for(1).await;
    bench.delete_claim().await;
    gone.cancel();
    bench.journal.event("Warning ProvisioningFailed rpc error: code = Unavailable").await;
    bench.stop_controller().await;
    let ([create, post], lines) = (made(&name), bench.journal.lines());
    assert!(lines.contains(&create) && lines.contains(&post), "{lines:?}");
    bench.stop().await;
}

/// The claim has its mark, and so the next leader finds the volume.
#[tokio::test]
async fn a_provisioner_that_is_stopped_does_not_wait_for_the_volume_of_a_marked_claim() {
    let Some(mut bench) = Bench::new("begun-marked", &[]).await else { return };
    bench.driver.answer(Answer::Never);
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    bench.journal.wait_for(1).await;
    bench.stop_controller().await;
    let ([create, _], [get, put]) = (made(&name), marked(bench.name));
    bench.journal.expect([format!("{create} -> never"), get, put]).await;
    bench.stop().await;
}
