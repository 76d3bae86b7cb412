use std::time::Duration;

use http::Request;
use serde_json::{Value, json};
use wharf_sidecars::crds::{self, CrdError, Installed, SNAPSHOT_CRDS};
use wharf_testkit::cluster::Cluster;

use crate::{
    journal::{DEADLINE, Journal},
    snapshots::{Fixture, installed},
};

#[tokio::test]
async fn what_is_missing_is_created_and_what_is_there_is_kept() {
    let Some(first) = installed().await else { return };
    let created: Vec<_> = SNAPSHOT_CRDS.iter().map(|crd| (crd.name, Installed::Created)).collect();
    assert_eq!(*first, created);
    let Some(cluster) = Cluster::shared().await.unwrap() else { return };
    let admin = wharf_cluster::connect(Some(cluster.kubeconfig())).await.unwrap();
    let again = crds::install(&admin, DEADLINE).await.unwrap();
    assert!(again.iter().all(|(_, done)| *done == Installed::Kept), "{again:?}");
}

#[tokio::test]
async fn kinds_that_are_not_served_are_waited_for_and_named() {
    let Some(fixture) = Fixture::new("crd-missing").await else { return };
    let client = fixture.journal.client(&fixture.admin, None);
    for _ in 0..50 {
        fixture.journal.fail_once(http::Method::GET, "volumesnapshotclasses?limit=1", 404);
    }
    let missing = crds::wait_until_served(&client, Duration::from_millis(300)).await.unwrap_err();
    assert!(matches!(missing, CrdError::NotServed { .. }), "{missing:?}");
    assert!(missing.to_string().contains("`wharf crds install`"), "{missing}");
    let journal = Journal::new();
    journal.fail_once(http::Method::GET, "volumesnapshotclasses?limit=1", 404);
    let client = journal.client(&fixture.admin, Some("snapshot-controller"));
    crds::wait_until_served(&client, DEADLINE).await.unwrap();
    fixture.stop().await;
}

#[tokio::test]
async fn what_makes_no_sense_is_refused_by_the_api() {
    let Some(fixture) = Fixture::new("crd-rules").await else { return };
    let refused = async |path: String, kind: &str, spec: Value| {
        let object = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": kind,
            "metadata": { "name": "crd-rules-bad" }, "spec": spec,
        });
        let request = Request::post(path).body(object.to_string().into_bytes()).unwrap();
        fixture.admin.request::<Value>(request).await.unwrap_err().to_string()
    };
    let both = json!({ "persistentVolumeClaimName": "a", "volumeSnapshotContentName": "b" });
    let source = json!({ "persistentVolumeClaimName": "a" });
    for (spec, text) in [
        (json!({ "source": both }), "exactly one of volumeSnapshotContentName"),
        (json!({ "source": {} }), "exactly one of volumeSnapshotContentName"),
        (
            json!({ "source": source, "volumeSnapshotClassName": "" }),
            "must not be the empty string",
        ),
    ] {
        let answer = refused(fixture.snapshots(), "VolumeSnapshot", spec).await;
        assert!(answer.contains(text), "{answer}");
    }
    let spec = json!({
        "driver": "d", "deletionPolicy": "Delete", "source": { "snapshotHandle": "h" },
        "volumeSnapshotRef": { "name": "s" },
    });
    let contents = crate::snapshots::CONTENTS.to_owned();
    let answer = refused(contents, "VolumeSnapshotContent", spec).await;
    assert!(answer.contains("spec.volumeSnapshotRef.namespace must be set"), "{answer}");

    fixture.snapshot(|_| {}).await;
    let patch = json!({ "spec": { "source": { "persistentVolumeClaimName": "other" } } });
    let request = Request::patch(format!("{}/crd-rules", fixture.snapshots()))
        .header("content-type", "application/merge-patch+json")
        .body(patch.to_string().into_bytes())
        .unwrap();
    let answer = fixture.admin.request::<Value>(request).await.unwrap_err().to_string();
    assert!(answer.contains("persistentVolumeClaimName is immutable"), "{answer}");
    fixture.stop().await;
}
