//! A driver that returns each gRPC code once and then succeeds.

use std::time::Duration;

use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::Code;

use super::fixture::{CLAIMS, Fixture, deleted, made};
use crate::{
    codes::{each, error, text},
    driver::Answer,
};

/// Creates a claim for each code; returns its volume's name.
async fn claims(fixture: &Fixture) -> Vec<(Code, String, String)> {
    let mut claims = Vec::new();
    for (code, claim) in each(fixture.name) {
        let volume = fixture.claim(|it| it["metadata"]["name"] = json!(claim)).await;
        claims.push((code, claim, volume));
    }
    claims
}

/// The event about the claim.
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
    let Some(mut fixture) = Fixture::new("codes-create", &[]).await else { return };
    fixture.options.backoff.max = Duration::from_millis(50);
    fixture.class(|_| {}).await;
    let claims = claims(&fixture).await;
    for (code, _, volume) in &claims {
        fixture.driver.answer_about(volume, Answer::Error(error(*code)));
    }
    fixture.start();
    for (code, _, volume) in claims {
        let [create, post] = made(&volume);
        let expected = [format!("{create} -> {code:?}"), create, post];
        assert_eq!(fixture.journal.about(&volume, &volume, expected.len()).await, expected);
        fixture.journal.event(&failed(code)).await;
        let made = format!("Normal ProvisioningSucceeded Successfully provisioned volume {volume}");
        fixture.journal.event(&made).await;
        assert!(fixture.persistent_volume(&volume).await.is_some(), "{code:?}");
    }
    fixture.stop().await;
}

#[tokio::test]
async fn a_claim_that_goes_leaves_only_what_may_be_in_the_making() {
    let in_the_making = [Code::Cancelled, Code::DeadlineExceeded, Code::Aborted, Code::Unavailable];
    let Some(mut fixture) = Fixture::new("codes-gone", &[]).await else { return };
    fixture.class(|_| {}).await;
    let (gone, claims) = (CancellationToken::new(), claims(&fixture).await);
    for (code, _, volume) in &claims {
        fixture.driver.answer_about(volume, Answer::ErrorWhen(gone.clone(), error(*code)));
    }
    fixture.start();
    fixture.journal.wait_for(claims.len()).await;
    for (_, claim, _) in &claims {
        let path = format!("{CLAIMS}/{claim}");
        fixture.patch_at(&path, json!({ "metadata": { "finalizers": null } })).await;
        fixture.delete_at(&path).await;
    }
    // A provisioner that serves a later claim has seen all earlier objects.
    let next = fixture.claim(|it| it["metadata"]["name"] = json!("codes-gone-before")).await;
    fixture.journal.about(&next, &next, 2).await;
    gone.cancel();
    for (code, _, volume) in claims.iter().filter(|(code, ..)| in_the_making.contains(code)) {
        let [create, post] = made(volume);
        let expected = [format!("{create} -> {code:?}"), create, post];
        assert_eq!(fixture.journal.about(volume, volume, expected.len()).await, expected);
    }
    // The back-off of the others has ended when the next claim is served.
    let next = fixture.claim(|it| it["metadata"]["name"] = json!("codes-gone-after")).await;
    fixture.journal.about(&next, &next, 2).await;
    for (code, _, volume) in claims.iter().filter(|(code, ..)| !in_the_making.contains(code)) {
        fixture.journal.event(&failed(*code)).await;
        let [create, _] = made(volume);
        let lines = fixture.journal.about(volume, volume, 1).await;
        assert_eq!(lines, [format!("{create} -> {code:?}")]);
    }
    fixture.stop().await;
}

#[tokio::test]
async fn whatever_a_deletion_is_refused_with_is_told_and_tried_again() {
    let Some(mut fixture) = Fixture::new("codes-delete", &[]).await else { return };
    for (code, name) in each(fixture.name) {
        fixture.driver.answer_about(&name, Answer::Error(error(code)));
        fixture.released(&name, |_| {}).await;
    }
    fixture.start();
    for (code, name) in each(fixture.name) {
        let [delete, object, release] = deleted(&name);
        let expected = [format!("{delete} -> {code:?}"), delete, object, release];
        assert_eq!(fixture.journal.about(&name, &name, expected.len()).await, expected);
        fixture.journal.event(&format!("Warning VolumeFailedDelete {}", text(code))).await;
        let left = fixture.persistent_volume(&name).await.unwrap();
        assert_eq!(left["metadata"]["finalizers"], json!(["kubernetes.io/pv-protection"]));
    }
    fixture.stop().await;
}
