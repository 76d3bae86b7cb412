//! Core events in a real API.

use std::time::Duration;

use http::Request;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wharf_cluster::{EventRecorder, EventType, Events, Meta, PersistentVolumeClaim};
use wharf_testkit::{cluster::Cluster, process::wait_for};

const NAMESPACE: &str = "/api/v1/namespaces/default";

#[tokio::test]
async fn an_event_is_written_once_and_counted() {
    let Some(cluster) = Cluster::shared().await.unwrap() else { return };
    let client = wharf_cluster::connect(Some(cluster.kubeconfig())).await.unwrap();
    let recorder = EventRecorder::new(client.clone(), "external-resizer csi.test", "");
    let (events, writer) = Events::new(recorder);
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(writer.run(stop.clone()));

    let name = "event-once".to_owned();
    let metadata = Meta {
        name,
        namespace: Some("default".to_owned()),
        uid: "u".to_owned(),
        ..Meta::default()
    };
    let claim = PersistentVolumeClaim { metadata, ..PersistentVolumeClaim::default() };
    for _ in 0..3 {
        events.record(&claim, EventType::Warning, "VolumeResizeFailed", "no");
    }
    events.record(&claim, EventType::Normal, "Resizing", "now");

    // Events about one object are written in their order.
    wait_for(Duration::from_secs(30), "the last event", async || {
        listed(&client).await.iter().any(|event| event["reason"] == "Resizing").then_some(())
    })
    .await
    .unwrap();
    let found = listed(&client).await;
    assert_eq!(found.len(), 2, "{found:#?}");
    let failed = found.iter().find(|event| event["reason"] == "VolumeResizeFailed").unwrap();
    assert_eq!((&failed["count"], &failed["type"]), (&json!(3), &json!("Warning")));
    assert_eq!(failed["source"], json!({ "component": "external-resizer csi.test" }));
    assert_eq!(failed["involvedObject"]["kind"], "PersistentVolumeClaim");
    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
}

async fn listed(client: &kube::Client) -> Vec<Value> {
    let path = format!("{NAMESPACE}/events?fieldSelector=involvedObject.name=event-once");
    let request = Request::get(path).body(Vec::new()).unwrap();
    let list: Value = client.request(request).await.unwrap();
    list["items"].as_array().unwrap().clone()
}
