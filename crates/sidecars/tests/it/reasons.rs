use std::time::Duration;

use tonic::Status;

use crate::bench::Bench;
use crate::driver::Answer;

#[tokio::test]
async fn what_an_attachment_waited_for_ends_its_back_off() {
    let Some(mut bench) = Bench::new("reason-arrival", &[]).await else { return };
    bench.options.backoff.first = Duration::from_mins(5);
    bench.attachment(|_| {}).await;
    bench.start();
    let [protect, prepare, publish, attached] = bench.attach_lines();
    let no_volume = bench.attach_error_line("persistentvolume \"reason-arrival\" not found", None);
    bench.journal.expect([no_volume]).await;
    bench.journal.clear();
    bench.volume(|_| {}).await;
    let no_node = "csinode.storage.k8s.io \"reason-arrival\" not found";
    bench.journal.expect([protect, bench.attach_error_line(no_node, None)]).await;
    bench.journal.clear();
    bench.node().await;
    bench.journal.expect([prepare, publish, attached]).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_driver_that_comes_back_is_asked_at_once() {
    let Some(mut bench) = Bench::new("reason-return", &[]).await else { return };
    bench.options.backoff.first = Duration::from_mins(5);
    bench.driver.answer(Answer::Error(Status::unavailable("going down")));
    bench.node().await;
    bench.volume(|_| {}).await;
    bench.attachment(|_| {}).await;
    bench.start();
    bench.journal.wait_for(4).await;
    bench.journal.clear();
    bench.restart_driver().await;
    bench.journal.expect([bench.publish_line(), bench.attached_line()]).await;
    bench.stop().await;
}
