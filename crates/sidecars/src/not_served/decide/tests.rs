use serde_json::{Value, json};

use super::*;

const DRIVER: &str = "ebs.csi.aws.com";

fn volume(annotations: &Value, spec: &Value) -> PersistentVolume {
    serde_json::from_value(json!({
        "metadata": { "name": "pv", "annotations": annotations },
        "spec": spec,
    }))
    .unwrap()
}

#[test]
fn volumes_of_migrated_plugins_are_not_served() {
    let none = json!({});
    let aws = json!({ "awsElasticBlockStore": { "volumeID": "v" } });
    let migrated = |driver: &str| json!({ annotation::MIGRATED_TO: driver });
    for (annotations, spec, served) in [
        (&none, &aws, false),
        (&migrated(DRIVER), &aws, false),
        (&migrated(DRIVER), &json!({ "flocker": {} }), false),
        (&none, &json!({ "csi": { "driver": DRIVER } }), true),
        (&migrated(DRIVER), &json!({ "csi": { "driver": DRIVER } }), true),
        (&none, &json!({ "cinder": { "volumeID": "v" } }), true),
        (&none, &json!({ "nfs": {} }), true),
        (&migrated("other"), &json!({ "flocker": {} }), true),
    ] {
        let message = volume_message(&volume(annotations, spec), DRIVER);
        assert_eq!(message.is_none(), served, "{annotations} {spec}: {message:?}");
    }
    let message = volume_message(&volume(&none, &aws), DRIVER).unwrap();
    for part in ["kubernetes.io/aws-ebs", DRIVER, "not attached", "upstream sidecars"] {
        assert!(message.contains(part), "{message}");
    }
}

#[test]
fn claims_that_bind_immediately_are_not_served_on_nodes() {
    let class = |provisioner: &str, binding: Value| -> StorageClass {
        serde_json::from_value(json!({
            "metadata": { "name": "now" },
            "provisioner": provisioner,
            "volumeBindingMode": binding,
        }))
        .unwrap()
    };
    let claim = |annotations: Value, deleting: bool, volume: &str| -> PersistentVolumeClaim {
        let deleted = deleting.then_some("2026-01-01T00:00:00Z");
        serde_json::from_value(json!({
            "metadata": { "name": "c", "annotations": annotations, "deletionTimestamp": deleted },
            "spec": { "storageClassName": "now", "volumeName": volume },
        }))
        .unwrap()
    };
    let asks = || json!({ annotation::STORAGE_PROVISIONER: DRIVER });
    let now = class(DRIVER, json!("Immediate"));
    for (claim, class, served) in [
        (claim(asks(), false, ""), Some(&now), false),
        (claim(asks(), false, ""), Some(&class(DRIVER, Value::Null)), false),
        (
            claim(json!({ annotation::STORAGE_PROVISIONER_BETA: DRIVER }), false, ""),
            Some(&now),
            false,
        ),
        (claim(asks(), false, ""), Some(&class(DRIVER, json!("WaitForFirstConsumer"))), true),
        (claim(asks(), false, ""), Some(&class("other", json!("Immediate"))), true),
        (claim(asks(), false, ""), None, true),
        (claim(asks(), true, ""), Some(&now), true),
        (claim(asks(), false, "pv"), Some(&now), true),
        (claim(json!({}), false, ""), Some(&now), true),
        (
            claim(
                json!({ annotation::STORAGE_PROVISIONER: DRIVER, annotation::SELECTED_NODE: "n" }),
                false,
                "",
            ),
            Some(&now),
            true,
        ),
    ] {
        let message = claim_message(&claim, class, DRIVER);
        assert_eq!(message.is_none(), served, "{claim:?} {class:?}: {message:?}");
    }
}
