use std::time::Duration;

use prometheus_client::{encoding::text::encode, registry::Registry};
use serde_json::{Value, json};
use wharf_proto::csi::controller_service_capability::rpc;
use wharf_sidecars::provisioner::{CapacityOptions, OwnerOptions};

use super::fixture::{CLASSES, Fixture, SELECTED_NODE, made};

pub(super) const CAPACITIES: &str =
    "/apis/storage.k8s.io/v1/namespaces/default/csistoragecapacities";

pub(super) fn options(pod: &str) -> CapacityOptions {
    CapacityOptions {
        namespace: "default".to_owned(),
        owner: Some(OwnerOptions { pod: pod.to_owned(), level: 1 }),
        poll: Duration::from_mins(10),
        immediate: false,
        workers: 1,
    }
}

impl Fixture {
    pub(super) async fn capacities(&self) -> Vec<Value> {
        let driver = &self.options.driver;
        let label = format!("labelSelector=csi.storage.k8s.io/drivername={driver}");
        let found = self.get_at(&format!("{CAPACITIES}?{label}")).await.unwrap();
        found["items"].as_array().unwrap().clone()
    }

    /// A pod of a DaemonSet.
    async fn pod(&self) {
        let owner = json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "set", "uid": "set-uid", "controller": true,
        });
        let pod = json!({
            "metadata": { "name": self.name, "ownerReferences": [owner] },
            "spec": { "containers": [{ "name": "c", "image": "i" }] },
        });
        self.create("/api/v1/namespaces/default/pods", "Pod", pod).await;
    }
}

#[tokio::test]
async fn the_scheduler_is_told_what_is_left() {
    let Some(mut fixture) = Fixture::new("prov-capacity", &[rpc::Type::GetCapacity]).await else {
        return;
    };
    let mut registry = Registry::default();
    fixture.options.metrics.register(&mut registry);
    fixture.capacity = Some(options("prov-capacity"));
    fixture.driver.volumes().stand_at(&fixture.zone_key(), "a");
    fixture.driver.volumes().set_capacity(3 << 30);
    fixture.pod().await;
    fixture.node("prov-capacity-1", "a").await;
    fixture
        .class(|it| {
            it["volumeBindingMode"] = json!("WaitForFirstConsumer");
            it["parameters"] = json!({ "csi.storage.k8s.io/fstype": "xfs" });
        })
        .await;
    fixture.start();
    let pod = "GET namespaces/default/pods/prov-capacity".to_owned();
    let created = "POST namespaces/default/csistoragecapacities csisc-".to_owned();
    fixture.journal.expect([pod, created.clone()]).await;
    let [object] = &*fixture.capacities().await else { panic!() };
    assert_eq!(
        (&object["capacity"], &object["storageClassName"]),
        (&json!("3Gi"), &json!("prov-capacity"))
    );
    assert_eq!(object["nodeTopology"]["matchLabels"], json!({ fixture.zone_key(): "a" }));
    let owner = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "set", "uid": "set-uid", "controller": true,
    });
    assert_eq!(object["metadata"]["ownerReferences"], json!([owner]));
    let managed = &object["metadata"]["labels"]["csi.storage.k8s.io/managed-by"];
    assert_eq!(managed, "external-provisioner");
    let asked = fixture.driver.volumes().capacities_asked();
    assert_eq!(asked[0].parameters["csi.storage.k8s.io/fstype"], "xfs");
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    for line in ["desired_goal 1", "desired_current 1", "obsolete 0"] {
        assert!(text.contains(&format!("csistoragecapacities_{line}")), "{line}: {text}");
    }

    // A volume reduces the capacity.
    fixture.journal.clear();
    fixture.driver.volumes().set_capacity(2 << 30);
    let name = fixture
        .claim(|it| it["metadata"]["annotations"][SELECTED_NODE] = json!("prov-capacity-1"))
        .await;
    let [create, post] = made(&name);
    let object = object["metadata"]["name"].as_str().unwrap();
    let path = format!("namespaces/default/csistoragecapacities/{object}");
    let told = json!({ "capacity": "2Gi", "maximumVolumeSize": null });
    fixture.journal.expect([create, post, format!("PATCH {path} {told}")]).await;

    // A deleted object is created again, and a surplus one is deleted.
    fixture.journal.clear();
    fixture.delete_at(&format!("{CAPACITIES}/{object}")).await;
    fixture.journal.expect([created]).await;
    let [object] = &*fixture.capacities().await else { panic!() };
    let object = object["metadata"]["name"].as_str().unwrap().to_owned();
    fixture.journal.clear();
    fixture.delete(CLASSES).await;
    let gone = format!("DELETE namespaces/default/csistoragecapacities/{object}");
    fixture.journal.expect([gone]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn an_object_of_an_earlier_provisioner_gets_its_owner() {
    let name = "prov-capacity-owner";
    let Some(mut fixture) = Fixture::new(name, &[rpc::Type::GetCapacity]).await else { return };
    fixture.capacity = Some(options(name));
    fixture.driver.volumes().stand_at(&fixture.zone_key(), "a");
    fixture.driver.volumes().set_capacity(3 << 30);
    fixture.pod().await;
    fixture.node("prov-capacity-owner-1", "a").await;
    fixture.class(|it| it["volumeBindingMode"] = json!("WaitForFirstConsumer")).await;
    // The capacity is correct: only the owner is missing.
    let other = json!({
        "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "other", "uid": "other-uid", "controller": true,
    });
    let object = json!({
        "metadata": {
            "name": name,
            "labels": {
                "csi.storage.k8s.io/drivername": fixture.options.driver,
                "csi.storage.k8s.io/managed-by": "external-provisioner",
            },
            "ownerReferences": [other],
        },
        "storageClassName": name,
        "nodeTopology": { "matchLabels": { fixture.zone_key(): "a" } },
        "capacity": "3Gi",
    });
    fixture.create(CAPACITIES, "CSIStorageCapacity", object).await;
    fixture.start();
    let own = json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "name": "set", "uid": "set-uid", "controller": false,
    });
    let correction = json!({
        "capacity": "3Gi", "maximumVolumeSize": null, "metadata": { "ownerReferences": [own] },
    });
    let path = format!("namespaces/default/csistoragecapacities/{name}");
    let pod = format!("GET namespaces/default/pods/{name}");
    fixture.journal.expect([pod, format!("PATCH {path} {correction}")]).await;
    let [object] = &*fixture.capacities().await else { panic!() };
    let owners = object["metadata"]["ownerReferences"].as_array().unwrap();
    assert!(owners.len() == 2 && owners.contains(&own) && owners.contains(&other), "{owners:?}");
    fixture.delete_at(&format!("{CAPACITIES}/{name}")).await;
    fixture.stop().await;
}
