use http::Method;
use k8s_openapi::api::core::v1::PersistentVolume;
use kube::{Api, api::WatchParams};
use serde_json::json;
use tokio::task::JoinSet;
use wharf_testkit::cluster::Cluster;

use crate::{fixture::Fixture, wire::Wire};

#[tokio::test]
async fn a_server_that_does_not_stream_lists_is_asked_for_pages() {
    let Some(mut fixture) = Fixture::new("watch-pages", &[]).await else { return };
    for _ in 0..3 {
        fixture.journal.fail_once(Method::GET, "sendInitialEvents", 422);
    }
    fixture.attached().await;
    fixture.stop().await;
}

#[tokio::test]
async fn lists_that_fail_or_expire_are_tried_again() {
    let Some(mut fixture) = Fixture::new("watch-retry", &[]).await else { return };
    for code in [410, 500, 403] {
        fixture.journal.fail_once(Method::GET, "volumeattachments?", code);
    }
    fixture.attached().await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_watch_that_is_cut_is_resumed_and_not_begun_anew() {
    let Some(mut fixture) = Fixture::new("watch-cut", &[]).await else { return };
    let (wire, client) = Wire::new().await;
    fixture.wire = client;
    fixture.attached().await;
    assert_eq!(fixture.journal.lists(), 3, "one for each kind");
    wire.cut();
    fixture.attachment(|it| it["metadata"]["name"] = json!("watch-cut-2")).await;
    fixture.journal.wait_for(3).await;
    assert_eq!(fixture.journal.lists(), 3);

    fixture.journal.fail_once(Method::GET, "volumeattachments?watch", 410);
    fixture.journal.clear();
    wire.cut();
    fixture.attachment(|it| it["metadata"]["name"] = json!("watch-cut-3")).await;
    let lines = fixture.journal.wait_for(3).await;
    assert!(lines[0].starts_with("PATCH volumeattachments/watch-cut-3 "), "{lines:?}");
    assert_eq!(fixture.journal.lists(), 4, "history was lost, and for one kind only");
    fixture.stop().await;
}

#[tokio::test]
async fn watches_share_a_connection_and_requests_take_turns() {
    if Cluster::shared().await.unwrap().is_none() {
        return;
    }
    let (wire, client) = Wire::new().await;
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let mut watches = Vec::new();
    for _ in 0..10 {
        watches.push(volumes.watch(&WatchParams::default(), "0").await.unwrap());
    }
    assert_eq!(wire.connections(), 1);

    for _ in 0..10 {
        client.apiserver_version().await.unwrap();
    }
    assert_eq!(wire.connections(), 2);

    let at_once: JoinSet<_> = (0..1000)
        .map(|_| {
            let client = client.clone();
            async move { client.apiserver_version().await.unwrap() }
        })
        .collect();
    at_once.join_all().await;
    assert!(wire.connections() < 200, "{} connections", wire.connections());
}
