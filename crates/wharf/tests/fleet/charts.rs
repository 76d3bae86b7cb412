//! Controllers started with the arguments of charts, each until it leads and knows all objects that
//! it needs.
//!
//! Of the arguments only the socket and the address of the metrics are others than the chart's.

use std::process::Command;

use serde_json::{Value, json};
use tokio::{sync::OnceCell, task::JoinSet};
use wharf_proto::csi::{
    ControllerServiceCapability, PluginCapability, Topology,
    controller_service_capability::{self, Rpc, rpc},
    plugin_capability::{self, Service, service},
};
use wharf_testkit::{
    cluster::Cluster,
    csi_driver::{DriverScript, ScriptedDriver},
    deploy::{self, Subject},
};

use crate::{
    chart_lines::{Line, lines},
    program::{Kind, Make, Program},
    readiness::Shown,
    sidecar::{Sidecar, link},
    site::Site,
};

/// The namespaces that the charts name.
const NAMESPACES: [&str; 3] = ["storage", "longhorn-system", "rook-ceph"];

/// A controller of a chart, with the driver beside it.
struct Started {
    what: String,
    is_elected: bool,
    shown: Shown,
    sidecar: Sidecar,
    _driver: ScriptedDriver,
}

impl Started {
    fn new(site: &Site, number: usize, kind: Kind, line: &Line) -> Self {
        let order = site.order(Program::One(kind, Make::Ours), None);
        let name = format!("chart-{number}");
        let driver =
            ScriptedDriver::serve(&order.folder.join(format!("{name}.sock")), script(&name));
        let shown = Shown::new();
        let mut command = Command::new(link(order.folder, line.program));
        for variable in ["NODE_NAME", "NAMESPACE", "POD_NAME", "POD_NAMESPACE"] {
            command.env_remove(variable);
        }
        command.envs(line.variables.iter().copied());
        command.args(line.args.iter().map(|arg| here(arg, &driver)));
        command.arg("--http-endpoint").arg(&shown.0);
        command.arg("--kubeconfig").arg(order.kubeconfig(&name));
        let what = format!("{}: {} {:?}", line.chart, line.program, line.args);
        let sidecar = Sidecar::start(name, command, order.folder);
        Self { what, is_elected: is_elected(&line.args), shown, sidecar, _driver: driver }
    }

    /// Waits until it works, and ends it.
    async fn works(mut self) {
        let Self { what, is_elected, shown, sidecar, .. } = &mut self;
        let works = || {
            let ready = shown.get("/readyz").0 == "200";
            let metrics = shown.get("/metrics").1;
            let all = |prefix: &str| {
                let mut found = metrics.lines().filter(|line| line.starts_with(prefix)).peekable();
                found.peek().is_some() && found.all(|line| line.ends_with(" 1"))
            };
            let leads = !*is_elected || all("leader_election_master_status{");
            ready && leads && all("wharf_sidecars_cache_synced{")
        };
        sidecar.until(what, works).await;
        sidecar.stop().await;
        let log = sidecar.log();
        let errors: Vec<&str> = log.lines().filter(|line| line.starts_with(['E', 'F'])).collect();
        assert!(errors.is_empty(), "{what}: {errors:#?}");
    }
}

#[tokio::test]
async fn controllers_work_with_the_arguments_of_charts() {
    static OWN: OnceCell<Option<Cluster>> = OnceCell::const_new();
    let Some(site) = Site::on(&OWN, "charts").await else { return };
    prepare(&site).await;
    let lines: Vec<(usize, Kind, Line)> = lines()
        .into_iter()
        .enumerate()
        .filter_map(|(number, line)| {
            let kind = Kind::ALL.into_iter().find(|kind| kind.program() == line.program)?;
            Some((number, kind, line))
        })
        .collect();
    assert!(lines.len() > 70, "{} lines", lines.len());
    for chart in lines.chunk_by(|one, next| one.2.chart == next.2.chart) {
        let mut started = JoinSet::new();
        for (number, kind, line) in chart {
            started.spawn(Started::new(&site, *number, *kind, line).works());
        }
        started.join_all().await;
    }
}

