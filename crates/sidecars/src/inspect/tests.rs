//! Findings about objects that sidecars do not serve.

use serde_json::{Value, json};
use wharf_cluster::Kind;

use super::{ClusterSnapshot, Finding, Listed};
use crate::not_served::NOT_SERVED;

fn listed<K: Kind>(whole: &Value) -> Vec<Listed<K>> {
    vec![Listed::of(whole.clone()).unwrap()]
}

fn volume(phase: &str, annotations: &Value) -> Value {
    json!({
        "metadata": { "name": "v", "uid": "v", "annotations": annotations },
        "spec": {
            "awsElasticBlockStore": { "volumeID": "vol-1" },
            "persistentVolumeReclaimPolicy": "Delete",
        },
        "status": { "phase": phase },
    })
}

fn reported(uid: &str) -> Vec<Value> {
    vec![json!({
        "reason": NOT_SERVED,
        "message": "it is not served",
        "involvedObject": { "uid": uid },
    })]
}

fn only(cluster: &ClusterSnapshot, kind: &str) -> Finding {
    cluster.findings().into_iter().find(|it| it.kind == kind).unwrap()
}

fn assert_person(finding: &Finding, what: &str) {
    assert_eq!(finding.who.as_deref(), Some("a person"), "{finding:?}");
    assert!(finding.waits_for.as_ref().unwrap().contains(what), "{finding:?}");
}

#[test]
fn an_in_tree_volume_is_shown_when_a_sidecar_would_have_to_act_or_has_said_so() {
    let none = json!({});
    let cluster = |phase: &str, warnings| ClusterSnapshot {
        volumes: listed(&volume(phase, &none)),
        warnings,
        ..ClusterSnapshot::default()
    };
    assert_person(&only(&cluster("Released", Vec::new()), "volume"), "kubernetes.io/aws-ebs");
    assert_person(&only(&cluster("Bound", reported("v")), "volume"), "ebs.csi.aws.com");
    assert_eq!(only(&cluster("Bound", reported("other")), "volume").who, None);
    assert_eq!(only(&cluster("Bound", Vec::new()), "volume").who, None);
}

/// Events are deleted after an hour.
#[test]
fn an_idle_in_tree_volume_is_shown_without_an_event() {
    let node = |driver: &str| {
        json!({
            "metadata": { "name": "node" },
            "spec": { "drivers": [{ "name": driver, "nodeID": "n" }] },
        })
    };
    let attachment = |attached: bool| {
        json!({
            "metadata": { "name": "a" },
            "spec": { "attacher": "ebs.csi.aws.com", "source": { "persistentVolumeName": "v" } },
            "status": { "attached": attached },
        })
    };
    let cluster = |driver: &str, attached: bool| ClusterSnapshot {
        volumes: listed(&volume("Bound", &json!({}))),
        csi_nodes: listed(&node(driver)),
        attachments: listed(&attachment(attached)),
        ..ClusterSnapshot::default()
    };
    let idle = only(&cluster("ebs.csi.aws.com", false), "volume");
    assert_person(&idle, "if wharf's sidecars serve its driver");
    assert_eq!(only(&cluster("ebs.csi.aws.com", true), "volume").who, None);
    assert_eq!(only(&cluster("other.example.com", false), "volume").who, None);
}

#[test]
fn an_attachment_of_an_in_tree_volume_waits_for_a_person() {
    let attachment = |attached: bool| {
        json!({
            "metadata": { "name": "a" },
            "spec": { "attacher": "ebs.csi.aws.com", "source": { "persistentVolumeName": "v" } },
            "status": { "attached": attached },
        })
    };
    let cluster = |attached: bool| ClusterSnapshot {
        volumes: listed(&volume("Bound", &json!({}))),
        attachments: listed(&attachment(attached)),
        ..ClusterSnapshot::default()
    };
    assert_person(&only(&cluster(false), "attachment"), "not attached");
    assert_eq!(only(&cluster(true), "attachment").who, None);
}

#[test]
fn a_claim_that_nobody_serves_waits_for_a_person() {
    let class = json!({ "metadata": { "name": "now" }, "provisioner": "d" });
    let claim = |annotations: Value| {
        json!({
            "metadata": { "name": "c", "namespace": "n", "uid": "c", "annotations": annotations },
            "spec": { "storageClassName": "now" },
        })
    };
    let asked = json!({ "volume.kubernetes.io/storage-provisioner": "d" });
    let pending = ClusterSnapshot {
        claims: listed(&claim(asked)),
        storage_classes: listed(&class),
        warnings: reported("c"),
        ..ClusterSnapshot::default()
    };
    assert_person(&only(&pending, "claim"), "it is not served");
    let growing = json!({
        "metadata": { "name": "c", "namespace": "n", "uid": "c" },
        "spec": { "volumeName": "v", "resources": { "requests": { "storage": "2Gi" } } },
        "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } },
    });
    let growing = ClusterSnapshot {
        claims: listed(&growing),
        volumes: listed(&volume("Bound", &json!({}))),
        ..ClusterSnapshot::default()
    };
    assert_person(&only(&growing, "claim"), "which nobody does");
}

#[test]
fn a_group_snapshot_is_served_by_others_or_by_nobody() {
    let group = |ready: bool| {
        json!({
            "metadata": { "name": "g", "namespace": "n" },
            "status": { "readyToUse": ready, "error": { "message": "no" } },
        })
    };
    let cluster = |ready| ClusterSnapshot {
        group_snapshots: listed(&group(ready)),
        ..ClusterSnapshot::default()
    };
    let pending = only(&cluster(false), "group snapshot");
    assert_person(&pending, "CSIVolumeGroupSnapshot");
    assert_eq!((pending.stage.as_str(), pending.last_error.as_deref()), ("Pending", Some("no")));
    assert_eq!(only(&cluster(true), "group snapshot").who, None);
}
