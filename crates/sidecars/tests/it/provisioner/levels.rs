//! What the scheduler is told follows the driver's word, the nodes, and what others leave behind.

use std::time::Duration;

use serde_json::{Value, json};
use tonic::Code;
use wharf_proto::csi::controller_service_capability::rpc;
use wharf_sidecars::provisioner::CapacityOptions;

use super::bench::Bench;
use super::capacity::{CAPACITIES, options};
use crate::codes::{each, error};
use crate::journal::DEADLINE;
use crate::stage::NODES;

const CREATED: &str = "POST namespaces/default/csistoragecapacities csisc-";

/// A driver on a node in zone `a`, with room for 3Gi and a class that waits for consumers.
async fn level(name: &'static str) -> Option<Bench> {
    let mut bench = Bench::new(name, &[rpc::Type::GetCapacity]).await?;
    bench.capacity = Some(CapacityOptions { owner: None, ..options("") });
    bench.driver.volumes().stand_at(&bench.zone_key(), "a");
    bench.driver.volumes().set_capacity(3 << 30);
    bench.node(name, "a").await;
    bench.class(|it| it["volumeBindingMode"] = json!("WaitForFirstConsumer")).await;
    Some(bench)
}

/// An object that someone else has made, for a zone.
async fn object(bench: &Bench, name: &str, zone: &str, change: impl FnOnce(&mut Value)) -> String {
    let mut object = json!({
        "metadata": {
            "name": name,
            "labels": {
                "csi.storage.k8s.io/drivername": bench.options.driver,
                "csi.storage.k8s.io/managed-by": "external-provisioner",
            },
        },
        "storageClassName": bench.name,
        "nodeTopology": { "matchLabels": { bench.zone_key(): zone } },
        "capacity": "3Gi",
    });
    change(&mut object);
    bench.create(CAPACITIES, "CSIStorageCapacity", object).await;
    format!("DELETE namespaces/default/csistoragecapacities/{name}")
}

#[tokio::test]
async fn a_driver_that_does_not_say_what_is_left_is_asked_again_whatever_it_says() {
    let Some(mut bench) = level("level-retry").await else { return };
    bench.options.backoff.max = Duration::from_millis(20);
    let codes = each(bench.name);
    for (code, _) in &codes {
        bench.driver.volumes().refuse_capacity(error(*code));
    }
    bench.start();
    bench.journal.expect([CREATED.to_owned()]).await;
    assert_eq!(bench.driver.volumes().capacities_asked().len(), codes.len() + 1);
    let [object] = &*bench.capacities().await else { panic!() };
    assert_eq!(object["capacity"], "3Gi");
    bench.stop().await;
}

#[tokio::test]
async fn a_poll_does_not_wait_for_the_end_of_a_back_off() {
    let Some(mut bench) = level("level-poll").await else { return };
    bench.options.backoff.first = DEADLINE * 2;
    bench.capacity.as_mut().unwrap().poll = Duration::from_millis(20);
    bench.driver.volumes().refuse_capacity(error(Code::Unavailable));
    bench.start();
    bench.journal.expect([CREATED.to_owned()]).await;
    bench.stop().await;
}

#[tokio::test]
async fn what_is_there_twice_or_for_nothing_goes() {
    let Some(mut bench) = level("level-twice").await else { return };
    object(&bench, "level-twice-1", "a", |_| {}).await;
    let mut gone = [
        object(&bench, "level-twice-2", "a", |_| {}).await,
        object(&bench, "level-twice-3", "nowhere", |_| {}).await,
        object(&bench, "level-twice-4", "a", |it| it["storageClassName"] = json!("no-class")).await,
    ];
    bench.start();
    let mut lines = bench.journal.wait_for(gone.len()).await;
    lines.sort();
    gone.sort();
    assert_eq!(lines, gone);
    let [left] = &*bench.capacities().await else { panic!() };
    assert_eq!(left["metadata"]["name"], "level-twice-1");

    // One that comes later is one too many as well.
    bench.journal.clear();
    let again = object(&bench, "level-twice-5", "a", |_| {}).await;
    bench.journal.expect([again]).await;
    bench.stop().await;
}

#[tokio::test]
async fn the_size_of_the_largest_volume_is_told_and_kept_right() {
    let Some(mut bench) = level("level-largest").await else { return };
    bench.capacity.as_mut().unwrap().poll = Duration::from_millis(20);
    let volumes = bench.driver.clone();
    let volumes = volumes.volumes();
    volumes.set_largest(Some(1 << 30));
    bench.start();
    bench.journal.expect([CREATED.to_owned()]).await;
    let [object] = &*bench.capacities().await else { panic!() };
    assert_eq!(object["maximumVolumeSize"], "1Gi");
    let path = format!(
        "PATCH namespaces/default/csistoragecapacities/{}",
        object["metadata"]["name"].as_str().unwrap()
    );
    for (bytes, told) in [(Some(2 << 30), json!("2Gi")), (None, Value::Null)] {
        bench.journal.clear();
        volumes.set_largest(bytes);
        let patch = json!({ "capacity": "3Gi", "maximumVolumeSize": told });
        bench.journal.expect([format!("{path} {patch}")]).await;
        let [object] = &*bench.capacities().await else { panic!() };
        assert_eq!(object.get("maximumVolumeSize").unwrap_or(&Value::Null), &told);
    }
    bench.stop().await;
}

#[tokio::test]
async fn an_object_follows_a_node_that_moves() {
    let Some(mut bench) = level("level-moved").await else { return };
    bench.start();
    bench.journal.expect([CREATED.to_owned()]).await;
    let [before] = &*bench.capacities().await else { panic!() };
    bench.journal.clear();
    let labels = json!({ "metadata": { "labels": { bench.zone_key(): "b" } } });
    bench.patch("/api/v1/nodes", labels).await;
    let name = before["metadata"]["name"].as_str().unwrap();
    let mut lines = bench.journal.wait_for(2).await;
    lines.sort();
    let gone = format!("DELETE namespaces/default/csistoragecapacities/{name}");
    assert_eq!(lines, [gone, CREATED.to_owned()]);
    let [after] = &*bench.capacities().await else { panic!() };
    assert_eq!(after["nodeTopology"]["matchLabels"], json!({ bench.zone_key(): "b" }));

    // The driver leaves the node, which then has none.
    bench.journal.clear();
    bench.patch(NODES, json!({ "spec": { "drivers": [] } })).await;
    let name = after["metadata"]["name"].as_str().unwrap();
    let gone = format!("DELETE namespaces/default/csistoragecapacities/{name}");
    bench.journal.expect([gone]).await;
    bench.stop().await;
}
