//! CSI drivers with a real Kubernetes API: the time of a registration beyond that of the API.

use std::{sync::Arc, time::Instant};

use anyhow::{Context, Result};
use http::{Method, Request};
use kube::Client;
use serde_json::{Value, json};
use wharf_proto::pluginregistration::CSI_PLUGIN;
use wharf_registration::{
    csi::{
        CsiHandler, CsiOptions,
        node::{ApiObjects, NodeRecord, RecordOptions},
    },
    manager::{Handlers, ManagerOptions, PluginManager},
};
use wharf_testkit::cluster::Cluster;

use super::{
    announcer::{Announcer, Registrations},
    binary::Binary,
};
use crate::{report::Report, sample::Sample};

const NODE: &str = "bench-node";
const LIMIT: f64 = 50.0;
const BEYOND: &str = "listen() to Notify(true), beyond the API's own time";

/// Registers `count` drivers, each after the same reads and writes by hand. `None` without a
/// kube-apiserver.
pub(super) async fn measure(
    binary: &Binary,
    count: usize,
    report: &mut Report,
) -> Result<Option<Registrations>> {
    report.section(&format!("CSI handler with a real kube-apiserver, {count} drivers, p50"));
    let Some(cluster) = Cluster::builder().start().await? else {
        report.not_measured(BEYOND, "no kube-apiserver");
        return Ok(None);
    };
    cluster.create_node(NODE).await?;
    let client = wharf_cluster::connect(Some(cluster.kubeconfig())).await?;
    let folder = tempfile::tempdir()?;
    let driver = binary.driver().await?;

    let objects = ApiObjects::new(client.clone(), NODE);
    let record = NodeRecord::start(Arc::new(objects), RecordOptions::default());
    let handler = Arc::new(CsiHandler::new(record.clone(), CsiOptions::default()));
    let handlers = Handlers::new().with(CSI_PLUGIN, handler);
    let manager = PluginManager::start(ManagerOptions::new(folder.path()), handlers);

    let mut drivers = Announcer::new(folder.path(), &driver.socket);
    // The first driver creates the CSINode object and the connections.
    let mut present = vec![drivers.come(&mut Sample::default()).await?];
    let mut by_hand = Sample::default();
    let mut ours = Registrations::default();
    for turn in 0..count {
        let started = Instant::now();
        write_by_hand(&client, turn).await?;
        by_hand.add(started.elapsed());
        let mut driver = drivers.come(&mut ours.comes).await?;
        drivers.come_again(&mut driver, &mut ours.comes_again).await?;
        present.push(driver);
    }
    manager.stop().await;
    record.stop().await;
    cluster.stop().await?;

    report.show("the same reads and writes by hand", by_hand.p50(), "ms");
    report.show("listen() to Notify(true)", ours.comes.p50(), "ms");
    report.at_most(BEYOND, ours.comes.p50() - by_hand.p50(), LIMIT, "ms");
    report.show("unlink and listen() to Notify(true)", ours.comes_again.p50(), "ms");
    Ok(Some(ours))
}

/// Reads Node and CSINode and changes each, like a registration.
async fn write_by_hand(client: &Client, turn: usize) -> Result<()> {
    const MERGE: &str = "application/strategic-merge-patch+json";
    const JSON: &str = "application/json";
    let node = format!("/api/v1/nodes/{NODE}");
    let csi_node = format!("/apis/storage.k8s.io/v1/csinodes/{NODE}");
    let turn = json!({ "bench.wharf.dev/turn": turn.to_string() });

    let read = call(client, Method::GET, &node, JSON, &Value::Null).await?;
    let version = &read["metadata"]["resourceVersion"];
    let patch = json!({ "metadata": { "resourceVersion": version, "annotations": turn } });
    call(client, Method::PATCH, &format!("{node}/status"), MERGE, &patch).await?;
    let mut object = call(client, Method::GET, &csi_node, JSON, &Value::Null).await?;
    object["metadata"]["annotations"] = turn;
    call(client, Method::PUT, &csi_node, JSON, &object).await?;
    Ok(())
}

async fn call(
    client: &Client,
    method: Method,
    path: &str,
    content: &str,
    body: &Value,
) -> Result<Value> {
    let bytes = if body.is_null() { Vec::new() } else { serde_json::to_vec(body)? };
    let request = Request::builder().method(method).uri(path).header("content-type", content);
    client.request(request.body(bytes)?).await.with_context(|| path.to_owned())
}