/// The namespaces, with roles there, and the pods that the charts' controllers say they are in.
async fn prepare(site: &Site) {
    let mut roles = Vec::new();
    for namespace in NAMESPACES {
        let object = json!({ "metadata": { "name": namespace } });
        site.api.create("/api/v1/namespaces", "Namespace", object).await;
    }
    for namespace in ["kube-system"].iter().chain(&NAMESPACES) {
        for kind in Kind::ALL {
            let user = Program::One(kind, Make::Ours).user();
            roles.extend(deploy::roles(user, namespace, &[Subject::User(user)]).unwrap());
        }
    }
    roles.retain(|role| role["metadata"]["namespace"].is_string());
    site.cluster.apply_all(&roles).await.unwrap();
    let set = owned_by("apps/v1", "DaemonSet", "democratic-csi", "not-read");
    pod(site, "storage", "democratic-csi-0", set).await;
    let deployment = owned_by("apps/v1", "Deployment", "csi", "not-read");
    let labels = json!({ "app": "csi" });
    let template = json!({ "metadata": { "labels": labels }, "spec": pod_spec() });
    let set = json!({
        "metadata": { "name": "csi", "ownerReferences": [deployment] },
        "spec": { "replicas": 1, "selector": { "matchLabels": labels }, "template": template },
    });
    let path = "/apis/apps/v1/namespaces/longhorn-system/replicasets";
    let set = site.api.create(path, "ReplicaSet", set).await;
    let uid = set["metadata"]["uid"].as_str().unwrap();
    let set = owned_by("apps/v1", "ReplicaSet", "csi", uid);
    pod(site, "longhorn-system", "csi-0", set).await;
}

fn owned_by(version: &str, kind: &str, name: &str, uid: &str) -> Value {
    json!({ "apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": true })
}

fn pod_spec() -> Value {
    json!({ "containers": [{ "name": "csi", "image": "none" }] })
}

async fn pod(site: &Site, namespace: &str, name: &str, owner: Value) {
    let object = json!({
        "metadata": { "name": name, "ownerReferences": [owner] },
        "spec": pod_spec(),
    });
    site.api.create(&format!("/api/v1/namespaces/{namespace}/pods"), "Pod", object).await;
}

/// A driver that says that it can do all that a chart's driver may.
fn script(name: &str) -> DriverScript {
    let mut script = DriverScript::new(name);
    let segments = [("charts.test/zone".to_owned(), "a".to_owned())].into();
    script.node.accessible_topology = Some(Topology { segments });
    for service in [service::Type::ControllerService, service::Type::VolumeAccessibilityConstraints]
    {
        let service = plugin_capability::Type::Service(Service { r#type: service.into() });
        script.plugin_capabilities.capabilities.push(PluginCapability { r#type: Some(service) });
    }
    for rpc in [
        rpc::Type::CreateDeleteVolume,
        rpc::Type::PublishUnpublishVolume,
        rpc::Type::CreateDeleteSnapshot,
        rpc::Type::CloneVolume,
        rpc::Type::ExpandVolume,
        rpc::Type::ModifyVolume,
        rpc::Type::GetCapacity,
    ] {
        let rpc = controller_service_capability::Type::Rpc(Rpc { r#type: rpc.into() });
        let capability = ControllerServiceCapability { r#type: Some(rpc) };
        script.controller_capabilities.capabilities.push(capability);
    }
    script
}

/// An argument with the socket of this test, spelt as the chart spells it.
fn here(arg: &str, driver: &ScriptedDriver) -> String {
    match arg.split_once('=') {
        Some((flag, socket)) if flag.ends_with("-csi-address") => {
            let scheme = if socket.starts_with("unix://") { "unix://" } else { "" };
            format!("{flag}={scheme}{}", driver.path().display())
        }
        _ => arg.to_owned(),
    }
}

/// Whether the arguments ask for an election: the last one counts.
fn is_elected(args: &[&str]) -> bool {
    let flag = |arg: &&str| {
        let arg = arg.trim_start_matches('-');
        let value = arg.strip_prefix("leader-election")?;
        (value.is_empty() || value.starts_with('=')).then_some(value != "=false")
    };
    args.iter().rev().find_map(flag).unwrap_or(false)
}
