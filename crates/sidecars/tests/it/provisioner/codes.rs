//! A driver that answers each code there is, once, and then as it should.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::bench::{Bench, CLAIMS, deleted, made};
use crate::codes::{each, error, text};
use crate::driver::Answer;

/// A claim for each code, with the name of the volume that it should get.
async fn claims(bench: &Bench) -> Vec<(Code, String, String)> {
    let mut claims = Vec::new();
    for (code, claim) in each(bench.name) {
        let volume = bench.claim(|it| it["metadata"]["name"] = json!(claim)).await;
        claims.push((code, claim, volume));
    }
    claims
}

/// The event about it.
fn failed(code: Code) -> String {
    let slow = match code {
        Code::InvalidArgument => {
            "Volume provisioning failed with infeasible error. Retries will be delayed. "
        }
        _ => "",
    };
    format!("Warning ProvisioningFailed {slow}{}", text(code))
}

#[tokio::test]
async fn whatever_a_volume_is_refused_with_is_told_and_tried_again() {
    let Some(mut bench) = Bench::new("codes-create", &[]).await else { return };
    bench.options.backoff.max = Duration::from_millis(50);
    bench.class(|_| {}).await;
    let claims = claims(&bench).await;
    for (code, _, volume) in &claims {
        bench.driver.answer_about(volume, Answer::Error(error(*code)));
    }
    bench.start();
    for (code, _, volume) in claims {
        let [create, post] = made(&volume);
        let expected = [format!("{create} -> {code:?}"), create, post];
        assert_eq!(bench.journal.about(&volume, &volume, expected.len()).await, expected);
        bench.journal.event(&failed(code)).await;
        let made = format!("Normal ProvisioningSucceeded Successfully provisioned volume {volume}");
        bench.journal.event(&made).await;
        assert!(bench.persistent_volume(&volume).await.is_some(), "{code:?}");
    }
    bench.stop().await;
}

#[tokio::test]
async fn a_claim_that_goes_leaves_only_what_may_be_in_the_making() {
    let in_the_making = [Code::Cancelled, Code::DeadlineExceeded, Code::Aborted, Code::Unavailable];
    let Some(mut bench) = Bench::new("codes-gone", &[]).await else { return };
    bench.class(|_| {}).await;
    let (gone, claims) = (CancellationToken::new(), claims(&bench).await);
    for (code, _, volume) in &claims {
        bench.driver.answer_about(volume, Answer::ErrorWhen(gone.clone(), error(*code)));
    }
    bench.start();
    bench.journal.wait_for(claims.len()).await;
    for (_, claim, _) in &claims {
        let path = format!("{CLAIMS}/{claim}");
        bench.patch_at(&path, json!({ "metadata": { "finalizers": null } })).await;
        bench.delete_at(&path).await;
    }
    // Who serves a claim that was made after it has seen all that was before.
    let next = bench.claim(|it| it["metadata"]["name"] = json!("codes-gone-before")).await;
    bench.journal.about(&next, &next, 2).await;
    gone.cancel();
    for (code, _, volume) in claims.iter().filter(|(code, ..)| in_the_making.contains(code)) {
        let [create, post] = made(volume);
        let expected = [format!("{create} -> {code:?}"), create, post];
        assert_eq!(bench.journal.about(volume, volume, expected.len()).await, expected);
    }
    // The others' back-off is long over when the next claim is served.
    let next = bench.claim(|it| it["metadata"]["name"] = json!("codes-gone-after")).await;
    bench.journal.about(&next, &next, 2).await;
    for (code, _, volume) in claims.iter().filter(|(code, ..)| !in_the_making.contains(code)) {
        bench.journal.event(&failed(*code)).await;
        let [create, _] = made(volume);
        let lines = bench.journal.about(volume, volume, 1).await;
        assert_eq!(lines, [format!("{create} -> {code:?}")]);
    }
    bench.stop().await;
}

#[tokio::test]
async fn whatever_a_deletion_is_refused_with_is_told_and_tried_again() {
    let Some(mut bench) = Bench::new("codes-delete", &[]).await else { return };
    for (code, name) in each(bench.name) {
        bench.driver.answer_about(&name, Answer::Error(error(code)));
        bench.released(&name, |_| {}).await;
    }
    bench.start();
    for (code, name) in each(bench.name) {
        let [delete, object, release] = deleted(&name);
        let expected = [format!("{delete} -> {code:?}"), delete, object, release];
        assert_eq!(bench.journal.about(&name, &name, expected.len()).await, expected);
        bench.journal.event(&format!("Warning VolumeFailedDelete {}", text(code))).await;
        let left = bench.persistent_volume(&name).await.unwrap();
        assert_eq!(left["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    }
    bench.stop().await;
}
