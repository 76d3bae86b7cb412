use serde_json::{Value, json};

use super::*;

const DRIVER: &str = "d";

fn claim(annotations: &Value, volume: &str) -> PersistentVolumeClaim {
    let metadata = json!({ "name": "c", "namespace": "n", "annotations": annotations });
    let spec = json!({ "storageClassName": "class", "volumeName": volume });
    serde_json::from_value(json!({ "metadata": metadata, "spec": spec })).unwrap()
}

fn class(mode: &str) -> StorageClass {
    serde_json::from_value(json!({ "provisioner": DRIVER, "volumeBindingMode": mode })).unwrap()
}

#[test]
fn a_claim_names_its_provisioner() {
    let (newer, older) = (annotation::STORAGE_PROVISIONER, annotation::STORAGE_PROVISIONER_BETA);
    for (annotations, expected) in [
        (json!({ newer: DRIVER }), true),
        (json!({ older: DRIVER }), true),
        (json!({ newer: DRIVER, older: "other" }), true),
        (json!({ newer: "other", older: DRIVER }), false),
        (json!({ annotation::MIGRATED_TO: DRIVER }), true),
        (json!({}), false),
    ] {
        assert_eq!(concerns(&claim(&annotations, ""), DRIVER), expected, "{annotations}");
        assert!(!concerns(&claim(&annotations, "bound"), DRIVER), "{annotations}");
    }
}

#[test]
fn a_claim_waits_for_its_consumer() {
    let ours = json!({ annotation::STORAGE_PROVISIONER: DRIVER });
    let mut picked = ours.clone();
    picked[annotation::SELECTED_NODE] = json!("n1");
    let mut unpicked = ours.clone();
    unpicked[annotation::SELECTED_NODE] = json!("");
    let need = |annotations: &Value, mode: &str, node: Option<&str>| {
        claim_need(&claim(annotations, ""), Some(&class(mode)), DRIVER, node).unwrap()
    };
    let late = "WaitForFirstConsumer";
    assert_eq!(need(&ours, "Immediate", None), ClaimNeed::Volume);
    assert_eq!(need(&ours, late, None), ClaimNeed::Nothing);
    assert_eq!(need(&unpicked, late, None), ClaimNeed::Nothing);
    assert_eq!(need(&picked, late, None), ClaimNeed::Volume);
    // With a provisioner on each node, each serves its own.
    assert_eq!(need(&picked, late, Some("n1")), ClaimNeed::Volume);
    assert_eq!(need(&picked, late, Some("n2")), ClaimNeed::Nothing);
    assert_eq!(need(&ours, "Immediate", Some("n1")), ClaimNeed::Nothing);
    assert_eq!(need(&unpicked, "Immediate", Some("n1")), ClaimNeed::Nothing);
}

#[test]
fn what_cannot_be_served_is_refused() {
    let ours = claim(&json!({ annotation::STORAGE_PROVISIONER: DRIVER }), "");
    let missing = claim_need(&ours, None, DRIVER, None);
    assert_eq!(missing, Err(ProvisionRefusal::NoClass("class".to_owned())));
    let other = StorageClass { provisioner: "other".to_owned(), ..class("Immediate") };
    let refused = claim_need(&ours, Some(&other), DRIVER, None);
    assert!(
        matches!(refused, Err(ProvisionRefusal::OtherClass { provisioner, .. }) if provisioner == "other")
    );
    let in_tree = json!({
        annotation::STORAGE_PROVISIONER: "kubernetes.io/x", annotation::MIGRATED_TO: DRIVER,
    });
    let refused = claim_need(&claim(&in_tree, ""), None, DRIVER, None);
    assert_eq!(refused, Err(ProvisionRefusal::InTree("kubernetes.io/x".to_owned())));
}

