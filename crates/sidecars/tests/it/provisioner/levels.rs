//! Capacity objects follow the driver's answers, the nodes, and leftovers of other programs.

use std::time::Duration;

use serde_json::{Value, json};
use tonic::Code;
use wharf_proto::csi::controller_service_capability::rpc;
use wharf_sidecars::provisioner::CapacityOptions;

use super::{
    capacity::{CAPACITIES, options},
    fixture::Fixture,
};
use crate::{
    codes::{each, error},
    journal::DEADLINE,
    stage::NODES,
};

const CREATED: &str = "POST namespaces/default/csistoragecapacities csisc-";

/// A driver on a node in zone `a`, with 3Gi free and a class with WaitForFirstConsumer.
async fn level(name: &'static str) -> Option<Fixture> {
    let mut fixture = Fixture::new(name, &[rpc::Type::GetCapacity]).await?;
    fixture.capacity = Some(CapacityOptions { owner: None, ..options("") });
    fixture.driver.volumes().stand_at(&fixture.zone_key(), "a");
    fixture.driver.volumes().set_capacity(3 << 30);
    fixture.node(name, "a").await;
    fixture.class(|it| it["volumeBindingMode"] = json!("WaitForFirstConsumer")).await;
    Some(fixture)
}

/// An object for a zone that another program created.
async fn object(
    fixture: &Fixture,
    name: &str,
    zone: &str,
    change: impl FnOnce(&mut Value),
) -> String {
    let mut object = json!({
        "metadata": {
            "name": name,
            "labels": {
                "csi.storage.k8s.io/drivername": fixture.options.driver,
                "csi.storage.k8s.io/managed-by": "external-provisioner",
            },
        },
        "storageClassName": fixture.name,
        "nodeTopology": { "matchLabels": { fixture.zone_key(): zone } },
        "capacity": "3Gi",
    });
    change(&mut object);
    fixture.create(CAPACITIES, "CSIStorageCapacity", object).await;
    format!("DELETE namespaces/default/csistoragecapacities/{name}")
}

#[tokio::test]
async fn a_driver_that_does_not_say_what_is_left_is_asked_again_whatever_it_says() {
    let Some(mut fixture) = level("level-retry").await else { return };
    fixture.options.backoff.max = Duration::from_millis(20);
    let codes = each(fixture.name);
    for (code, _) in &codes {
        fixture.driver.volumes().refuse_capacity(error(*code));
    }
    fixture.start();
    fixture.journal.expect([CREATED.to_owned()]).await;
    assert_eq!(fixture.driver.volumes().capacities_asked().len(), codes.len() + 1);
    let [object] = &*fixture.capacities().await else { panic!() };
    assert_eq!(object["capacity"], "3Gi");
    fixture.stop().await;
}

#[tokio::test]
async fn a_poll_does_not_wait_for_the_end_of_a_back_off() {
    let Some(mut fixture) = level("level-poll").await else { return };
    fixture.options.backoff.first = DEADLINE * 2;
    fixture.capacity.as_mut().unwrap().poll = Duration::from_millis(20);
    fixture.driver.volumes().refuse_capacity(error(Code::Unavailable));
    fixture.start();
    fixture.journal.expect([CREATED.to_owned()]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn what_is_there_twice_or_for_nothing_goes() {
    let Some(mut fixture) = level("level-twice").await else { return };
    object(&fixture, "level-twice-1", "a", |_| {}).await;
    let mut gone = [
        object(&fixture, "level-twice-2", "a", |_| {}).await,
        object(&fixture, "level-twice-3", "nowhere", |_| {}).await,
        object(&fixture, "level-twice-4", "a", |it| it["storageClassName"] = json!("no-class"))
            .await,
    ];
    fixture.start();
    let mut lines = fixture.journal.wait_for(gone.len()).await;
    lines.sort();
    gone.sort();
    assert_eq!(lines, gone);
    let [left] = &*fixture.capacities().await else { panic!() };
    assert_eq!(left["metadata"]["name"], "level-twice-1");

    // One that is created later is surplus as well.
    fixture.journal.clear();
    let again = object(&fixture, "level-twice-5", "a", |_| {}).await;
    fixture.journal.expect([again]).await;
    fixture.stop().await;
}

#[tokio::test]
async fn the_size_of_the_largest_volume_is_told_and_kept_right() {
    let Some(mut fixture) = level("level-largest").await else { return };
    fixture.capacity.as_mut().unwrap().poll = Duration::from_millis(20);
    let volumes = fixture.driver.clone();
    let volumes = volumes.volumes();
    volumes.set_largest(Some(1 << 30));
    fixture.start();
    fixture.journal.expect([CREATED.to_owned()]).await;
    let [object] = &*fixture.capacities().await else { panic!() };
    assert_eq!(object["maximumVolumeSize"], "1Gi");
    let path = format!(
        "PATCH namespaces/default/csistoragecapacities/{}",
        object["metadata"]["name"].as_str().unwrap()
    );
    for (bytes, told) in [(Some(2 << 30), json!("2Gi")), (None, Value::Null)] {
        fixture.journal.clear();
        volumes.set_largest(bytes);
        let patch = json!({ "capacity": "3Gi", "maximumVolumeSize": told });
        fixture.journal.expect([format!("{path} {patch}")]).await;
        let [object] = &*fixture.capacities().await else { panic!() };
        assert_eq!(object.get("maximumVolumeSize").unwrap_or(&Value::Null), &told);
    }
    fixture.stop().await;
}

#[tokio::test]
async fn an_object_follows_a_node_that_moves() {
    let Some(mut fixture) = level("level-moved").await else { return };
    fixture.start();
    fixture.journal.expect([CREATED.to_owned()]).await;
    let [before] = &*fixture.capacities().await else { panic!() };
    fixture.journal.clear();
    let labels = json!({ "metadata": { "labels": { fixture.zone_key(): "b" } } });
    fixture.patch("/api/v1/nodes", labels).await;
    let name = before["metadata"]["name"].as_str().unwrap();
    let mut lines = fixture.journal.wait_for(2).await;
    lines.sort();
    let gone = format!("DELETE namespaces/default/csistoragecapacities/{name}");
    assert_eq!(lines, [gone, CREATED.to_owned()]);
    let [after] = &*fixture.capacities().await else { panic!() };
    assert_eq!(after["nodeTopology"]["matchLabels"], json!({ fixture.zone_key(): "b" }));

    // The driver leaves the node, which then has no driver.
    fixture.journal.clear();
    fixture.patch(NODES, json!({ "spec": { "drivers": [] } })).await;
    let name = after["metadata"]["name"].as_str().unwrap();
    let gone = format!("DELETE namespaces/default/csistoragecapacities/{name}");
    fixture.journal.expect([gone]).await;
    fixture.stop().await;
}
