//! csi-resizer's name and flags, its driver and its endpoint.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;
use wharf_proto::csi::{
    ControllerGetCapabilitiesResponse, ControllerServiceCapability, GetPluginCapabilitiesResponse,
    NodeGetCapabilitiesResponse, NodeServiceCapability, PluginCapability,
    controller_service_capability as controller, node_service_capability as node,
    plugin_capability::{self, Service, service},
};
use wharf_testkit::{
    cluster::Cluster,
    csi_driver::{DriverScript, ScriptedDriver},
    process::{Process, wait_for},
};

use crate::support::{Bench, PATIENCE, free_port, get, run_as};

/// A driver with a controller service, whose volumes grow on the node alone if at all.
fn script(name: &str, grows: bool) -> DriverScript {
    let mut script = DriverScript::new(name);
    let service = Service { r#type: service::Type::ControllerService.into() };
    let capability = PluginCapability { r#type: Some(plugin_capability::Type::Service(service)) };
    script.plugin_capabilities = GetPluginCapabilitiesResponse { capabilities: vec![capability] };
    let publishes =
        controller::Rpc { r#type: controller::rpc::Type::PublishUnpublishVolume.into() };
    let capability = ControllerServiceCapability { r#type: Some(controller::Type::Rpc(publishes)) };
    script.controller_capabilities =
        ControllerGetCapabilitiesResponse { capabilities: vec![capability] };
    if grows {
        let expands = node::Rpc { r#type: node::rpc::Type::ExpandVolume.into() };
        let capability = NodeServiceCapability { r#type: Some(node::Type::Rpc(expands)) };
        script.node_capabilities = NodeGetCapabilitiesResponse { capabilities: vec![capability] };
    }
    script
}

fn start(bench: &Bench, cluster: &Cluster, more: &[&str]) -> Process {
    let mut command = Command::new(bench.called("csi-resizer"));
    command.args(more).arg("--kubeconfig").arg(cluster.kubeconfig());
    command.arg("--csi-address").arg(bench.path("csi.sock"));
    Process::start("csi-resizer", &command, bench.folder.path()).unwrap()
}

#[test]
fn mistakes_are_named() {
    for (args, wanted) in [
        (&["--workers=0"][..], "--workers must be greater than 0"),
        (&["--timeout=0s"], "--timeout must be longer than 0s"),
        (&["--worker-threads=5"], "flag provided but not defined: -worker-threads"),
        (&["--master=10.0.0.1"], "--master: \"10.0.0.1\" is not the URL of an API server"),
        (&["--node-deployment"], "NODE_NAME"),
    ] {
        let (output, said) = run_as("csi-resizer", args, &[]);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(wanted), "{args:?}: {said}");
    }
}

#[tokio::test]
async fn a_driver_that_neither_grows_nor_modifies_volumes_ends_it() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let (bench, name) = (Bench::new(), "unable.csi.example.com");
    let _driver = ScriptedDriver::serve(&bench.path("csi.sock"), script(name, false));
    let mut process = start(&bench, cluster, &[]);
    let ended = process.wait(PATIENCE).await?;
    assert_eq!(ended.code(), Some(1));
    let said = process.tail();
    assert!(
        said.contains("CSI driver unable.csi.example.com supports neither resize nor modify"),
        "{said}"
    );
    Ok(())
}

#[tokio::test]
async fn it_leads_serves_and_grows_a_claim() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let (bench, driver) = (Bench::new(), "grows.csi.example.com");
    let _driver = ScriptedDriver::serve(&bench.path("csi.sock"), script(driver, true));
    let address = format!("127.0.0.1:{}", free_port());
    let flags = ["-leader-election", "--leader-election-namespace=kube-system", "--http-endpoint"];
    let mut process = start(&bench, cluster, &[&flags[..], &[&address]].concat());
    let leads = "became leader, starting";
    process.line(PATIENCE, leads, |line| line.contains(leads).then_some(())).await?;
    let name = "external-resizer-grows-csi-example-com";
    let lease = cluster.get(&["lease", name, "--namespace", "kube-system"]).await?;
    assert!(lease.is_some(), "no Lease {name}");

    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": { "name": "grows", "namespace": "default" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "", "volumeName": "grows",
            "resources": { "requests": { "storage": "2Gi" } },
        },
    });
    cluster.apply(&claim).await?;
    let get_claim = || cluster.get(&["pvc", "grows", "--namespace", "default"]);
    let uid = get_claim().await?.context("no claim")?["metadata"]["uid"].clone();
    let volume = json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": { "name": "grows" },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "capacity": { "storage": "1Gi" },
            "claimRef": { "namespace": "default", "name": "grows", "uid": uid },
            "csi": { "driver": driver, "volumeHandle": "grows" },
        },
    });
    cluster.apply(&volume).await?;
    let status = json!({ "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } } });
    let patch = ["patch", "pvc", "grows", "--namespace=default", "--subresource=status"];
    let body = ["--type=merge", "--patch", &status.to_string()];
    assert!(cluster.kubectl(&[&patch[..], &body].concat()).await?.status.success());
    wait_for(PATIENCE, "the claim to wait for its node", || async {
        let status = get_claim().await.ok()??["status"].clone();
        (status["allocatedResourceStatuses"]["storage"] == "NodeResizePending").then_some(())
    })
    .await?;
    let (_, metrics) = get(&format!("http://{address}/metrics"));
    let line = format!("workqueue_work_duration_seconds_count{{name=\"{driver}-pvc\"}}");
    assert!(metrics.contains(&line), "no {line} in\n{metrics}");
    assert!(process.stop(PATIENCE).await?.success());
    Ok(())
}
