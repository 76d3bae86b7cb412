use http::Method;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::fixture::{CLAIMS, Fixture, made, marked};
use crate::driver::Answer;

#[tokio::test]
async fn a_volume_whose_object_cannot_be_written_is_kept_and_not_made_again() {
    let Some(mut fixture) = Fixture::new("prov-unsaved", &[]).await else { return };
    for code in [500, 403, 422] {
        fixture.journal.fail_once(Method::POST, "persistentvolumes", code);
    }
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    let [create, post] = made(&name);
    let failed = |code: u16| format!("{post} -> {code}");
    // The claim is marked meanwhile: only the mark leads the next leader to the volume.
    let [[get, put], [get_again, put_again]] = [(); 2].map(|()| marked(fixture.name));
    let refused = [failed(500), failed(403), failed(422)];
    let [first, second, third] = refused;
    let expected = [create, first, get, put, second, third, post.clone(), get_again, put_again];
    fixture.journal.expect(expected).await;
    let succeeded = format!("Normal ProvisioningSucceeded Successfully provisioned volume {name}");
    fixture.journal.event(&succeeded).await;
    fixture.stop().await;
}

#[tokio::test]
async fn an_object_that_is_there_already_is_taken_for_the_volume() {
    let Some(mut fixture) = Fixture::new("prov-exists", &[]).await else { return };
    fixture.journal.fail_once(Method::POST, "persistentvolumes", 409);
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    let [create, post] = made(&name);
    fixture.journal.expect([create, format!("{post} -> 409")]).await;
    let succeeded = format!("Normal ProvisioningSucceeded Successfully provisioned volume {name}");
    fixture.journal.event(&succeeded).await;
    fixture.stop().await;
}

#[tokio::test]
async fn who_takes_over_between_volume_and_object_makes_one_of_each() {
    let Some(mut fixture) = Fixture::new("prov-killed", &[]).await else { return };
    let never = CancellationToken::new();
    fixture.journal.hold(Method::POST, "persistentvolumes", never.clone());
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    let [create, post] = made(&name);
    fixture.journal.expect([create.clone()]).await;
    fixture.journal.held().await;
    fixture.stop_controller().await;
    assert_eq!(fixture.driver.volumes().made(), [name.as_str()]);
    assert!(fixture.persistent_volume(&name).await.is_none());

    fixture.start_provisioner(&fixture.socket(), crate::journal::DEADLINE);
    // It marks unfinished claims.
    let [[get, put], [get_again, put_again]] = [(); 2].map(|()| marked(fixture.name));
    let lines = [create.clone(), get, put, create, post, get_again, put_again];
    fixture.journal.expect(lines).await;
    assert_eq!(fixture.driver.volumes().made(), [name.as_str()]);
    fixture.stop().await;
}

#[tokio::test]
async fn a_stopped_provisioner_begins_nothing_but_a_mark() {
    let Some(mut fixture) = Fixture::new("prov-stopped", &[]).await else { return };
    let told = CancellationToken::new();
    fixture.driver.answer(Answer::When(told.clone()));
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    fixture.journal.wait_for(1).await;
    fixture.stop_controller().await;
    told.cancel();
    let claim = json!({ "metadata": { "annotations": { "example.com/seen": "yes" } } });
    fixture.patch(CLAIMS, claim).await;
    let ([create, _], [get, put]) = (made(&name), marked(fixture.name));
    assert_eq!(fixture.journal.lines(), [create, get, put]);
    fixture.stop().await;
}
