use http::Method;
use serde_json::json;
use tokio_util::sync::CancellationToken;

use super::bench::{Bench, CLAIMS, made, marked};
use crate::driver::Answer;

#[tokio::test]
async fn a_volume_whose_object_cannot_be_written_is_kept_and_not_made_again() {
    let Some(mut bench) = Bench::new("prov-unsaved", &[]).await else { return };
    for code in [500, 403, 422] {
        bench.journal.fail_once(Method::POST, "persistentvolumes", code);
    }
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    let [create, post] = made(&name);
    let failed = |code: u16| format!("{post} -> {code}");
    // The claim is marked meanwhile: nothing else tells the next leader of the volume.
    let [[get, put], [get_again, put_again]] = [(); 2].map(|()| marked(bench.name));
    let refused = [failed(500), failed(403), failed(422)];
    let [first, second, third] = refused;
    let expected = [create, first, get, put, second, third, post.clone(), get_again, put_again];
    bench.journal.expect(expected).await;
    let succeeded = format!("Normal ProvisioningSucceeded Successfully provisioned volume {name}");
    bench.journal.event(&succeeded).await;
    bench.stop().await;
}

#[tokio::test]
async fn an_object_that_is_there_already_is_taken_for_the_volume() {
    let Some(mut bench) = Bench::new("prov-exists", &[]).await else { return };
    bench.journal.fail_once(Method::POST, "persistentvolumes", 409);
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    let [create, post] = made(&name);
    bench.journal.expect([create, format!("{post} -> 409")]).await;
    let succeeded = format!("Normal ProvisioningSucceeded Successfully provisioned volume {name}");
    bench.journal.event(&succeeded).await;
    bench.stop().await;
}

#[tokio::test]
async fn who_takes_over_between_volume_and_object_makes_one_of_each() {
    let Some(mut bench) = Bench::new("prov-killed", &[]).await else { return };
    let never = CancellationToken::new();
    bench.journal.hold(Method::POST, "persistentvolumes", never.clone());
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    let [create, post] = made(&name);
    bench.journal.expect([create.clone()]).await;
    bench.journal.held().await;
    bench.stop_controller().await;
    assert_eq!(bench.driver.volumes().made(), [name.as_str()]);
    assert!(bench.persistent_volume(&name).await.is_none());

    bench.start_provisioner(&bench.socket(), crate::journal::DEADLINE);
    // It marks what it leaves.
    let [[get, put], [get_again, put_again]] = [(); 2].map(|()| marked(bench.name));
    let lines = [create.clone(), get, put, create, post, get_again, put_again];
    bench.journal.expect(lines).await;
    assert_eq!(bench.driver.volumes().made(), [name.as_str()]);
    bench.stop().await;
}

#[tokio::test]
async fn a_stopped_provisioner_begins_nothing_but_a_mark() {
    let Some(mut bench) = Bench::new("prov-stopped", &[]).await else { return };
    let told = CancellationToken::new();
    bench.driver.answer(Answer::When(told.clone()));
    bench.class(|_| {}).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    bench.journal.wait_for(1).await;
    bench.stop_controller().await;
    told.cancel();
    let claim = json!({ "metadata": { "annotations": { "example.com/seen": "yes" } } });
    bench.patch(CLAIMS, claim).await;
    let ([create, _], [get, put]) = (made(&name), marked(bench.name));
    assert_eq!(bench.journal.lines(), [create, get, put]);
    bench.stop().await;
}
