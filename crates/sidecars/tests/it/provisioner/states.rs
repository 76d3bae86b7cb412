use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::fixture::{CLAIMS, CLASSES, Fixture, SELECTED_NODE, made, marked};
use crate::driver::Answer;

#[tokio::test]
async fn a_volume_that_may_be_in_the_making_is_finished_without_its_claim() {
    let Some(mut fixture) = Fixture::new("prov-background", &[]).await else { return };
    let gone = CancellationToken::new();
    let pending = Status::aborted("still at it");
    fixture.driver.answer(Answer::ErrorWhen(gone.clone(), pending));
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    fixture.journal.wait_for(1).await;
    fixture.delete_claim().await;
    // A later claim that is served shows that this deletion was seen.
    let later = fixture.claim(|it| it["metadata"]["name"] = json!("prov-background-later")).await;
    let ([create, post], [other, other_post]) = (made(&name), made(&later));
    let before = [format!("{create} -> Aborted"), other, other_post];
    fixture.journal.expect(before.clone()).await;
    gone.cancel();
    let [aborted, other, other_post] = before;
    fixture.journal.expect([aborted, other, other_post, create, post]).await;
    let failed = "Warning ProvisioningFailed rpc error: code = Aborted desc = still at it";
    fixture.journal.event(failed).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_in_the_making_is_remembered_while_its_claim_waits_for_a_node() {
    let Some(mut fixture) = Fixture::new("prov-homeless", &[]).await else { return };
    let told = CancellationToken::new();
    let pending = Status::aborted("still at it");
    fixture.driver.answer(Answer::ErrorWhen(told.clone(), pending));
    fixture.class(|it| it["volumeBindingMode"] = json!("WaitForFirstConsumer")).await;
    let select = |it: &mut Value| it["metadata"]["annotations"][SELECTED_NODE] = json!("n");
    let name = fixture.claim(select).await;
    fixture.start();
    fixture.journal.wait_for(1).await;
    // The node is gone, and the claim has to wait for another node.
    fixture.patch(CLAIMS, json!({ "metadata": { "annotations": { SELECTED_NODE: null } } })).await;
    told.cancel();
    // Objects that are seen later are served later.
    let next = fixture
        .claim(|it| {
            select(it);
            it["metadata"]["name"] = json!("prov-homeless-next");
        })
        .await;
    fixture.journal.about(&next, &next, 2).await;
    fixture.journal.line(&marked(fixture.name)[1]).await;
    fixture.journal.clear();
    fixture.release_claim().await;
    let ([create, _], [get, put]) = (made(&name), marked(fixture.name));
    fixture.journal.expect([create, format!("DeleteVolume {name}"), get, put]).await;
    assert!(fixture.get(CLAIMS).await.is_none());
    assert!(!fixture.driver.volumes().made().contains(&name));
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_in_the_making_is_deleted_for_a_claim_that_was_bound_elsewhere() {
    let Some(mut fixture) = Fixture::new("prov-elsewhere", &[]).await else { return };
    let told = CancellationToken::new();
    let pending = Status::deadline_exceeded("still at it");
    fixture.driver.answer(Answer::ErrorWhen(told.clone(), pending));
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    fixture.journal.wait_for(1).await;
    fixture.patch(CLAIMS, json!({ "spec": { "volumeName": "another" } })).await;
    told.cancel();
    let ([create, _], [get, put]) = (made(&name), marked(fixture.name));
    let failed = format!("{create} -> DeadlineExceeded");
    let delete = format!("DeleteVolume {name}");
    let [get_again, put_again] = marked(fixture.name);
    fixture.journal.expect([failed, get, put, create, delete, get_again, put_again]).await;
    assert_eq!(fixture.driver.volumes().made(), [""; 0]);
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_that_is_certainly_not_made_is_forgotten_with_its_claim() {
    let Some(mut fixture) = Fixture::new("prov-final", &[]).await else { return };
    let gone = CancellationToken::new();
    fixture.driver.answer(Answer::ErrorWhen(gone.clone(), Status::internal("broken")));
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    fixture.journal.wait_for(1).await;
    fixture.delete_claim().await;
    // A later claim that is served shows that this deletion was seen.
    let later = fixture.claim(|it| it["metadata"]["name"] = json!("prov-final-later")).await;
    let ([create, _], [other, post]) = (made(&name), made(&later));
    let before = [format!("{create} -> Internal"), other, post];
    fixture.journal.expect(before.clone()).await;
    gone.cancel();
    fixture.journal.event("Warning ProvisioningFailed rpc error: code = Internal").await;
    // Its back-off has ended when the next claim is served.
    let next = fixture.claim(|it| it["metadata"]["name"] = json!("prov-final-next")).await;
    let ([failed, other, post], [next, last]) = (before, made(&next));
    fixture.journal.expect([failed, other, post, next, last]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_driver_that_hangs_is_asked_again() {
    let Some(mut fixture) = Fixture::new("prov-hang", &[]).await else { return };
    fixture.driver.answer(Answer::Never);
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start_driver();
    fixture.start_provisioner(&fixture.socket(), Duration::from_millis(500));
    let [create, post] = made(&name);
    let ([get, put], [get_again, put_again]) = (marked(fixture.name), marked(fixture.name));
    let never = format!("{create} -> never");
    fixture.journal.expect([never, get, put, create, post, get_again, put_again]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_claim_that_the_driver_calls_a_mistake_rests_until_its_class_is_another() {
    let Some(mut fixture) = Fixture::new("prov-slow", &[]).await else { return };
    fixture.driver.answer(Answer::Error(Status::invalid_argument("no such tier")));
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    let slow = "Warning ProvisioningFailed Volume provisioning failed with infeasible error. \
        Retries will be delayed. rpc error: code = InvalidArgument desc = no such tier";
    fixture.journal.event(slow).await;
    fixture.delete(CLASSES).await;
    fixture.class(|_| {}).await;
    let [create, post] = made(&name);
    fixture.journal.expect([format!("{create} -> InvalidArgument"), create, post]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_that_is_too_small_is_deleted_and_made_again() {
    let Some(mut fixture) = Fixture::new("prov-small", &[]).await else { return };
    fixture.driver.volumes().change_next(|volume| volume.capacity_bytes = 5);
    let created = CancellationToken::new();
    created.cancel();
    fixture.driver.answer(Answer::When(created));
    for _ in 0..5 {
        fixture.driver.answer(Answer::Error(Status::unavailable("later")));
    }
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    let [create, post] = made(&name);
    let lines = fixture.journal.wait_for(12).await;
    assert_eq!(lines[0], create);
    assert_eq!(
        lines[1..6],
        [const { String::new() }; 5].map(|_| format!("DeleteVolume {name} -> Unavailable"))
    );
    assert_eq!(
        lines[6..],
        [&marked(fixture.name)[..], &[create, post], &marked(fixture.name)].concat()
    );
    let event = format!(
        "Warning ProvisioningFailed created volume capacity 5 less than requested capacity 1073741824. Cleanup of \
         volume {name} failed, volume is orphaned: rpc error: code = Unavailable desc = later"
    );
    fixture.journal.event(&event).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_size_that_the_driver_does_not_tell_is_the_one_asked_for() {
    let Some(mut fixture) = Fixture::new("prov-unsized", &[]).await else { return };
    fixture.driver.volumes().change_next(|volume| volume.capacity_bytes = 0);
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    fixture.journal.expect(made(&name)).await;
    let volume = fixture.persistent_volume(&name).await.unwrap();
    assert_eq!(volume["spec"]["capacity"]["storage"], "1Gi");
    fixture.stop().await;
}

#[tokio::test]
async fn a_driver_that_comes_back_is_asked_at_once() {
    let Some(mut fixture) = Fixture::new("prov-back", &[]).await else { return };
    fixture.options.backoff.first = Duration::from_mins(1);
    fixture.driver.answer(Answer::Error(Status::unavailable("not yet")));
    fixture.class(|_| {}).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    let failed = "Warning ProvisioningFailed rpc error: code = Unavailable desc = not yet";
    fixture.journal.event(failed).await;
    fixture.restart_driver().await;
    let [create, post] = made(&name);
    let ([get, put], failed) = (marked(fixture.name), format!("{create} -> Unavailable"));
    let [get_again, put_again] = marked(fixture.name);
    fixture.journal.expect([failed, get, put, create, post, get_again, put_again]).await;
    fixture.stop().await;
}
