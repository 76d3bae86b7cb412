use serde_json::{Value, json};
use wharf_proto::csi::controller_service_capability::rpc;

use crate::snapshots::{Fixture, driver::Answer};

fn given(it: &mut Value) {
    it["spec"]["source"] = json!({ "snapshotHandle": "h" });
    it["spec"]["volumeSnapshotRef"]["uid"] = json!("");
}

#[tokio::test]
async fn a_snapshot_that_is_there_is_found() {
    let Some(mut fixture) = Fixture::new("given-found").await else { return };
    let parameters = json!({
        "csi.storage.k8s.io/snapshotter-list-secret-name": "list-${volumesnapshotcontent.name}",
        "csi.storage.k8s.io/snapshotter-list-secret-namespace": "given-found",
    });
    fixture.class(|it| it["parameters"] = parameters).await;
    let secret = json!({ "metadata": { "name": "list-given-found" }, "stringData": { "k": "v" } });
    fixture.create("/api/v1/namespaces/given-found/secrets", "Secret", secret).await;
    fixture.driver.has("h");
    fixture.driver.answer(Answer::NotReady);
    fixture.content(given).await;
    fixture.start_snapshotter();
    let found = json!({
        "creationTime": 1_000_000_000, "readyToUse": false, "restoreSize": 5, "snapshotHandle": "h",
    });
    let get = "GET secrets/list-given-found".to_owned();
    let list = "ListSnapshots h".to_owned();
    fixture
        .expect([
            get.clone(),
            list.clone(),
            fixture.patched_status("volumesnapshotcontents", &found),
            get,
            list,
            fixture.ready_line(),
        ])
        .await;
    assert_eq!(fixture.driver.last_list().secrets["k"], "v");
    fixture.stop().await;
}

#[tokio::test]
async fn a_driver_that_cannot_list_is_believed() {
    let capabilities = [rpc::Type::CreateDeleteSnapshot];
    let Some(mut fixture) = Fixture::with("given-believed", &capabilities).await else { return };
    fixture.class(|_| {}).await;
    fixture.content(given).await;
    fixture.start_snapshotter();
    let lines = fixture.lines(1).await;
    assert!(lines[0].contains(r#""readyToUse":true"#), "{lines:#?}");
    assert!(lines[0].contains(r#""snapshotHandle":"h""#), "{lines:#?}");
    assert!(!lines[0].contains("restoreSize"), "{lines:#?}");
    fixture.stop().await;
}

#[tokio::test]
async fn a_snapshot_that_is_missing_is_an_error() {
    let Some(mut fixture) = Fixture::new("given-missing").await else { return };
    fixture.class(|_| {}).await;
    fixture.content(given).await;
    fixture.start_snapshotter();
    let lines = fixture.lines(2).await;
    let message = "Failed to check and update snapshot content: failed to list snapshot for content given-missing: \
                   \"can not find snapshot for snapshotID h\"";
    assert_eq!(lines[..2], ["ListSnapshots h".to_owned(), fixture.error_line(message)]);
    fixture.expect_events(["SnapshotContentCheckandUpdateFailed"]).await;
    fixture.stop().await;
}
