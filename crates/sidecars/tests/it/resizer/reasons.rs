use std::time::Duration;

use serde_json::json;
use tonic::Status;

use super::bench::{Bench, VOLUMES};
use crate::driver::Answer;

#[tokio::test]
async fn a_claim_that_was_seen_before_its_volume_is_looked_at_again() {
    let Some(mut bench) = Bench::new("reason-volume").await else { return };
    bench.claim().await;
    let mut volume = bench.get(VOLUMES).await.unwrap();
    bench.patch(VOLUMES, json!({ "metadata": { "finalizers": null } })).await;
    bench.delete(VOLUMES).await;
    bench.start().await;
    let metadata = volume["metadata"].as_object_mut().unwrap();
    metadata.retain(|key, _| key == "name");
    bench.create(VOLUMES, "PersistentVolume", volume).await;
    bench.expect(bench.grow_lines(2)).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_driver_that_comes_back_is_asked_at_once() {
    let Some(mut bench) = Bench::new("reason-driver").await else { return };
    bench.options.backoff.first = Duration::from_mins(5);
    bench.driver.answer(Answer::Error(Status::unavailable("going down")));
    bench.claim().await;
    bench.start().await;
    bench.journal.wait_for(2).await;
    bench.journal.clear();
    bench.restart_driver().await;
    let [_, expand, resized, finish] = bench.grow_lines(2);
    bench.expect([expand, resized, finish]).await;
    bench.stop().await;
}
