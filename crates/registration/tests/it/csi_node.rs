//! The CSINode and Node objects in a real Kubernetes API, of drivers that register, change and
//! leave.

use std::time::Duration;

use anyhow::Result;
use k8s_openapi::api::{
    core::v1::Event,
    storage::v1::{CSIDriver, CSINode},
};
use kube::{
    Api,
    api::{ListParams, PostParams},
};
use serde_json::json;
use wharf_registration::{
    csi::{AllocatableRefresh, node::RecordOptions},
    manager::{Handlers, ManagerOptions, PluginManager},
};
use wharf_testkit::{
    cluster::Cluster,
    plugin::{PluginScript, ScriptedPlugin},
};

use crate::csi_support::{LONG_GRACE, TestNode, create_node, eventually, node_info};

const GRACE: Duration = Duration::from_millis(500);
const ZONE: &str = "topology.a.example.com/zone";
const RACK: &str = "topology.a.example.com/rack";

#[tokio::test]
async fn a_driver_is_known_while_its_socket_is_there_and_for_the_grace() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let node = TestNode::start(cluster, "whole-life", GRACE).await;
    let driver = node.driver("a.example.com", 1, |script| {
        script.node = node_info("id-a", 7, &[(ZONE, "zone-1"), (RACK, "rack-1")]);
    });
    let registry = node.path("registry");
    let handlers = Handlers::new().with("CSIPlugin", node.handler.clone());
    let manager = PluginManager::start(ManagerOptions::new(&registry), handlers);
    let mut synced = manager.synced();
    synced.wait_for(|synced| *synced).await?;
    let mut script = PluginScript::csi("a.example.com");
    script.info.endpoint = driver.plugin.endpoint.clone();
    let plugin = ScriptedPlugin::serve(&registry.join("a.example.com-reg.sock"), script);
    plugin.wait_for_verdict(true).await;

    let object = node.csi_node().await.expect("a CSINode");
    let owner = &object.metadata.owner_references.as_ref().expect("an owner")[0];
    assert_eq!((owner.kind.as_str(), owner.name.as_str()), ("Node", "whole-life"));
    assert_eq!(Some(&owner.uid), node.node().await.metadata.uid.as_ref());
    let entry = &object.spec.drivers[0];
    assert_eq!((entry.name.as_str(), entry.node_id.as_str()), ("a.example.com", "id-a"));
    assert_eq!(entry.topology_keys.as_deref(), Some(&[RACK.to_owned(), ZONE.to_owned()][..]));
    assert_eq!(entry.allocatable.as_ref().and_then(|it| it.count), Some(7));
    assert_eq!(node.ids().await, Some(json!({ "a.example.com": "id-a" })));
    let labels = node.labels().await;
    assert_eq!(labels.get(ZONE).map(String::as_str), Some("zone-1"));
    assert_eq!(labels.get(RACK).map(String::as_str), Some("rack-1"));

    plugin.stop().await;
    node.wait_listed(&[]).await;
    eventually("the Node to forget the driver", || async { node.ids().await.is_none() }).await;
    let labels = node.labels().await;
    assert!(!labels.contains_key(ZONE) && !labels.contains_key(RACK), "{labels:?}");
    let csi_node = node.csi_node().await.expect("the object stays");
    assert_eq!(csi_node.metadata.uid, object.metadata.uid);
    manager.stop().await;
    node.record.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_name_leaves_with_its_last_instance() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let node = TestNode::start(cluster, "two-instances", GRACE).await;
    let old = node.driver("a.example.com", 1, |script| script.node = node_info("old", 1, &[]));
    let new = node.driver("a.example.com", 2, |script| script.node = node_info("new", 2, &[]));
    node.register(&old).await?;
    node.register(&new).await?;
    assert_eq!(node.entries().await[0].node_id, "new", "the newest instance is shown");
    node.deregister(&new).await;
    eventually("the older instance to be shown again", || async {
        node.entries().await.first().is_some_and(|entry| entry.node_id == "old")
    })
    .await;
    node.deregister(&old).await;
    node.wait_listed(&[]).await;
    Ok(())
}

