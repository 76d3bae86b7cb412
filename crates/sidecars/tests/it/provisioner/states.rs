use std::time::Duration;

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::bench::{Bench, CLAIMS, CLASSES, SELECTED_NODE, made, marked};
use crate::driver::Answer;

#[tokio::test]
async fn a_volume_that_may_be_in_the_making_is_finished_without_its_claim() {
    let Some(mut bench) = Bench::new("prov-background", &[]).await else { return };
    let gone = CancellationToken::new();
    let pending = Status::aborted("still at it");
    bench.driver.answer(Answer::ErrorWhen(gone.clone(), pending));
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    bench.journal.wait_for(1).await;
    bench.delete_claim().await;
    // Once a later claim is served, it is known that this one has gone.
    let later = bench.claim(|it| it["metadata"]["name"] = json!("prov-background-later")).await;
    let ([create, post], [other, other_post]) = (made(&name), made(&later));
    let before = [format!("{create} -> Aborted"), other, other_post];
    bench.journal.expect(before.clone()).await;
    gone.cancel();
    let [aborted, other, other_post] = before;
    bench.journal.expect([aborted, other, other_post, create, post]).await;
    let failed = "Warning ProvisioningFailed rpc error: code = Aborted desc = still at it";
    bench.journal.event(failed).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_in_the_making_is_remembered_while_its_claim_waits_for_a_node() {
    let Some(mut bench) = Bench::new("prov-homeless", &[]).await else { return };
    let told = CancellationToken::new();
    let pending = Status::aborted("still at it");
    bench.driver.answer(Answer::ErrorWhen(told.clone(), pending));
    bench.class(|it| it["volumeBindingMode"] = json!("WaitForFirstConsumer")).await;
    let select = |it: &mut Value| it["metadata"]["annotations"][SELECTED_NODE] = json!("n");
    let name = bench.claim(select).await;
    bench.start();
    bench.journal.wait_for(1).await;
    // The node is gone, and the claim is to wait for another.
    bench.patch(CLAIMS, json!({ "metadata": { "annotations": { SELECTED_NODE: null } } })).await;
    told.cancel();
    // What is seen later is served later.
    let next = bench
        .claim(|it| {
            select(it);
            it["metadata"]["name"] = json!("prov-homeless-next");
        })
        .await;
    bench.journal.about(&next, &next, 2).await;
    bench.journal.line(&marked(bench.name)[1]).await;
    bench.journal.clear();
    bench.release_claim().await;
    let ([create, _], [get, put]) = (made(&name), marked(bench.name));
    bench.journal.expect([create, format!("DeleteVolume {name}"), get, put]).await;
    assert!(bench.get(CLAIMS).await.is_none());
    assert!(!bench.driver.volumes().made().contains(&name));
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_in_the_making_is_deleted_for_a_claim_that_was_bound_elsewhere() {
    let Some(mut bench) = Bench::new("prov-elsewhere", &[]).await else { return };
    let told = CancellationToken::new();
    let pending = Status::deadline_exceeded("still at it");
    bench.driver.answer(Answer::ErrorWhen(told.clone(), pending));
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    bench.journal.wait_for(1).await;
    bench.patch(CLAIMS, json!({ "spec": { "volumeName": "another" } })).await;
    told.cancel();
    let ([create, _], [get, put]) = (made(&name), marked(bench.name));
    let failed = format!("{create} -> DeadlineExceeded");
    let delete = format!("DeleteVolume {name}");
    let [get_again, put_again] = marked(bench.name);
    bench.journal.expect([failed, get, put, create, delete, get_again, put_again]).await;
    assert_eq!(bench.driver.volumes().made(), [""; 0]);
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_that_is_certainly_not_made_is_forgotten_with_its_claim() {
    let Some(mut bench) = Bench::new("prov-final", &[]).await else { return };
    let gone = CancellationToken::new();
    bench.driver.answer(Answer::ErrorWhen(gone.clone(), Status::internal("broken")));
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    bench.journal.wait_for(1).await;
    bench.delete_claim().await;
    // Once a later claim is served, it is known that this one has gone.
    let later = bench.claim(|it| it["metadata"]["name"] = json!("prov-final-later")).await;
    let ([create, _], [other, post]) = (made(&name), made(&later));
    let before = [format!("{create} -> Internal"), other, post];
    bench.journal.expect(before.clone()).await;
    gone.cancel();
    bench.journal.event("Warning ProvisioningFailed rpc error: code = Internal").await;
    // Its back-off is long over when the next claim is served.
    let next = bench.claim(|it| it["metadata"]["name"] = json!("prov-final-next")).await;
    let ([failed, other, post], [next, last]) = (before, made(&next));
    bench.journal.expect([failed, other, post, next, last]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_driver_that_hangs_is_asked_again() {
    let Some(mut bench) = Bench::new("prov-hang", &[]).await else { return };
    bench.driver.answer(Answer::Never);
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start_driver();
    bench.start_provisioner(&bench.socket(), Duration::from_millis(500));
    let [create, post] = made(&name);
    let ([get, put], [get_again, put_again]) = (marked(bench.name), marked(bench.name));
    let never = format!("{create} -> never");
    bench.journal.expect([never, get, put, create, post, get_again, put_again]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_claim_that_the_driver_calls_a_mistake_rests_until_its_class_is_another() {
    let Some(mut bench) = Bench::new("prov-slow", &[]).await else { return };
    bench.driver.answer(Answer::Error(Status::invalid_argument("no such tier")));
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    let slow = "Warning ProvisioningFailed Volume provisioning failed with infeasible error. \
        Retries will be delayed. rpc error: code = InvalidArgument desc = no such tier";
    bench.journal.event(slow).await;
    bench.delete(CLASSES).await;
    bench.class(|_| {}).await;
    let [create, post] = made(&name);
    bench.journal.expect([format!("{create} -> InvalidArgument"), create, post]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_that_is_too_small_is_deleted_and_made_again() {
    let Some(mut bench) = Bench::new("prov-small", &[]).await else { return };
    bench.driver.volumes().change_next(|volume| volume.capacity_bytes = 5);
    let created = CancellationToken::new();
    created.cancel();
    bench.driver.answer(Answer::When(created));
    for _ in 0..5 {
        bench.driver.answer(Answer::Error(Status::unavailable("later")));
    }
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    let [create, post] = made(&name);
    let lines = bench.journal.wait_for(12).await;
    assert_eq!(lines[0], create);
    assert_eq!(
        lines[1..6],
        [const { String::new() }; 5].map(|_| format!("DeleteVolume {name} -> Unavailable"))
    );
    assert_eq!(
        lines[6..],
        [&marked(bench.name)[..], &[create, post], &marked(bench.name)].concat()
    );
    let event = format!(
        "Warning ProvisioningFailed created volume capacity 5 less than requested capacity 1073741824. Cleanup of \
         volume {name} failed, volume is orphaned: rpc error: code = Unavailable desc = later"
    );
    bench.journal.event(&event).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_size_that_the_driver_does_not_tell_is_the_one_asked_for() {
    let Some(mut bench) = Bench::new("prov-unsized", &[]).await else { return };
    bench.driver.volumes().change_next(|volume| volume.capacity_bytes = 0);
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    bench.journal.expect(made(&name)).await;
    let volume = bench.persistent_volume(&name).await.unwrap();
    assert_eq!(volume["spec"]["capacity"]["storage"], "1Gi");
    bench.stop().await;
}

#[tokio::test]
async fn a_driver_that_comes_back_is_asked_at_once() {
    let Some(mut bench) = Bench::new("prov-back", &[]).await else { return };
    bench.options.backoff.first = Duration::from_mins(1);
    bench.driver.answer(Answer::Error(Status::unavailable("not yet")));
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    let failed = "Warning ProvisioningFailed rpc error: code = Unavailable desc = not yet";
    bench.journal.event(failed).await;
    bench.restart_driver().await;
    let [create, post] = made(&name);
    let ([get, put], failed) = (marked(bench.name), format!("{create} -> Unavailable"));
    let [get_again, put_again] = marked(bench.name);
    bench.journal.expect([failed, get, put, create, post, get_again, put_again]).await;
    bench.stop().await;
}
