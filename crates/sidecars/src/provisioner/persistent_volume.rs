//! Builds the PersistentVolume of a created volume.

use serde_json::{Map, Value, json};
use wharf_cluster::{PersistentVolumeClaim, SecretReference, Size, StorageClass};
use wharf_facts::{annotation, context::PROVISIONER_IDENTITY, finalizer};
use wharf_proto::csi::Volume;

use super::{request::Secrets, topology::node_affinity};

/// The data for the object.
pub(super) struct Made<'a> {
    pub(super) name: &'a str,
    pub(super) driver: &'a str,
    pub(super) identity: &'a str,
    pub(super) claim: &'a PersistentVolumeClaim,
    pub(super) class: &'a StorageClass,
    pub(super) fs_type: &'a str,
    pub(super) secrets: &'a Secrets,
    pub(super) read_only: bool,
    /// Whether the driver's volumes have a topology.
    pub(super) placed: bool,
    /// The VolumeAttributesClass of the request.
    pub(super) attributes_class: Option<&'a str>,
    /// The driver's answer.
    pub(super) volume: &'a Volume,
    /// The size.
    pub(super) size: i64,
}

/// The whole object.
pub(super) fn persistent_volume(made: &Made<'_>) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": made.name,
            "finalizers": [finalizer::PROVISIONER],
            "annotations": annotations(made),
        },
        "spec": spec(made),
    })
}

fn annotations(made: &Made<'_>) -> Value {
    let deletion = made.secrets.provisioner.clone().unwrap_or_default();
    let mut annotations = json!({
        annotation::PROVISIONED_BY: made.class.provisioner,
        annotation::DELETION_SECRET_NAME: deletion.name,
        annotation::DELETION_SECRET_NAMESPACE: deletion.namespace,
    });
    if let Some(modify) = &made.secrets.controller_modify {
        annotations[annotation::MODIFY_SECRET_NAME] = json!(modify.name);
        annotations[annotation::MODIFY_SECRET_NAMESPACE] = json!(modify.namespace);
    }
    annotations
}

fn spec(made: &Made<'_>) -> Value {
    let (claim, class) = (&made.claim.metadata, made.class);
    let mut spec = json!({
        "accessModes": made.claim.spec.access_modes,
        "capacity": { "storage": Size(made.size).to_string() },
        "csi": csi(made),
        "claimRef": {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "name": claim.name,
            "namespace": claim.namespace,
            "uid": claim.uid,
            "resourceVersion": claim.resource_version,
        },
        "storageClassName": made.claim.class(),
    });
    if !class.mount_options.is_empty() {
        spec["mountOptions"] = json!(class.mount_options);
    }
    let affinity = made.placed.then(|| node_affinity(&made.volume.accessible_topology));
    let optional = [
        ("persistentVolumeReclaimPolicy", class.reclaim_policy.as_deref().map(Value::from)),
        ("volumeMode", made.claim.spec.volume_mode.as_deref().map(Value::from)),
        ("volumeAttributesClassName", made.attributes_class.map(Value::from)),
        ("nodeAffinity", affinity.flatten()),
    ];
    for (field, value) in optional {
        if let Some(value) = value {
            spec[field] = value;
        }
    }
    spec
}

fn csi(made: &Made<'_>) -> Value {
    let mut attributes: Map<String, Value> =
        Map::from_iter([(PROVISIONER_IDENTITY.to_owned(), json!(made.identity))]);
    let context = made.volume.volume_context.iter();
    attributes.extend(context.map(|(key, value)| (key.clone(), json!(value))));
    let mut csi = json!({
        "driver": made.driver,
        "volumeHandle": made.volume.volume_id,
        "volumeAttributes": attributes,
    });
    if made.read_only {
        csi["readOnly"] = json!(true);
    }
    if !made.claim.is_block() && !made.fs_type.is_empty() {
        csi["fsType"] = json!(made.fs_type);
    }
    let secrets = [
        ("controllerPublishSecretRef", &made.secrets.controller_publish),
        ("nodeStageSecretRef", &made.secrets.node_stage),
        ("nodePublishSecretRef", &made.secrets.node_publish),
        ("controllerExpandSecretRef", &made.secrets.controller_expand),
        ("nodeExpandSecretRef", &made.secrets.node_expand),
    ];
    for (field, secret) in secrets {
        if let Some(SecretReference { name, namespace }) = secret {
            csi[field] = json!({ "name": name, "namespace": namespace });
        }
    }
    csi
}

#[cfg(test)]
mod tests;
