use std::time::Duration;

use serde_json::json;
use tonic::Status;

use super::fixture::{Fixture, VOLUMES};
use crate::driver::Answer;

#[tokio::test]
async fn a_claim_that_was_seen_before_its_volume_is_looked_at_again() {
    let Some(mut fixture) = Fixture::new("reason-volume").await else { return };
    fixture.claim().await;
    let mut volume = fixture.get(VOLUMES).await.unwrap();
    fixture.patch(VOLUMES, json!({ "metadata": { "finalizers": null } })).await;
    fixture.delete(VOLUMES).await;
    fixture.start().await;
    let metadata = volume["metadata"].as_object_mut().unwrap();
    metadata.retain(|key, _| key == "name");
    fixture.create(VOLUMES, "PersistentVolume", volume).await;
    fixture.expect(fixture.grow_lines(2)).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_driver_that_comes_back_is_asked_at_once() {
    let Some(mut fixture) = Fixture::new("reason-driver").await else { return };
    fixture.options.backoff.first = Duration::from_mins(5);
    fixture.driver.answer(Answer::Error(Status::unavailable("going down")));
    fixture.claim().await;
    fixture.start().await;
    fixture.journal.wait_for(2).await;
    fixture.journal.clear();
    fixture.restart_driver().await;
    let [_, expand, resized, finish] = fixture.grow_lines(2);
    fixture.expect([expand, resized, finish]).await;
    fixture.stop().await;
}
