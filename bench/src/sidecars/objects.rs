//! Objects of the bench.

use serde_json::{Value, json};

pub(super) const NAMESPACE: &str = "bench";
pub(super) const NODE: &str = "bench-node";

pub(super) const VOLUMES: &str = "/api/v1/persistentvolumes";
pub(super) const CLAIMS: &str = "/api/v1/namespaces/bench/persistentvolumeclaims";
pub(super) const EVENTS: &str = "/api/v1/namespaces/bench/events";
pub(super) const PODS: &str = "/api/v1/namespaces/bench/pods";
pub(super) const ATTACHMENTS: &str = "/apis/storage.k8s.io/v1/volumeattachments";
pub(super) const SNAPSHOTS: &str =
    "/apis/snapshot.storage.k8s.io/v1/namespaces/bench/volumesnapshots";
pub(super) const CONTENTS: &str = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents";

const STORAGE: &str = "/apis/storage.k8s.io/v1";

/// The objects to make first, with their paths.
pub(super) fn classes(drivers: &[&str]) -> Vec<(String, Value)> {
    let mut objects = vec![
        ("/api/v1/namespaces".to_owned(), json!({ "metadata": { "name": NAMESPACE } })),
        ("/api/v1/nodes".to_owned(), json!({ "metadata": { "name": NODE } })),
    ];
    let entries = drivers.iter().map(|driver| json!({ "name": driver, "nodeID": NODE }));
    let node = json!({
        "metadata": { "name": NODE },
        "spec": { "drivers": entries.collect::<Vec<_>>() },
    });
    objects.push((format!("{STORAGE}/csinodes"), node));
    for driver in drivers {
        let class = json!({
            "metadata": { "name": driver },
            "provisioner": driver,
            "allowVolumeExpansion": true,
        });
        objects.push((format!("{STORAGE}/storageclasses"), class));
        let class = json!({
            "apiVersion": "snapshot.storage.k8s.io/v1",
            "kind": "VolumeSnapshotClass",
            "metadata": { "name": driver },
            "driver": driver,
            "deletionPolicy": "Delete",
        });
        let path = "/apis/snapshot.storage.k8s.io/v1/volumesnapshotclasses";
        objects.push((path.to_owned(), class));
    }
    objects
}

/// A claim that kube-controller-manager has assigned to the driver.
pub(super) fn claim(name: &str, driver: &str) -> Value {
    json!({
        "metadata": {
            "name": name,
            "annotations": {
                "volume.kubernetes.io/storage-provisioner": driver,
                "volume.beta.kubernetes.io/storage-provisioner": driver,
            },
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": { "requests": { "storage": "1Gi" } },
            "storageClassName": driver,
        },
    })
}

/// A claim bound to the volume of this name.
pub(super) fn bound_claim(name: &str, driver: &str) -> Value {
    let mut claim = claim(name, driver);
    claim["spec"]["volumeName"] = json!(name);
    claim["metadata"]["annotations"]["pv.kubernetes.io/bind-completed"] = json!("yes");
    claim
}

/// The status of a bound claim.
pub(super) fn claim_status() -> Value {
    json!({ "status": {
        "phase": "Bound",
        "accessModes": ["ReadWriteOnce"],
        "capacity": { "storage": "1Gi" },
    } })
}

/// A volume of the driver, like the provisioner's, for a claim of the same name.
pub(super) fn volume(name: &str, driver: &str, claim: Option<&Value>) -> Value {
    let mut volume = json!({
        "metadata": {
            "name": name,
            "annotations": { "pv.kubernetes.io/provisioned-by": driver },
            "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"],
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": "1Gi" },
            "csi": {
                "driver": driver,
                "volumeHandle": name,
                "volumeAttributes": {
                    "storage.kubernetes.io/csiProvisionerIdentity": format!("1700000000000-1-{driver}"),
                },
            },
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": driver,
            "volumeMode": "Filesystem",
        },
    });
    if let Some(claim) = claim {
        volume["spec"]["claimRef"] = json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": NAMESPACE,
            "name": name,
            "uid": claim["metadata"]["uid"],
        });
    }
    volume
}

/// An attachment of the volume of the same name.
pub(super) fn attachment(name: &str, driver: &str) -> Value {
    json!({
        "metadata": { "name": name },
        "spec": {
            "attacher": driver,
            "nodeName": NODE,
            "source": { "persistentVolumeName": name },
        },
    })
}

/// A snapshot of the claim of the same name.
pub(super) fn snapshot(name: &str, driver: &str) -> Value {
    json!({
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshot",
        "metadata": { "name": name },
        "spec": {
            "source": { "persistentVolumeClaimName": name },
            "volumeSnapshotClassName": driver,
        },
    })
}

/// A pod with the claim of the same name.
pub(super) fn pod(name: &str) -> Value {
    json!({
        "metadata": { "name": name, "labels": { "app": "bench" } },
        "spec": {
            "nodeName": NODE,
            "containers": [{
                "name": "main",
                "image": "bench",
                "env": [{ "name": "NAME", "value": name }],
                "volumeMounts": [{ "name": "data", "mountPath": "/data" }],
            }],
            "volumes": [{ "name": "data", "persistentVolumeClaim": { "claimName": name } }],
        },
    })
}
