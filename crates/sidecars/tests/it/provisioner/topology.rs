use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_proto::csi::{Topology, TopologyRequirement};

use super::fixture::{CLAIMS, Fixture, SELECTED_NODE, deleted, made};
use crate::{
    driver::Answer,
    stage::{NODES, VOLUMES},
};

/// The zones of a requirement: requisite and preferred.
fn zones(requirement: Option<TopologyRequirement>) -> (String, String) {
    let zone = |it: &Topology| it.segments.values().cloned().collect::<String>();
    let all = |it: &[Topology]| it.iter().map(zone).collect::<Vec<_>>().join(" ");
    let requirement = requirement.unwrap();
    (all(&requirement.requisite), all(&requirement.preferred))
}

fn picked(node: &str) -> serde_json::Value {
    json!({ "metadata": { "annotations": { SELECTED_NODE: node } } })
}

#[tokio::test]
async fn a_volume_is_made_where_its_first_consumer_runs() {
    let Some(mut fixture) = Fixture::new("prov-late", &[]).await else { return };
    fixture.driver.volumes().stand_at(&fixture.zone_key(), "b");
    for (node, zone) in [("prov-late-1", "a"), ("prov-late-2", "b"), ("prov-late-3", "c")] {
        fixture.node(node, zone).await;
    }
    fixture.class(|it| it["volumeBindingMode"] = json!("WaitForFirstConsumer")).await;
    let name = fixture.claim(|_| {}).await;
    fixture.start();
    fixture.patch(CLAIMS, picked("prov-late-2")).await;
    fixture.journal.expect(made(&name)).await;
    let asked = fixture.driver.volumes().last_asked().accessibility_requirements;
    assert_eq!(zones(asked), ("a b c".to_owned(), "b c a".to_owned()));
    let volume = fixture.persistent_volume(&name).await.unwrap();
    let zone = json!({ "key": fixture.zone_key(), "operator": "In", "values": ["b"] });
    let terms = json!([{ "matchExpressions": [zone] }]);
    assert_eq!(volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"], terms);
    fixture.stop().await;
}

#[tokio::test]
async fn a_place_that_is_full_is_given_back_to_the_scheduler() {
    let Some(mut fixture) = Fixture::new("prov-full", &[]).await else { return };
    fixture.options.topology.strict = true;
    fixture.driver.volumes().stand_at(&fixture.zone_key(), "a");
    fixture.node("prov-full-1", "a").await;
    fixture.node("prov-full-2", "b").await;
    fixture.driver.answer(Answer::Error(Status::resource_exhausted("full")));
    fixture.class(|it| it["volumeBindingMode"] = json!("WaitForFirstConsumer")).await;
    let name = fixture
        .claim(|it| it["metadata"]["annotations"][SELECTED_NODE] = json!("prov-full-1"))
        .await;
    fixture.start();
    let [create, post] = made(&name);
    let claim = "namespaces/default/persistentvolumeclaims/prov-full";
    let [read, write] = [format!("GET {claim}"), format!("PUT {claim}")];
    fixture.journal.expect([format!("{create} -> ResourceExhausted"), read, write]).await;
    let asked = fixture.driver.volumes().last_asked().accessibility_requirements;
    assert_eq!(zones(asked), ("a".to_owned(), "a".to_owned()));
    let claim = fixture.get(CLAIMS).await.unwrap();
    assert_eq!(claim["metadata"]["annotations"].get(SELECTED_NODE), None);

    fixture.journal.clear();
    fixture.patch(CLAIMS, picked("prov-full-2")).await;
    fixture.journal.expect([create, post]).await;
    let asked = fixture.driver.volumes().last_asked().accessibility_requirements;
    assert_eq!(zones(asked), ("b".to_owned(), "b".to_owned()));
    fixture.stop().await;
}

#[tokio::test]
async fn a_node_that_is_gone_is_given_back_to_the_scheduler() {
    let Some(mut fixture) = Fixture::new("prov-nodeless", &[]).await else { return };
    fixture.driver.volumes().stand_at(&fixture.zone_key(), "a");
    fixture.class(|it| it["volumeBindingMode"] = json!("WaitForFirstConsumer")).await;
    fixture.claim(|it| it["metadata"]["annotations"][SELECTED_NODE] = json!("prov-nowhere")).await;
    fixture.start();
    let claim = "namespaces/default/persistentvolumeclaims/prov-nodeless";
    fixture.journal.expect([format!("GET {claim}"), format!("PUT {claim}")]).await;
    let event = "Warning ProvisioningFailed failed to get selected CSINode prov-nowhere";
    fixture.journal.event(event).await;
    fixture.stop().await;
}

#[tokio::test]
async fn a_provisioner_of_one_node_leaves_the_others_alone() {
    let Some(mut fixture) = Fixture::new("prov-node", &[]).await else { return };
    fixture.options.node = Some("prov-node-1".to_owned());
    fixture.driver.volumes().stand_at(&fixture.zone_key(), "n1");
    fixture.class(|it| it["volumeBindingMode"] = json!("WaitForFirstConsumer")).await;
    for node in ["prov-node-2", "prov-node-1"] {
        let volume = json!({
            "metadata": { "name": node },
            "spec": {
                "capacity": { "storage": "1Gi" },
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete",
                "csi": { "driver": fixture.options.driver, "volumeHandle": node },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [{
                    "key": fixture.zone_key(), "operator": "In", "values": [node.replace("prov-node-", "n")],
                }] }] } },
            },
        });
        fixture.create(VOLUMES, "PersistentVolume", volume).await;
    }
    fixture.start();
    fixture.set_phase("prov-node-2", "Released").await;
    fixture.set_phase("prov-node-1", "Released").await;
    let [delete, object, _] = deleted("prov-node-1");
    fixture.journal.expect([delete, object]).await;

    fixture.journal.clear();
    let elsewhere = |it: &mut serde_json::Value| {
        it["metadata"]["name"] = json!("prov-node-elsewhere");
        it["metadata"]["annotations"][SELECTED_NODE] = json!("prov-node-2");
    };
    fixture.claim(elsewhere).await;
    let name = fixture
        .claim(|it| it["metadata"]["annotations"][SELECTED_NODE] = json!("prov-node-1"))
        .await;
    fixture.journal.expect(made(&name)).await;
    let asked = fixture.driver.volumes().last_asked().accessibility_requirements;
    assert_eq!(zones(asked), ("n1".to_owned(), "n1".to_owned()));
    let volume = fixture.persistent_volume(&name).await.unwrap();
    let identity = "storage.kubernetes.io/csiProvisionerIdentity";
    let identity = volume["spec"]["csi"]["volumeAttributes"][identity].as_str().unwrap();
    assert!(identity.ends_with("-prov-node.csi.test-prov-node-1"), "{identity}");
    fixture.stop().await;
}

