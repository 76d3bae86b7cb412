use wharf_proto::csi::Topology;

use super::*;

fn reference(name: &str) -> Option<SecretReference> {
    Some(SecretReference { name: name.to_owned(), namespace: "s".to_owned() })
}

fn claim(mode: Option<&str>) -> PersistentVolumeClaim {
    serde_json::from_value(json!({
        "metadata": { "name": "c", "namespace": "n", "uid": "u", "resourceVersion": "7" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast", "volumeMode": mode,
        },
    }))
    .unwrap()
}

fn class() -> StorageClass {
    serde_json::from_value(json!({
        "metadata": { "name": "fast" },
        "provisioner": "d",
        "reclaimPolicy": "Retain",
        "mountOptions": ["noatime"],
    }))
    .unwrap()
}

fn volume() -> Volume {
    let place = [("zone".to_owned(), "a".to_owned())].into();
    Volume {
        volume_id: "h".to_owned(),
        volume_context: [("tier".to_owned(), "1".to_owned())].into(),
        accessible_topology: vec![Topology { segments: place }],
        ..Volume::default()
    }
}

fn written(
    claim: &PersistentVolumeClaim,
    change: impl FnOnce(&mut Made<'_>, &mut Secrets),
) -> Value {
    let (class, volume, mut secrets) = (class(), volume(), Secrets::default());
    let mut made = Made {
        name: "pvc-u",
        driver: "d",
        identity: "1-2-d",
        claim,
        class: &class,
        fs_type: "xfs",
        secrets: &Secrets::default(),
        read_only: false,
        placed: false,
        attributes_class: None,
        volume: &volume,
        size: 3 << 29,
    };
    change(&mut made, &mut secrets);
    persistent_volume(&Made { secrets: &secrets, ..made })
}

#[test]
fn an_object_says_what_was_made_for_whom() {
    let expected = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {
            "name": "pvc-u",
            "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"],
            "annotations": {
                "pv.kubernetes.io/provisioned-by": "d",
                "volume.kubernetes.io/provisioner-deletion-secret-name": "",
                "volume.kubernetes.io/provisioner-deletion-secret-namespace": "",
            },
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": "1536Mi" },
            "mountOptions": ["noatime"],
            "persistentVolumeReclaimPolicy": "Retain",
            "storageClassName": "fast",
            "claimRef": {
                "apiVersion": "v1", "kind": "PersistentVolumeClaim", "name": "c", "namespace": "n",
                "uid": "u", "resourceVersion": "7",
            },
            "csi": {
                "driver": "d",
                "volumeHandle": "h",
                "fsType": "xfs",
                "volumeAttributes": {
                    "tier": "1", "storage.kubernetes.io/csiProvisionerIdentity": "1-2-d",
                },
            },
        },
    });
    assert_eq!(written(&claim(None), |_, _| {}), expected);
}

#[test]
fn all_that_can_be_said_is() {
    let object = written(&claim(Some("Block")), |made, secrets| {
        (made.read_only, made.placed) = (true, true);
        made.attributes_class = Some("gold");
        *secrets = Secrets {
            provisioner: reference("p"),
            controller_publish: reference("cp"),
            node_stage: reference("ns"),
            node_publish: reference("np"),
            controller_expand: reference("ce"),
            node_expand: reference("ne"),
            controller_modify: reference("cm"),
        };
    });
    let annotations = json!({
        "pv.kubernetes.io/provisioned-by": "d",
        "volume.kubernetes.io/provisioner-deletion-secret-name": "p",
        "volume.kubernetes.io/provisioner-deletion-secret-namespace": "s",
        "volume.kubernetes.io/controller-modify-secret-name": "cm",
        "volume.kubernetes.io/controller-modify-secret-namespace": "s",
    });
    assert_eq!(object["metadata"]["annotations"], annotations);
    let spec = &object["spec"];
    assert_eq!(spec["volumeMode"], "Block");
    assert_eq!(spec["volumeAttributesClassName"], "gold");
    let terms = &spec["nodeAffinity"]["required"]["nodeSelectorTerms"];
    let zone = json!({ "key": "zone", "operator": "In", "values": ["a"] });
    assert_eq!(*terms, json!([{ "matchExpressions": [zone] }]));
    let csi = &spec["csi"];
    assert_eq!((&csi["readOnly"], &csi["fsType"]), (&json!(true), &Value::Null));
    for (field, name) in [
        ("controllerPublishSecretRef", "cp"),
        ("nodeStageSecretRef", "ns"),
        ("nodePublishSecretRef", "np"),
        ("controllerExpandSecretRef", "ce"),
        ("nodeExpandSecretRef", "ne"),
    ] {
        assert_eq!(csi[field], json!({ "name": name, "namespace": "s" }), "{field}");
    }
}
