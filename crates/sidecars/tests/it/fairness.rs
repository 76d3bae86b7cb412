use serde_json::json;
use tokio_util::sync::CancellationToken;
use wharf_proto::csi::controller_service_capability::rpc;

use crate::{
    driver::Answer,
    fixture::{ATTACHMENTS, Fixture, NODE_ID, NODES},
    journal::DEADLINE,
};

#[tokio::test]
async fn a_detach_does_not_wait_for_attaches_that_hang() {
    let Some(mut fixture) = Fixture::new("lane-apart", &[]).await else { return };
    fixture.options.workers = 1;
    fixture.attached().await;
    fixture.driver.answer(Answer::Never);
    fixture.attachment(|it| it["metadata"]["name"] = json!("lane-apart-2")).await;
    fixture.journal.wait_for(2).await;
    fixture.journal.clear();
    fixture.delete(ATTACHMENTS).await;
    fixture.journal.expect([fixture.unpublish_line(), fixture.release_line()]).await;
    // A hanging call does not prevent the attacher from stopping.
    tokio::time::timeout(DEADLINE / 2, fixture.stop()).await.unwrap();
}

#[tokio::test]
async fn the_driver_is_called_so_many_times_at_once_and_others_are_prepared_meanwhile() {
    let Some(mut fixture) = Fixture::new("lane-ahead", &[]).await else { return };
    fixture.options.workers = 1;
    fixture.node().await;
    fixture.volume(|_| {}).await;
    fixture.driver.answer(Answer::Never);
    fixture.attachment(|_| {}).await;
    fixture.start();
    let [protect, prepare, publish, _] = fixture.attach_lines();
    fixture.journal.expect([protect, prepare, publish + " -> never"]).await;
    fixture.journal.clear();
    // The driver is busy: a second attachment is prepared, and is deleted without ever being
    // attached.
    fixture.attachment(|it| it["metadata"]["name"] = json!("lane-ahead-2")).await;
    let next = fixture.journal.wait_for(1).await;
    assert!(next[0].starts_with("PATCH volumeattachments/lane-ahead-2 "), "{next:?}");
    fixture.delete_at(&format!("{ATTACHMENTS}/lane-ahead-2")).await;
    let lines = fixture.journal.wait_for(3).await;
    assert_eq!(lines[1], fixture.unpublish_line());
    assert!(lines[2].starts_with("PATCH volumeattachments/lane-ahead-2 "), "{lines:?}");
    fixture.stop().await;
}

#[tokio::test]
async fn an_attacher_of_one_node_leaves_the_others_alone() {
    let Some(mut fixture) = Fixture::new("lane-node", &[rpc::Type::PublishReadonly]).await else {
        return;
    };
    fixture.options.node = Some("lane-node".to_owned());
    fixture.node().await;
    fixture.volume(|_| {}).await;
    fixture
        .attachment(|it| {
            it["metadata"]["name"] = json!("lane-node-other");
            it["spec"]["nodeName"] = json!("elsewhere");
        })
        .await;
    fixture.attachment(|_| {}).await;
    fixture.start();
    fixture.journal.expect(fixture.attach_lines()).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_volume_is_attached_to_the_instance_that_its_node_is_after_the_wait() {
    let Some(mut fixture) = Fixture::new("lane-remade", &[]).await else { return };
    fixture.options.workers = 1;
    fixture.node().await;
    let answer = CancellationToken::new();
    fixture.driver.answer_about("busy-handle", Answer::When(answer.clone()));
    fixture.start();
    fixture.pair("busy", |_| {}, |_| {}).await;
    fixture.journal.about("busy", "", 3).await;
    fixture.volume(|_| {}).await;
    fixture.attachment(|_| {}).await;
    fixture.journal.line(&fixture.prepare_line()).await;
    fixture.delete(NODES).await;
    let driver = json!({ "name": fixture.options.driver, "nodeID": "another-instance" });
    let node = json!({ "metadata": { "name": fixture.name }, "spec": { "drivers": [driver] } });
    fixture.create(NODES, "CSINode", node).await;
    // An attachment that is prepared for the new node ID shows that the attacher has seen it.
    fixture.pair("remade-ahead", |_| {}, |_| {}).await;
    fixture.journal.about("remade-ahead", "", 2).await;
    answer.cancel();
    fixture.journal.line("ControllerPublishVolume lane-remade-handle another-instance").await;
    let annotations = fixture.get(ATTACHMENTS).await.unwrap()["metadata"]["annotations"].take();
    assert_eq!(annotations[NODE_ID], "another-instance");
    let old = fixture.publish_line();
    assert!(!fixture.journal.lines().contains(&old), "{:#?}", fixture.journal.lines());
    fixture.stop().await;
}