#[tokio::test]
async fn topology_keys_of_a_node_wake_only_claims_that_were_refused_for_topology() {
    const CLAIMS_THAT_FAILED: usize = 50;
    let Some(mut fixture) = Fixture::new("prov-storm", &[]).await else { return };
    fixture.options.backoff.first = Duration::from_mins(5);
    fixture.driver.volumes().stand_at(&fixture.zone_key(), "a");
    fixture.class(|_| {}).await;
    fixture.node("prov-storm-0", "a").await;
    // The driver is not registered on this node yet: its CSINode does not name it.
    let node = json!({ "metadata": { "name": "prov-storm-last" }, "spec": { "drivers": [] } });
    fixture.create(NODES, "CSINode", node).await;
    let labels = json!({ fixture.zone_key(): "a" });
    let node = json!({ "metadata": { "name": "prov-storm-last", "labels": labels } });
    fixture.create("/api/v1/nodes", "Node", node).await;
    for number in 0..CLAIMS_THAT_FAILED {
        fixture.driver.answer(Answer::Error(Status::internal("broken")));
        fixture.claim(|it| it["metadata"]["name"] = json!(format!("prov-storm-{number}"))).await;
    }
    fixture.start();
    fixture.journal.wait_for(CLAIMS_THAT_FAILED).await;
    let waiting = fixture
        .claim(|it| it["metadata"]["annotations"][SELECTED_NODE] = json!("prov-storm-last"))
        .await;
    let refused = "Warning ProvisioningFailed error generating accessibility requirements: \
        no topology key found for node prov-storm-last";
    fixture.journal.event(refused).await;
    for number in 1..20 {
        fixture.node(&format!("prov-storm-{number}"), "a").await;
    }
    let driver = json!({
        "name": fixture.options.driver, "nodeID": "last", "topologyKeys": [fixture.zone_key()],
    });
    let drivers = json!({ "spec": { "drivers": [driver] } });
    fixture.patch_at(&format!("{NODES}/prov-storm-last"), drivers).await;
    let [create, post] = made(&waiting);
    fixture.journal.line(&post).await;
    let lines = fixture.journal.lines();
    assert_eq!(lines.len(), CLAIMS_THAT_FAILED + 2, "{lines:#?}");
    assert_eq!(lines[CLAIMS_THAT_FAILED..], [create, post]);
    fixture.stop().await;
}

#[tokio::test]
async fn a_node_that_is_picked_while_the_claim_waits_is_where_its_volume_is_made() {
    let Some(mut fixture) = Fixture::new("prov-waits", &[]).await else { return };
    fixture.options.topology.strict = true;
    fixture.driver.volumes().stand_at(&fixture.zone_key(), "b");
    fixture.node("prov-waits-1", "a").await;
    fixture.node("prov-waits-2", "b").await;
    let secret = json!({ "metadata": { "name": fixture.name }, "stringData": { "key": "hush" } });
    fixture.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    fixture
        .class(|it| {
            it["volumeBindingMode"] = json!("WaitForFirstConsumer");
            it["parameters"] = json!({
                "csi.storage.k8s.io/provisioner-secret-name": "prov-waits",
                "csi.storage.k8s.io/provisioner-secret-namespace": "default",
            });
        })
        .await;
    let barrier_class =
        |it: &mut serde_json::Value| it["metadata"]["name"] = json!("waits-barrier");
    fixture.class(barrier_class).await;
    let pass = CancellationToken::new();
    fixture.journal.hold(Method::GET, "secrets/prov-waits", pass.clone());
    let name = fixture
        .claim(|it| it["metadata"]["annotations"][SELECTED_NODE] = json!("prov-waits-1"))
        .await;
    fixture.start();
    fixture.journal.held().await;
    fixture.patch(CLAIMS, picked("prov-waits-2")).await;
    // A volume for this claim shows that the provisioner has seen the other node.
    let barrier = fixture
        .claim(|it| {
            it["metadata"]["name"] = json!("waits-barrier");
            it["spec"]["storageClassName"] = json!("waits-barrier");
        })
        .await;
    fixture.journal.expect(made(&barrier)).await;
    fixture.journal.clear();
    pass.cancel();
    let read = || "GET namespaces/default/secrets/prov-waits".to_owned();
    let [create, post] = made(&name);
    fixture.journal.expect([read(), read(), create, post]).await;
    let asked = fixture.driver.volumes().last_asked().accessibility_requirements;
    assert_eq!(zones(asked), ("b".to_owned(), "b".to_owned()));
    fixture.stop().await;
}
