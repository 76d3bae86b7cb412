use std::time::Duration;

use http::Method;
use serde_json::json;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_proto::csi::{Topology, TopologyRequirement};

use super::bench::{Bench, CLAIMS, SELECTED_NODE, deleted, made};
use crate::driver::Answer;
use crate::stage::{NODES, VOLUMES};

/// Zones of a requirement: what is required, and what is preferred.
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
    let Some(mut bench) = Bench::new("prov-late", &[]).await else { return };
    bench.driver.volumes().stand_at(&bench.zone_key(), "b");
    for (node, zone) in [("prov-late-1", "a"), ("prov-late-2", "b"), ("prov-late-3", "c")] {
        bench.node(node, zone).await;
    }
    bench.class(|it| it["volumeBindingMode"] = json!("WaitForFirstConsumer")).await;
    let name = bench.claim(|_| {}).await;
    bench.start();
    bench.patch(CLAIMS, picked("prov-late-2")).await;
    bench.journal.expect(made(&name)).await;
    let asked = bench.driver.volumes().last_asked().accessibility_requirements;
    assert_eq!(zones(asked), ("a b c".to_owned(), "b c a".to_owned()));
    let volume = bench.persistent_volume(&name).await.unwrap();
    let zone = json!({ "key": bench.zone_key(), "operator": "In", "values": ["b"] });
    let terms = json!([{ "matchExpressions": [zone] }]);
    assert_eq!(volume["spec"]["nodeAffinity"]["required"]["nodeSelectorTerms"], terms);
    bench.stop().await;
}

#[tokio::test]
async fn a_place_that_is_full_is_given_back_to_the_scheduler() {
    let Some(mut bench) = Bench::new("prov-full", &[]).await else { return };
    bench.options.topology.strict = true;
    bench.driver.volumes().stand_at(&bench.zone_key(), "a");
    bench.node("prov-full-1", "a").await;
    bench.node("prov-full-2", "b").await;
    bench.driver.answer(Answer::Error(Status::resource_exhausted("full")));
    bench.class(|it| it["volumeBindingMode"] = json!("WaitForFirstConsumer")).await;
    let name =
        bench.claim(|it| it["metadata"]["annotations"][SELECTED_NODE] = json!("prov-full-1")).await;
    bench.start();
    let [create, post] = made(&name);
    let claim = "namespaces/default/persistentvolumeclaims/prov-full";
    let [read, write] = [format!("GET {claim}"), format!("PUT {claim}")];
    bench.journal.expect([format!("{create} -> ResourceExhausted"), read, write]).await;
    let asked = bench.driver.volumes().last_asked().accessibility_requirements;
    assert_eq!(zones(asked), ("a".to_owned(), "a".to_owned()));
    let claim = bench.get(CLAIMS).await.unwrap();
    assert_eq!(claim["metadata"]["annotations"].get(SELECTED_NODE), None);

    bench.journal.clear();
    bench.patch(CLAIMS, picked("prov-full-2")).await;
    bench.journal.expect([create, post]).await;
    let asked = bench.driver.volumes().last_asked().accessibility_requirements;
    assert_eq!(zones(asked), ("b".to_owned(), "b".to_owned()));
    bench.stop().await;
}

#[tokio::test]
async fn a_node_that_is_gone_is_given_back_to_the_scheduler() {
    let Some(mut bench) = Bench::new("prov-nodeless", &[]).await else { return };
    bench.driver.volumes().stand_at(&bench.zone_key(), "a");
    bench.class(|it| it["volumeBindingMode"] = json!("WaitForFirstConsumer")).await;
    bench.claim(|it| it["metadata"]["annotations"][SELECTED_NODE] = json!("prov-nowhere")).await;
    bench.start();
    let claim = "namespaces/default/persistentvolumeclaims/prov-nodeless";
    bench.journal.expect([format!("GET {claim}"), format!("PUT {claim}")]).await;
    let event = "Warning ProvisioningFailed failed to get selected CSINode prov-nowhere";
    bench.journal.event(event).await;
    bench.stop().await;
}

#[tokio::test]
async fn a_provisioner_of_one_node_leaves_the_others_alone() {
    let Some(mut bench) = Bench::new("prov-node", &[]).await else { return };
    bench.options.node = Some("prov-node-1".to_owned());
    bench.driver.volumes().stand_at(&bench.zone_key(), "n1");
    bench.class(|it| it["volumeBindingMode"] = json!("WaitForFirstConsumer")).await;
    for node in ["prov-node-2", "prov-node-1"] {
        let volume = json!({
            "metadata": { "name": node },
            "spec": {
                "capacity": { "storage": "1Gi" },
                "accessModes": ["ReadWriteOnce"],
                "persistentVolumeReclaimPolicy": "Delete",
                "csi": { "driver": bench.options.driver, "volumeHandle": node },
                "nodeAffinity": { "required": { "nodeSelectorTerms": [{ "matchExpressions": [{
                    "key": bench.zone_key(), "operator": "In", "values": [node.replace("prov-node-", "n")],
                }] }] } },
            },
        });
        bench.create(VOLUMES, "PersistentVolume", volume).await;
    }
    bench.start();
    bench.set_phase("prov-node-2", "Released").await;
    bench.set_phase("prov-node-1", "Released").await;
    let [delete, object, _] = deleted("prov-node-1");
    bench.journal.expect([delete, object]).await;

    bench.journal.clear();
    let elsewhere = |it: &mut serde_json::Value| {
        it["metadata"]["name"] = json!("prov-node-elsewhere");
        it["metadata"]["annotations"][SELECTED_NODE] = json!("prov-node-2");
    };
    bench.claim(elsewhere).await;
    let name =
        bench.claim(|it| it["metadata"]["annotations"][SELECTED_NODE] = json!("prov-node-1")).await;
    bench.journal.expect(made(&name)).await;
    let asked = bench.driver.volumes().last_asked().accessibility_requirements;
    assert_eq!(zones(asked), ("n1".to_owned(), "n1".to_owned()));
    let volume = bench.persistent_volume(&name).await.unwrap();
    let identity = "storage.kubernetes.io/csiProvisionerIdentity";
    let identity = volume["spec"]["csi"]["volumeAttributes"][identity].as_str().unwrap();
    assert!(identity.ends_with("-prov-node.csi.test-prov-node-1"), "{identity}");
    bench.stop().await;
}

