use serde_json::{Value, json};

use super::*;

/// A claim with these fields, in a cluster with a driver on one node.
fn cluster(claim: &Value) -> ClusterSnapshot {
    let class = |name: &str, binding: &str| {
        json!({
            "metadata": { "name": name },
            "provisioner": "d.example.com",
            "volumeBindingMode": binding,
        })
    };
    let mut whole = json!({
        "metadata": { "name": "c", "namespace": "n", "uid": "u" },
        "spec": { "storageClassName": "now", "resources": { "requests": { "storage": "1Gi" } } },
        "status": { "phase": "Pending" },
    });
    merge(&mut whole, claim);
    ClusterSnapshot {
        claims: vec![Listed::of(whole).unwrap()],
        storage_classes: vec![
            Listed::of(class("now", "Immediate")).unwrap(),
            Listed::of(class("later", "WaitForFirstConsumer")).unwrap(),
        ],
        csi_nodes: vec![
            Listed::of(json!({
                "metadata": { "name": "node-1" },
                "spec": { "drivers": [{ "name": "d.example.com", "nodeID": "1" }] },
            }))
            .unwrap(),
        ],
        ..ClusterSnapshot::default()
    }
}

fn merge(into: &mut Value, from: &Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key.as_str()).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from.clone(),
    }
}

fn found(cluster: &ClusterSnapshot) -> (String, String, String) {
    let finding = finding(cluster, &cluster.claims[0]);
    (finding.stage, finding.who.unwrap_or_default(), finding.waits_for.unwrap_or_default())
}

#[test]
fn each_pending_claim_waits_for_somebody() {
    let given = |node: &str| {
        json!({ "metadata": { "annotations": {
            annotation::STORAGE_PROVISIONER: "d.example.com",
            annotation::SELECTED_NODE: node,
        } } })
    };
    let class = |name: Value| json!({ "spec": { "storageClassName": name } });
    let from = |kind: &str| json!({ "spec": { "dataSource": { "kind": kind, "name": "s" } } });
    let both = |one: &Value, other: &Value| {
        let mut sum = one.clone();
        merge(&mut sum, other);
        sum
    };
    for (claim, who, what) in [
        (class(Value::Null), "a person", "no StorageClass is the default"),
        (class(json!("")), "a person", "has to be made for it"),
        (class(json!("none")), "a person", "StorageClass none does not exist"),
        (json!({}), "kube-controller-manager", "given to driver d.example.com"),
        (class(json!("later")), "a person", "a pod that uses it, and there is none"),
        (given("node-1"), "provisioner", "driver d.example.com has to make its volume"),
        (given("node-2"), "registrar", "has not registered on node node-2"),
        (json!({ "spec": { "volumeName": "pv" } }), "a person", "pv, which is not there"),
        (both(&given("node-1"), &from("VolumeSnapshot")), "a person", "n/s does not exist"),
        (both(&given("node-1"), &from("Other")), "a volume populator", "filled from Other n/s"),
    ] {
        let (stage, found_who, found_what) = found(&cluster(&claim));
        assert_eq!((stage.as_str(), found_who.as_str()), ("Pending", who), "{claim}: {found_what}");
        assert!(found_what.contains(what), "{claim}: {found_what}");
    }
}

#[test]
fn the_scheduler_says_why_a_pod_has_no_node() {
    let mut cluster = cluster(&json!({ "spec": { "storageClassName": "later" } }));
    let unscheduled =
        json!({ "type": "PodScheduled", "status": "False", "message": "0/3 nodes fit" });
    cluster.pods.push(json!({
        "metadata": { "name": "p", "namespace": "n" },
        "spec": { "volumes": [{ "persistentVolumeClaim": { "claimName": "c" } }] },
        "status": { "phase": "Pending", "conditions": [unscheduled] },
    }));
    let (_, who, what) = found(&cluster);
    assert_eq!(who, "kube-scheduler");
    assert_eq!(what, "its pod p has no node yet: 0/3 nodes fit");
}

#[test]
fn a_bound_claim_that_grows_waits_for_controller_or_node() {
    let claim = |status: Value| {
        let mut claim = json!({
            "spec": { "volumeName": "pv", "resources": { "requests": { "storage": "2Gi" } } },
            "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } },
        });
        merge(&mut claim["status"], &json!({ "allocatedResourceStatuses": { "storage": status } }));
        claim
    };
    for (status, who) in [
        (Value::Null, "resizer"),
        (json!("ControllerResizeInProgress"), "resizer"),
        (json!("NodeResizePending"), "kubelet"),
        (json!("ControllerResizeInfeasible"), "a person"),
    ] {
        let (stage, found_who, what) = found(&cluster(&claim(status)));
        assert_eq!((stage.as_str(), found_who.as_str()), ("Growing", who));
        assert!(what.contains("from 1Gi to 2Gi"), "{what}");
    }
}

