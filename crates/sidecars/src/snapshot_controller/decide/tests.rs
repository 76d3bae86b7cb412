use serde_json::{Value, json};

use super::*;

fn snapshot(source: &Value) -> VolumeSnapshot {
    serde_json::from_value(json!({
        "metadata": { "name": "s", "namespace": "ns", "uid": "u" },
        "spec": { "source": source },
    }))
    .unwrap()
}

fn content(source: &Value, uid: &str) -> VolumeSnapshotContent {
    serde_json::from_value(json!({
        "metadata": { "name": "c" },
        "spec": {
            "source": source,
            "volumeSnapshotRef": { "name": "s", "namespace": "ns", "uid": uid },
        },
    }))
    .unwrap()
}

#[test]
fn a_snapshot_has_one_source() {
    let of = |source: Value| SnapshotSource::of(&snapshot(&source)).is_ok();
    assert!(of(json!({ "persistentVolumeClaimName": "p" })));
    assert!(of(json!({ "volumeSnapshotContentName": "c" })));
    assert!(!of(json!({})));
    assert!(!of(json!({ "persistentVolumeClaimName": "p", "volumeSnapshotContentName": "c" })));
    let of_claim = snapshot(&json!({ "persistentVolumeClaimName": "p" }));
    assert_eq!(SnapshotSource::of(&of_claim).unwrap().content_name(&of_claim), "snapcontent-u");
}

#[test]
fn a_content_is_of_the_kind_and_of_the_snapshot() {
    let (claim, given) = (SnapshotSource::Claim("p"), SnapshotSource::Content("c"));
    let (taken, there) = (json!({ "volumeHandle": "v" }), json!({ "snapshotHandle": "h" }));
    let it = snapshot(&json!({}));
    let check = |source: SnapshotSource<'_>, of: &Value, uid| source.check(&it, &content(of, uid));
    assert!(check(claim, &taken, "u").is_ok());
    assert!(check(given, &there, "u").is_ok());
    assert!(check(given, &there, "").is_ok());
    assert!(matches!(check(claim, &there, "u"), Err(Failure::NotDynamic(_))));
    assert!(matches!(check(given, &taken, "u"), Err(Failure::Dynamic)));
    assert!(matches!(check(given, &there, "other"), Err(Failure::OfAnother(_))));
    assert!(matches!(check(claim, &taken, ""), Err(Failure::OfAnother(_))));
    let mut elsewhere = content(&there, "");
    elsewhere.spec.volume_snapshot_ref.namespace = "other".to_owned();
    assert!(matches!(given.check(&it, &elsewhere), Err(Failure::OfAnother(_))));
}

#[test]
fn a_volume_belongs_to_its_claim() {
    let claim = |phase: &str| -> PersistentVolumeClaim {
        serde_json::from_value(json!({
            "metadata": { "name": "p", "namespace": "ns", "uid": "pu" },
            "spec": { "volumeName": "pv" },
            "status": { "phase": phase },
        }))
        .unwrap()
    };
    let volume_of = |uid: &str, csi: bool| -> PersistentVolume {
        let mut volume = json!({
            "metadata": { "name": "pv" },
            "spec": { "claimRef": { "name": "p", "namespace": "ns", "uid": uid } },
        });
        if csi {
            volume["spec"]["csi"] = json!({ "driver": "d", "volumeHandle": "v" });
        }
        serde_json::from_value(volume).unwrap()
    };
    let (bound, good) = (claim("Bound"), volume_of("pu", true));
    let error = |claim: Option<&PersistentVolumeClaim>, of: Option<&PersistentVolume>| {
        volume("p", claim, of)
            .map(|(_, csi)| csi.volume_handle.clone())
            .map_err(|it| it.to_string())
    };
    assert_eq!(error(Some(&bound), Some(&good)), Ok("v".to_owned()));
    assert_eq!(error(Some(&bound), Some(&volume_of("", true))), Ok("v".to_owned()));
    let expected = [
        (None, Some(&good), "failed to retrieve PVC p"),
        (Some(&claim("Pending")), Some(&good), "the PVC p is not yet bound"),
        (Some(&bound), None, "failed to retrieve PV pv"),
        (Some(&bound), Some(&volume_of("other", true)), "claim in dataSource not bound"),
        (Some(&bound), Some(&volume_of("pu", false)), "cannot find CSI PersistentVolumeSource"),
    ];
    for (claim, of, text) in expected {
        let refused = error(claim, of).unwrap_err();
        assert!(refused.starts_with(text), "{refused}");
    }
}

#[test]
fn only_claims_that_wait_for_a_snapshot_hold_it() {
    let restoring = |phase: &str, group: &str| {
        let claim = json!({
            "spec": { "dataSource": { "kind": "VolumeSnapshot", "name": "s", "apiGroup": group } },
            "status": { "phase": phase },
        });
        is_restoring(&serde_json::from_value(claim).unwrap())
    };
    assert!(restoring("Pending", "snapshot.storage.k8s.io"));
    assert!(!restoring("Bound", "snapshot.storage.k8s.io"));
    assert!(!restoring("Pending", "example.com"));
}

#[test]
fn a_bound_content_is_protected_unless_it_goes() {
    let mut it = content(&json!({ "snapshotHandle": "h" }), "u");
    assert!(needs_protection(&it));
    it.metadata.deleting = true;
    assert!(!needs_protection(&it));
    assert!(!needs_protection(&content(&json!({ "snapshotHandle": "h" }), "")));
}