#[tokio::test]
async fn an_older_instance_that_reconnects_does_not_hide_the_newer_one() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let node = TestNode::start(cluster, "reconnects", LONG_GRACE).await;
    let old = node.driver("a.example.com", 1, |script| script.node = node_info("old", 1, &[]));
    let new = node.driver("a.example.com", 2, |script| script.node = node_info("new", 2, &[]));
    node.register(&old).await?;
    node.register(&new).await?;
    old.driver.kill().await;
    let returned = node.driver("a.example.com", 1, |script| {
        script.node = node_info("older", 1, &[]);
    });
    returned.driver.wait_for_calls("NodeGetInfo", 1).await;
    // Another order after the refresh: once it is written, the refresh is written, too.
    eventually("the refresh to be known", || async {
        node.handler.drivers().view().iter().any(|line| line.node_id == "older")
    })
    .await;
    let other = node.driver("b.example.com", 1, |_| {});
    node.register(&other).await?;
    assert_eq!(node.entries().await[0].node_id, "new");
    Ok(())
}

#[tokio::test]
async fn a_driver_that_returns_as_another_changes_immutable_fields() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let node = TestNode::start(cluster, "immutable", LONG_GRACE).await;
    let other = node.driver("b.example.com", 1, |_| {});
    node.register(&other).await?;
    let driver = node.driver("a.example.com", 1, |script| {
        script.node = node_info("id-1", 1, &[(ZONE, "zone-1")]);
    });
    node.register(&driver).await?;
    node.deregister(&driver).await;
    driver.driver.change(|script| {
        script.node = node_info("id-2", 2, &[(RACK, "rack-2")]);
    });
    node.register(&driver).await?;

    let entries = node.entries().await;
    let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["b.example.com", "a.example.com"]);
    assert_eq!(entries[1].node_id, "id-2");
    assert_eq!(entries[1].topology_keys.as_deref(), Some(&[RACK.to_owned()][..]));
    let labels = node.labels().await;
    assert_eq!(labels.get(RACK).map(String::as_str), Some("rack-2"));
    assert!(!labels.contains_key(ZONE), "a label of ours leaves with the key: {labels:?}");
    Ok(())
}

#[tokio::test]
async fn a_driver_that_restarts_in_place_is_asked_again() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let node = TestNode::start(cluster, "restarts", LONG_GRACE).await;
    let driver = node.driver("a.example.com", 1, |script| script.node = node_info("id", 1, &[]));
    node.register(&driver).await?;
    driver.driver.kill().await;
    let _returned = node.driver("a.example.com", 1, |script| script.node = node_info("id", 9, &[]));
    eventually("the new limit", || async {
        let entries = node.entries().await;
        entries[0].allocatable.as_ref().and_then(|it| it.count) == Some(9)
    })
    .await;
    Ok(())
}

#[tokio::test]
async fn the_csinode_of_a_former_node_is_replaced() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let client = wharf_cluster::connect(Some(cluster.kubeconfig())).await?;
    let owner = json!({ "apiVersion": "v1", "kind": "Node", "name": "reborn", "uid": "former" });
    let former: CSINode = serde_json::from_value(json!({
        "metadata": { "name": "reborn", "ownerReferences": [owner] },
        "spec": { "drivers": [{ "name": "old.example.com", "nodeID": "old" }] },
    }))?;
    let former = Api::all(client).create(&PostParams::default(), &former).await?;

    let node = TestNode::start(cluster, "reborn", LONG_GRACE).await;
    let driver = node.driver("a.example.com", 1, |_| {});
    node.register(&driver).await?;
    let object = node.csi_node().await.expect("a CSINode");
    assert_ne!(object.metadata.uid, former.metadata.uid);
    assert_eq!(node.listed().await, ["a.example.com"]);
    let owners = object.metadata.owner_references.unwrap_or_default();
    assert_eq!(Some(&owners[0].uid), node.node().await.metadata.uid.as_ref());
    Ok(())
}

