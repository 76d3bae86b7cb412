//! Volumes that the driver may have, of claims that take no mark any more: only the process remembers them.

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