#[tokio::test]
async fn topology_keys_of_a_node_wake_only_claims_that_were_refused_for_topology() {
    const CLAIMS_THAT_FAILED: usize = 50;
    let Some(mut bench) = Bench::new("prov-storm", &[]).await else { return };
    bench.options.backoff.first = Duration::from_mins(5);
    bench.driver.volumes().stand_at(&bench.zone_key(), "a");
    bench.class(|_| {}).await;
    bench.node("prov-storm-0", "a").await;
    // The driver is not on this node yet: its CSINode does not name it.
    let node = json!({ "metadata": { "name": "prov-storm-last" }, "spec": { "drivers": [] } });
    bench.create(NODES, "CSINode", node).await;
    let labels = json!({ bench.zone_key(): "a" });
    let node = json!({ "metadata": { "name": "prov-storm-last", "labels": labels } });
    bench.create("/api/v1/nodes", "Node", node).await;
    for number in 0..CLAIMS_THAT_FAILED {
        bench.driver.answer(Answer::Error(Status::internal("broken")));
        bench.claim(|it| it["metadata"]["name"] = json!(format!("prov-storm-{number}"))).await;
    }
    bench.start();
    bench.journal.wait_for(CLAIMS_THAT_FAILED).await;
    let waiting = bench
        .claim(|it| it["metadata"]["annotations"][SELECTED_NODE] = json!("prov-storm-last"))
        .await;
    let refused = "Warning ProvisioningFailed error generating accessibility requirements: \
        no topology key found for node prov-storm-last";
    bench.journal.event(refused).await;
    for number in 1..20 {
        bench.node(&format!("prov-storm-{number}"), "a").await;
    }
    let driver = json!({
        "name": bench.options.driver, "nodeID": "last", "topologyKeys": [bench.zone_key()],
    });
    let drivers = json!({ "spec": { "drivers": [driver] } });
    bench.patch_at(&format!("{NODES}/prov-storm-last"), drivers).await;
    let [create, post] = made(&waiting);
    bench.journal.line(&post).await;
    let lines = bench.journal.lines();
    assert_eq!(lines.len(), CLAIMS_THAT_FAILED + 2, "{lines:#?}");
    assert_eq!(lines[CLAIMS_THAT_FAILED..], [create, post]);
    bench.stop().await;
}

#[tokio::test]
async fn a_node_that_is_picked_while_the_claim_waits_is_where_its_volume_is_made() {
    let Some(mut bench) = Bench::new("prov-waits", &[]).await else { return };
    bench.options.topology.strict = true;
    bench.driver.volumes().stand_at(&bench.zone_key(), "b");
    bench.node("prov-waits-1", "a").await;
    bench.node("prov-waits-2", "b").await;
    let secret = json!({ "metadata": { "name": bench.name }, "stringData": { "key": "hush" } });
    bench.create("/api/v1/namespaces/default/secrets", "Secret", secret).await;
    bench
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
    bench.class(barrier_class).await;
    let pass = CancellationToken::new();
    bench.journal.hold(Method::GET, "secrets/prov-waits", pass.clone());
    let name = bench
        .claim(|it| it["metadata"]["annotations"][SELECTED_NODE] = json!("prov-waits-1"))
        .await;
    bench.start();
    bench.journal.held().await;
    bench.patch(CLAIMS, picked("prov-waits-2")).await;
    // A volume for this claim shows that the provisioner knows of the other node.
    let barrier = bench
        .claim(|it| {
            it["metadata"]["name"] = json!("waits-barrier");
            it["spec"]["storageClassName"] = json!("waits-barrier");
        })
        .await;
    bench.journal.expect(made(&barrier)).await;
    bench.journal.clear();
    pass.cancel();
    let read = || "GET namespaces/default/secrets/prov-waits".to_owned();
    let [create, post] = made(&name);
    bench.journal.expect([read(), read(), create, post]).await;
    let asked = bench.driver.volumes().last_asked().accessibility_requirements;
    assert_eq!(zones(asked), ("b".to_owned(), "b".to_owned()));
    bench.stop().await;
}