#[tokio::test]
async fn a_topology_collision_is_refused_and_said_once() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let node = TestNode::start(cluster, "collision", LONG_GRACE).await;
    node.patch_node(&json!({ "metadata": { "labels": { ZONE: "someones" } } })).await;
    let driver = node.driver("a.example.com", 1, |script| {
        script.node = node_info("id", 1, &[(ZONE, "drivers")]);
    });
    let text = format!(
        "error updating Node object with CSI driver node info: detected topology value collision: \
         driver reported {ZONE:?}:\"drivers\" but existing label is {ZONE:?}:\"someones\""
    );
    for attempt in 0..3 {
        assert_eq!(node.register(&driver).await.unwrap_err().0, text);
        let between = node.driver(&format!("other{attempt}.example.com"), 1, |_| {});
        node.register(&between).await?;
    }
    assert!(!node.listed().await.contains(&"a.example.com".to_owned()));
    assert!(node.ids().await.is_some_and(|ids| ids.get("a.example.com").is_none()));
    let events: Api<Event> = Api::namespaced(node.client.clone(), "default");
    let about = ListParams::default().fields("involvedObject.name=collision");
    let events = events.list(&about).await?.items;
    let said: Vec<_> =
        events.iter().map(|it| (it.type_.as_deref(), it.reason.as_deref())).collect();
    assert_eq!(said, [(Some("Warning"), Some("CSITopologyCollision"))]);
    let message = events[0].message.as_deref().unwrap_or_default();
    assert!(message.contains("a.example.com") && message.contains(ZONE), "{message}");
    assert_eq!(events[0].involved_object.kind.as_deref(), Some("Node"));

    node.patch_node(&json!({ "metadata": { "labels": { ZONE: null } } })).await;
    node.register(&driver).await?;
    assert!(node.listed().await.contains(&"a.example.com".to_owned()));
    Ok(())
}

#[tokio::test]
async fn the_rights_of_a_node_are_enough() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let admin = wharf_cluster::connect(Some(cluster.kubeconfig())).await?;
    create_node(&admin, cluster.node()).await;
    let own = wharf_cluster::connect(Some(cluster.node_kubeconfig())).await?;
    let node = TestNode::on(own, cluster.node(), GRACE);
    let forbidden = node.driver("forbidden.example.com", 1, |script| {
        script.node = node_info("id", 1, &[("node-restriction.kubernetes.io/zone", "here")]);
    });
    let allowed = node.driver("allowed.example.com", 1, |script| {
        script.node = node_info("id", 1, &[(ZONE, "here")]);
    });
    node.register(&allowed).await?;
    let refusal = node.register(&forbidden).await.unwrap_err().0;
    assert!(refusal.contains("forbidden for this account"), "{refusal}");
    assert_eq!(node.listed().await, ["allowed.example.com"]);
    assert_eq!(node.labels().await.get(ZONE).map(String::as_str), Some("here"));
    node.deregister(&allowed).await;
    node.wait_listed(&[]).await;
    assert!(!node.labels().await.contains_key(ZONE));
    Ok(())
}

#[tokio::test]
async fn a_driver_that_the_api_does_not_take_stands_in_nobodys_way() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let node = TestNode::start(cluster, "unacceptable", GRACE).await;
    let label = node.driver("label.example.com", 1, |script| {
        script.node = node_info("id", 1, &[("no label key!", "value")]);
    });
    let long = node.driver("long.example.com", 1, |script| {
        script.node = node_info(&"x".repeat(257), 1, &[]);
    });
    let good = node.driver("good.example.com", 1, |_| {});
    let (label, long, good) =
        tokio::join!(node.register(&label), node.register(&long), node.register(&good));
    let refusal = label.unwrap_err().0;
    assert!(refusal.contains("no label key!"), "{refusal}");
    let refusal = long.unwrap_err().0;
    assert!(refusal.contains("must be 256 characters or less"), "{refusal}");
    good?;
    node.wait_listed(&["good.example.com"]).await;
    eventually("the Node to be right", || async {
        node.ids().await == Some(json!({ "good.example.com": "node-1" }))
    })
    .await;
    Ok(())
}