#[test]
fn a_claim_is_looked_at_when_its_question_changes() {
    let ours = |node: &str| {
        let annotations =
            json!({ annotation::STORAGE_PROVISIONER: DRIVER, annotation::SELECTED_NODE: node });
        claim(&annotations, "")
    };
    let (a, b, foreign) = (ours("a"), ours("b"), claim(&json!({}), ""));
    let mut touched = a.clone();
    touched.metadata.resource_version = "7".to_owned();
    let bound = claim(&json!({ annotation::STORAGE_PROVISIONER: DRIVER }), "v");
    assert_eq!(reaction(None, Some(&a), DRIVER), Reaction::Renew);
    assert_eq!(reaction(Some(&foreign), Some(&a), DRIVER), Reaction::Renew);
    assert_eq!(reaction(Some(&a), Some(&b), DRIVER), Reaction::Renew);
    assert_eq!(reaction(Some(&a), Some(&bound), DRIVER), Reaction::Renew);
    assert_eq!(reaction(Some(&a), Some(&touched), DRIVER), Reaction::None);
    assert_eq!(reaction(Some(&a), None, DRIVER), Reaction::Wake);
    assert_eq!(reaction(Some(&bound), None, DRIVER), Reaction::None);
    assert_eq!(reaction(None, Some(&foreign), DRIVER), Reaction::None);
}

#[test]
fn a_volume_goes_the_way_of_its_policy() {
    let need = |policy: &str, phase: &str, held: bool, deleting: bool, maker: &str| {
        let mut volume = json!({
            "metadata": { "annotations": { annotation::PROVISIONED_BY: maker } },
            "spec": { "persistentVolumeReclaimPolicy": policy, "csi": { "driver": DRIVER } },
            "status": { "phase": phase },
        });
        if held {
            volume["metadata"]["finalizers"] = json!(["other", finalizer::PROVISIONER]);
        }
        if deleting {
            volume["metadata"]["deletionTimestamp"] = json!("2026-01-01T00:00:00Z");
        }
        volume_need(&serde_json::from_value(volume).unwrap(), DRIVER)
    };
    assert_eq!(need("Delete", "Bound", false, false, DRIVER), VolumeNeed::Protection);
    assert_eq!(need("Delete", "Bound", true, false, DRIVER), VolumeNeed::Nothing);
    assert_eq!(need("Delete", "Bound", false, true, DRIVER), VolumeNeed::Nothing);
    assert_eq!(need("Delete", "Available", false, false, DRIVER), VolumeNeed::Nothing);
    assert_eq!(need("Delete", "Released", true, false, DRIVER), VolumeNeed::Deletion);
    assert_eq!(need("Delete", "Released", true, true, DRIVER), VolumeNeed::Deletion);
    assert_eq!(need("Delete", "Released", false, false, DRIVER), VolumeNeed::Deletion);
    assert_eq!(need("Delete", "Released", false, true, DRIVER), VolumeNeed::Nothing);
    for policy in ["Retain", "Recycle"] {
        assert_eq!(need(policy, "Bound", true, false, DRIVER), VolumeNeed::Release, "{policy}");
        assert_eq!(need(policy, "Released", true, true, DRIVER), VolumeNeed::Release, "{policy}");
        assert_eq!(need(policy, "Bound", false, false, DRIVER), VolumeNeed::Nothing, "{policy}");
    }
    assert_eq!(need("Delete", "Released", true, false, "other"), VolumeNeed::Nothing);
}

#[test]
fn a_volume_that_nobody_provisioned_is_its_drivers() {
    let volume = |driver: &str| {
        let spec =
            json!({ "persistentVolumeReclaimPolicy": "Delete", "csi": { "driver": driver } });
        let status = json!({ "phase": "Released" });
        serde_json::from_value(json!({ "spec": spec, "status": status })).unwrap()
    };
    assert_eq!(volume_need(&volume(DRIVER), DRIVER), VolumeNeed::Deletion);
    assert_eq!(volume_need(&volume("other"), DRIVER), VolumeNeed::Nothing);
}

fn changed(claim: &PersistentVolumeClaim, change: &Value) -> PersistentVolumeClaim {
    let mut meta =
        json!({ "name": "c", "namespace": "n", "finalizers": [finalizer::UNSETTLED_VOLUME] });
    let annotations = claim.metadata.annotations.to_map();
    meta["annotations"] = json!(annotations);
    for (key, value) in change.as_object().unwrap() {
        meta[key] = value.clone();
    }
    let metadata = serde_json::from_value(meta).unwrap();
    PersistentVolumeClaim { metadata, ..claim.clone() }
}