/// The kubelet writes no event about it.
#[test]
fn a_growth_that_failed_on_its_node_is_told_with_its_error() {
    let error = json!({ "type": "NodeResizeError", "status": "True", "message": "it is mounted" });
    let pending = json!({ "type": "FileSystemResizePending", "status": "True", "message": "wait" });
    let cluster = cluster(&json!({
        "spec": { "volumeName": "pv", "resources": { "requests": { "storage": "2Gi" } } },
        "status": {
            "phase": "Bound",
            "capacity": { "storage": "1Gi" },
            "allocatedResourceStatuses": { "storage": "NodeResizeInProgress" },
            "conditions": [pending, error],
        },
    }));
    let finding = finding(&cluster, &cluster.claims[0]);
    assert_eq!(finding.last_error.unwrap(), "NodeResizeError: it is mounted");
    assert!(finding.waits_for.unwrap().contains("start its pod again"));
}

#[test]
fn a_claim_without_its_volume_needs_a_person_and_one_with_it_nobody() {
    let mut cluster =
        cluster(&json!({ "spec": { "volumeName": "pv" }, "status": { "phase": "Bound" } }));
    assert_eq!(found(&cluster).1, "a person");
    cluster.volumes.push(Listed::of(json!({ "metadata": { "name": "pv" } })).unwrap());
    assert_eq!(found(&cluster), ("Bound".into(), String::new(), String::new()));
}

#[test]
fn a_claim_that_is_deleted_names_the_pods_that_use_it() {
    let meta = json!({ "deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": [finalizer::PVC_PROTECTION] });
    let mut cluster = cluster(&json!({ "metadata": meta }));
    assert_eq!(found(&cluster).1, "the owners of its finalizers");
    cluster.pods.push(json!({
        "metadata": { "name": "p", "namespace": "n" },
        "spec": { "volumes": [{ "persistentVolumeClaim": { "claimName": "c" } }] },
        "status": { "phase": "Running" },
    }));
    assert_eq!(found(&cluster).2, "pods still use it: p");
}

#[test]
fn the_last_warning_is_shown_while_something_is_waited_for() {
    let mut cluster = cluster(&json!({}));
    for (time, message) in [("2026-01-01T00:00:01Z", "first"), ("2026-01-01T00:00:02Z", "last")] {
        cluster.warnings.push(json!({
            "involvedObject": { "uid": "u" },
            "lastTimestamp": time,
            "reason": "ProvisioningFailed",
            "message": message,
        }));
    }
    let last = finding(&cluster, &cluster.claims[0]).last_error;
    assert_eq!(last.as_deref(), Some("ProvisioningFailed: last"));
}

#[test]
fn a_claim_whose_volume_is_unsettled_waits_for_the_provisioner() {
    let marked = |claim: Value| {
        let mut whole = json!({ "metadata": {
            "annotations": { annotation::STORAGE_PROVISIONER: "d.example.com" },
            "finalizers": [finalizer::UNSETTLED_VOLUME],
        } });
        merge(&mut whole, &claim);
        cluster(&whole)
    };
    let deleted = json!({ "metadata": { "deletionTimestamp": "2026-01-01T00:00:00Z" } });
    let note = json!({ "storageClass": "now", "parameters": { "tier": "fast" } }).to_string();
    let mut changed = deleted.clone();
    changed["metadata"]["annotations"] = json!({ annotation::UNSETTLED_VOLUME: note });
    let noted = |mount: Value| {
        let note = json!({ "storageClass": "now", "parameters": {}, "mount": mount }).to_string();
        let mut claim = deleted.clone();
        claim["metadata"]["annotations"] = json!({ annotation::UNSETTLED_VOLUME: note });
        claim
    };
    let remounted = noted(json!({ "fsType": "ext4", "options": ["noatime"] }));
    let same = noted(json!({ "fsType": "ext4", "options": [] }));
    let mut moved = same.clone();
    moved["metadata"]["annotations"][annotation::STORAGE_PROVISIONER] = json!("e.example.com");
    let no_class = json!({ "spec": { "storageClassName": "gone" } });
    let mut orphaned = deleted.clone();
    merge(&mut orphaned, &no_class);
    let bound = json!({ "spec": { "volumeName": "pvc-u" }, "status": { "phase": "Bound" } });
    let asked = "driver d.example.com may have volume pvc-u, and is asked again";
    for (claim, stage, who, what) in [
        (json!({}), "Pending", "provisioner", asked),
        (deleted, "Terminating", "provisioner", "is asked again, and then to delete it"),
        (changed, "Terminating", "a person", "StorageClass now has other parameters"),
        (remounted, "Terminating", "a person", "StorageClass now has other mount options"),
        (same, "Terminating", "provisioner", "is asked again, and then to delete it"),
        (moved, "Terminating", "a person", "StorageClass now has another provisioner"),
        (orphaned, "Terminating", "a person", "StorageClass gone is gone"),
        (bound, "Bound", "provisioner", "wharf sidecars settle"),
    ] {
        let (found_stage, found_who, found_what) = found(&marked(claim.clone()));
        assert_eq!((found_stage.as_str(), found_who.as_str()), (stage, who), "{claim}");
        assert!(found_what.contains(what), "{claim}: {found_what}");
    }
}