#[tokio::test]
async fn the_limit_is_asked_for_as_often_as_the_csidriver_says() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let node = TestNode::start(cluster, "allocatable", LONG_GRACE).await;
    let object: CSIDriver = serde_json::from_value(json!({
        "metadata": { "name": "refreshed.example.com" },
        "spec": { "nodeAllocatableUpdatePeriodSeconds": 10 },
    }))?;
    Api::all(node.client.clone()).create(&PostParams::default(), &object).await?;
    let record = node.record.clone();
    let refresh = AllocatableRefresh::start(node.client.clone(), &node.handler, record);
    let driver = node.driver("refreshed.example.com", 1, |script| {
        script.node = node_info("id", 3, &[]);
    });
    node.register(&driver).await?;
    driver.driver.change(|script| script.node = node_info("id", 5, &[]));
    eventually("the new limit", || async {
        let entries = node.entries().await;
        entries[0].allocatable.as_ref().and_then(|it| it.count) == Some(5)
    })
    .await;
    assert_eq!(driver.driver.calls("NodeGetInfo"), 2);
    refresh.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_new_manager_keeps_what_is_valid_and_forgets_the_rest() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let node = TestNode::start(cluster, "restart", GRACE).await;
    let zone = |script: &mut wharf_testkit::csi_driver::DriverScript| {
        script.node = node_info("id", 3, &[(ZONE, "zone-1")]);
    };
    let stays = node.driver("stays.example.com", 1, zone);
    let goes = node.driver("goes.example.com", 1, |_| {});
    node.register(&goes).await?;
    node.register(&stays).await?;
    node.record.stop().await;
    let versions = async || {
        let csi_node = node.csi_node().await.expect("a CSINode");
        (node.node().await.metadata.resource_version, csi_node.metadata.resource_version)
    };
    let before = versions().await;

    let next = TestNode::on(node.client.clone(), "restart", RecordOptions::default().grace);
    let returned = next.driver("stays.example.com", 1, zone);
    next.register(&returned).await?;
    assert_eq!(versions().await, before, "nothing differs, so nothing is written");
    next.record.stop().await;

    let third = TestNode::on(node.client.clone(), "restart", GRACE);
    let returned = third.driver("stays.example.com", 1, zone);
    third.register(&returned).await?;
    third.wait_listed(&["stays.example.com"]).await;
    assert_eq!(third.ids().await, Some(json!({ "stays.example.com": "id" })));
    assert_eq!(third.labels().await.get(ZONE).map(String::as_str), Some("zone-1"));
    Ok(())
}

#[tokio::test]
async fn twenty_drivers_register_beside_a_writer_that_never_rests() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let node = TestNode::start(cluster, "contended", LONG_GRACE).await;
    let compete = async {
        let object: Api<CSINode> = Api::all(node.client.clone());
        for round in 0_u32.. {
            let mark = json!({ "metadata": { "annotations": { "round": round.to_string() } } });
            node.patch_node(&mark).await;
            let patch = kube::api::Patch::Merge(&mark);
            // The object does not exist before our first write.
            let _ = object.patch("contended", &kube::api::PatchParams::default(), &patch).await;
        }
    };
    let drivers: Vec<_> = (0..20)
        .map(|number| {
            let key = format!("zone.example.com/{number}");
            node.driver(&format!("d{number:02}.example.com"), 1, |script| {
                script.node = node_info("id", 1, &[(&key, "here")]);
            })
        })
        .collect();
    let register = futures_util::future::join_all(drivers.iter().map(|it| node.register(it)));
    let outcomes = tokio::select! {
        () = compete => unreachable!("it never rests"),
        outcomes = register => outcomes,
    };
    for outcome in outcomes {
        outcome?;
    }
    assert_eq!(node.listed().await.len(), 20);
    let ids = node.ids().await.unwrap_or_default();
    assert_eq!(ids.as_object().map_or(0, serde_json::Map::len), 20);
    let annotations = node.node().await.metadata.annotations.unwrap_or_default();
    assert!(annotations.contains_key("round"), "the other writer's work is still there");
    Ok(())
}