#[test]
fn a_mark_needs_what_becomes_of_its_claim() {
    let ours = json!({ annotation::STORAGE_PROVISIONER: DRIVER, annotation::SELECTED_NODE: "n1" });
    let pending = changed(&claim(&ours, ""), &json!({}));
    let bound = changed(&claim(&ours, "v"), &json!({}));
    let deleting = changed(&pending, &json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }));
    assert!(is_marked(&pending, DRIVER) && !is_marked(&pending, "other"));
    assert!(concerns(&bound, DRIVER) && !concerns(&bound, "other"));
    assert!(!is_marked(&claim(&ours, ""), DRIVER));

    let (unknown, known) = (Asked { known: false, node: None }, Asked { known: true, node: None });
    assert_eq!(mark_need(&pending, unknown, None), MarkNeed::Volume);
    assert_eq!(mark_need(&deleting, unknown, None), MarkNeed::Settlement);
    // Bound to a volume other than the requested one.
    assert_eq!(mark_need(&bound, unknown, None), MarkNeed::Settlement);
    for claim in [&pending, &bound, &deleting] {
        assert_eq!(mark_need(claim, known, None), MarkNeed::Removal);
    }
    let on = |node| Asked { known: false, node: Some(node) };
    assert_eq!(mark_need(&pending, on("n1"), None), MarkNeed::Volume);
    assert_eq!(mark_need(&pending, on("n2"), None), MarkNeed::Settlement);
    // With a provisioner on each node, one settles its own request, and the next waits for that.
    assert_eq!(mark_need(&pending, on("n1"), Some("n1")), MarkNeed::Volume);
    assert_eq!(mark_need(&pending, on("n2"), Some("n2")), MarkNeed::Settlement);
    assert_eq!(mark_need(&pending, on("n2"), Some("n1")), MarkNeed::Wait);
    assert_eq!(mark_need(&deleting, on("n1"), Some("n2")), MarkNeed::Nothing);
    assert_eq!(mark_need(&deleting, unknown, Some("n1")), MarkNeed::Settlement);
}

#[test]
fn a_mark_of_our_own_is_no_other_question() {
    let ours = json!({ annotation::STORAGE_PROVISIONER: DRIVER });
    let mut noted = ours.clone();
    noted[annotation::UNSETTLED_VOLUME] = json!("{}");
    let plain = claim(&ours, "");
    let marked = changed(&claim(&noted, ""), &json!({}));
    let deleting = changed(&marked, &json!({ "deletionTimestamp": "2026-01-01T00:00:00Z" }));
    assert_eq!(reaction(Some(&plain), Some(&marked), DRIVER), Reaction::None);
    assert_eq!(reaction(Some(&marked), Some(&plain), DRIVER), Reaction::None);
    assert_eq!(reaction(Some(&marked), Some(&deleting), DRIVER), Reaction::Renew);
    // Created by a process that did not know of the other volume.
    let (bound, late) = (claim(&ours, "v"), changed(&claim(&noted, "v"), &json!({})));
    assert_eq!(reaction(Some(&bound), Some(&late), DRIVER), Reaction::Renew);
    assert_eq!(reaction(None, Some(&late), DRIVER), Reaction::Renew);
}

#[test]
fn a_volume_belongs_to_a_claim_by_driver_and_uid() {
    let mut claim = claim(&json!({}), "pvc-1");
    claim.metadata.uid = "1".to_owned();
    let volume = |driver: &str, uid: &str| -> PersistentVolume {
        let spec = json!({ "csi": { "driver": driver }, "claimRef": { "uid": uid } });
        serde_json::from_value(json!({ "spec": spec })).unwrap()
    };
    assert!(is_volume_of(&volume(DRIVER, "1"), &claim, DRIVER));
    assert!(!is_volume_of(&volume("other", "1"), &claim, DRIVER));
    assert!(!is_volume_of(&volume(DRIVER, "2"), &claim, DRIVER));
    assert!(!is_volume_of(&PersistentVolume::default(), &claim, DRIVER));
    assert!(is_bound_to(&claim, "pvc-1") && !is_bound_to(&claim, "pvc-2"));
}
