use std::time::Duration;

use tonic::Status;

use crate::{driver::Answer, fixture::Fixture};

#[tokio::test]
async fn what_an_attachment_waited_for_ends_its_back_off() {
    let Some(mut fixture) = Fixture::new("reason-arrival", &[]).await else { return };
    fixture.options.backoff.first = Duration::from_mins(5);
    fixture.attachment(|_| {}).await;
    fixture.start();
    let [protect, prepare, publish, attached] = fixture.attach_lines();
    let no_volume =
        fixture.attach_error_line("persistentvolume \"reason-arrival\" not found", None);
    fixture.journal.expect([no_volume]).await;
    fixture.journal.clear();
    fixture.volume(|_| {}).await;
    let no_node = "csinode.storage.k8s.io \"reason-arrival\" not found";
    fixture.journal.expect([protect, fixture.attach_error_line(no_node, None)]).await;
    fixture.journal.clear();
    fixture.node().await;
    fixture.journal.expect([prepare, publish, attached]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_driver_that_comes_back_is_asked_at_once() {
    let Some(mut fixture) = Fixture::new("reason-return", &[]).await else { return };
    fixture.options.backoff.first = Duration::from_mins(5);
    fixture.driver.answer(Answer::Error(Status::unavailable("going down")));
    fixture.node().await;
    fixture.volume(|_| {}).await;
    fixture.attachment(|_| {}).await;
    fixture.start();
    fixture.journal.wait_for(4).await;
    fixture.journal.clear();
    fixture.restart_driver().await;
    fixture.journal.expect([fixture.publish_line(), fixture.attached_line()]).await;
    fixture.stop().await;
}
