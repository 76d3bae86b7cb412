use serde_json::json;
use tokio_util::sync::CancellationToken;
use wharf_proto::csi::controller_service_capability::rpc;

use crate::bench::{ATTACHMENTS, Bench, NODE_ID, NODES};
use crate::driver::Answer;
use crate::journal::DEADLINE;

#[tokio::test]
async fn a_detach_does_not_wait_for_attaches_that_hang() {
    let Some(mut bench) = Bench::new("lane-apart", &[]).await else { return };
    bench.options.workers = 1;
    bench.attached().await;
    bench.driver.answer(Answer::Never);
    bench.attachment(|it| it["metadata"]["name"] = json!("lane-apart-2")).await;
    bench.journal.wait_for(2).await;
    bench.journal.clear();
    bench.delete(ATTACHMENTS).await;
    bench.journal.expect([bench.unpublish_line(), bench.release_line()]).await;
    // A call that hangs does not keep the attacher from stopping.
    tokio::time::timeout(DEADLINE / 2, bench.stop()).await.unwrap();
}

#[tokio::test]
async fn the_driver_is_called_so_many_times_at_once_and_others_are_prepared_meanwhile() {
    let Some(mut bench) = Bench::new("lane-ahead", &[]).await else { return };
    bench.options.workers = 1;
    bench.node().await;
    bench.volume(|_| {}).await;
    bench.driver.answer(Answer::Never);
    bench.attachment(|_| {}).await;
    bench.start();
    let [protect, prepare, publish, _] = bench.attach_lines();
    bench.journal.expect([protect, prepare, publish + " -> never"]).await;
    bench.journal.clear();
    // The driver is busy: one more is prepared, and goes when it is deleted, without ever having been attached.
    bench.attachment(|it| it["metadata"]["name"] = json!("lane-ahead-2")).await;
    let next = bench.journal.wait_for(1).await;
    assert!(next[0].starts_with("PATCH volumeattachments/lane-ahead-2 "), "{next:?}");
    bench.delete_at(&format!("{ATTACHMENTS}/lane-ahead-2")).await;
    let lines = bench.journal.wait_for(3).await;
    assert_eq!(lines[1], bench.unpublish_line());
    assert!(lines[2].starts_with("PATCH volumeattachments/lane-ahead-2 "), "{lines:?}");
    bench.stop().await;
}

#[tokio::test]
async fn an_attacher_of_one_node_leaves_the_others_alone() {
    let Some(mut bench) = Bench::new("lane-node", &[rpc::Type::PublishReadonly]).await else {
        return;
    };
    bench.options.node = Some("lane-node".to_owned());
    bench.node().await;
    bench.volume(|_| {}).await;
    bench
        .attachment(|it| {
            it["metadata"]["name"] = json!("lane-node-other");
            it["spec"]["nodeName"] = json!("elsewhere");
        })
        .await;
    bench.attachment(|_| {}).await;
    bench.start();
    bench.journal.expect(bench.attach_lines()).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_volume_is_attached_to_the_instance_that_its_node_is_after_the_wait() {
    let Some(mut bench) = Bench::new("lane-remade", &[]).await else { return };
    bench.options.workers = 1;
    bench.node().await;
    let answer = CancellationToken::new();
    bench.driver.answer_about("busy-handle", Answer::When(answer.clone()));
    bench.start();
    bench.pair("busy", |_| {}, |_| {}).await;
    bench.journal.about("busy", "", 3).await;
    bench.volume(|_| {}).await;
    bench.attachment(|_| {}).await;
    bench.journal.line(&bench.prepare_line()).await;
    bench.delete(NODES).await;
    let driver = json!({ "name": bench.options.driver, "nodeID": "another-instance" });
    let node = json!({ "metadata": { "name": bench.name }, "spec": { "drivers": [driver] } });
    bench.create(NODES, "CSINode", node).await;
    // One that is prepared for the new instance shows that the attacher knows it.
    bench.pair("remade-ahead", |_| {}, |_| {}).await;
    bench.journal.about("remade-ahead", "", 2).await;
    answer.cancel();
    bench.journal.line("ControllerPublishVolume lane-remade-handle another-instance").await;
    let annotations = bench.get(ATTACHMENTS).await.unwrap()["metadata"]["annotations"].take();
    assert_eq!(annotations[NODE_ID], "another-instance");
    let old = bench.publish_line();
    assert!(!bench.journal.lines().contains(&old), "{:#?}", bench.journal.lines());
    bench.stop().await;
}
