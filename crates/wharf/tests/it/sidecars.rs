//! All controllers in one process, on their own cluster: a claim passes each of them.

use std::{collections::BTreeMap, process::Command};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use wharf_testkit::{
    cluster::Cluster,
    process::{Process, wait_for},
};

use crate::support::{Bench, DRIVER as DEMO, PATIENCE, exists, free_port, get, ok, wharf};

const DRIVER: &str = "local.csi.wharf";
const NODE: &str = "node-a";
const LEASES: [&str; 5] = [
    "external-attacher-leader-local-csi-wharf",
    "local-csi-wharf",
    "external-resizer-local-csi-wharf",
    "external-snapshotter-leader-local-csi-wharf",
    "snapshot-controller-leader",
];

/// Kinds that the five watch between them.
const WATCHED: [&str; 10] = [
    "csinodes",
    "nodes",
    "persistentvolumeclaims",
    "persistentvolumes",
    "pods",
    "storageclasses",
    "volumeattachments",
    "volumesnapshotclasses",
    "volumesnapshotcontents",
    "volumesnapshots",
];

#[test]
fn mistakes_are_named() {
    for (args, wanted) in [
        (&["--controllers=atacher"][..], "--controllers: unknown name \"atacher\", expected * or"),
        (
            &["--controllers=*,-attacher,-provisioner,-resizer,-snapshotter"],
            "excludes every controller",
        ),
        (&["--controllers=attacher", "--strict-topology"], "none of --controllers has this flag"),
        (&["--resizer-kubeconfig=/x"], "--kubeconfig has one value for all controllers"),
        (&["--attacher-v=5"], "-v has one value for all controllers"),
        (&["--provisioner-timeout=0"], "--timeout must be longer than 0s"),
        (&["--feature-gates=Topologie=true"], "none of --controllers knows Topologie=true"),
        (&["--resizer-feature-gates=Topology=true"], "unrecognized feature gate: Topology"),
        (&["--master=10.0.0.1"], "--master: \"10.0.0.1\" is not the URL of an API server"),
        (&["attacher"], "unexpected argument: attacher"),
    ] {
        let output = wharf(&[&["sidecars"], args].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(wanted), "{args:?}: {said}");
    }
}

#[test]
fn warnings_of_every_controller_are_logged_once() {
    let output = wharf(&[
        "sidecars",
        "--kubeconfig=/nonexistent",
        "--controllers=attacher,provisioner,resizer,snapshotter,snapshot-controller",
        "--automaxprocs",
        "--feature-gates=CSIVolumeGroupSnapshot=true,HonorPVReclaimPolicy=true",
        "--resizer-feature-gates=RecoverVolumeExpansionFailure=false",
        "--attacher-feature-gates=MutableCSINodeAllocatableCount=false",
    ]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    for wanted in [
        "--automaxprocs is not served: ",
        "--feature-gates=CSIVolumeGroupSnapshot=true is not served: ",
        "HonorPVReclaimPolicy no longer exists",
        "--feature-gates=RecoverVolumeExpansionFailure=false is not served: ",
        "--feature-gates=MutableCSINodeAllocatableCount=false is not served: ",
    ] {
        assert_eq!(said.matches(wanted).count(), 1, "{wanted}: {said}");
    }
}

#[test]
fn what_serves_the_cluster_is_not_run_on_each_node() {
    let said = |more: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_wharf"));
        // Nothing is started: there is no such kubeconfig.
        command.args(["sidecars", "--node-deployment", "--kubeconfig=/nonexistent"]).args(more);
        let output = command.env("NODE_NAME", NODE).output().unwrap();
        String::from_utf8(output.stderr).unwrap()
    };
    let named = "--controllers=*,snapshot-controller";
    let refused = said(&[named]);
    assert!(refused.contains("remove it from --controllers"), "{refused}");
    for accepted in [&["--controllers=*"][..], &[named, "--snapshot-controller-leader-election"]] {
        let said = said(accepted);
        assert!(said.contains("kubeconfig /nonexistent"), "{said}");
    }
}

#[tokio::test]
async fn a_node_needs_one_process_beside_its_driver() -> Result<()> {
    let bench = Bench::new();
    let driver = bench.driver().await;
    let (_manager, _) = bench.manager().await;
    let (socket, registry) = (bench.path("csi.sock"), bench.path("registry"));
    let (port, address) = (free_port(), format!("127.0.0.1:{}", free_port()));
    let flags = [
        "--controllers=registrar,liveness".to_owned(),
        format!("--csi-address={}", socket.display()),
        format!("--kubelet-registration-path={}", socket.display()),
        format!("--plugin-registration-path={}", registry.display()),
        format!("--liveness-health-port={port}"),
        format!("--http-endpoint={address}"),
    ];
    let mut command = Command::new(bench.called("csi-sidecars"));
    // No kubeconfig, and no pod: nothing of it asks the API.
    let mut node = Process::start("node", command.args(&flags), bench.folder.path())?;
    let registered = || async { bench.ls(&[]).contains(DEMO).then_some(()) };
    node.ready(PATIENCE, "registration", registered).await?;
    for url in [
        format!("http://127.0.0.1:{port}/healthz"),
        format!("http://{address}/healthz"),
        format!("http://{address}/readyz"),
    ] {
        node.ready(PATIENCE, &url, || ok(url.clone())).await?;
    }
    let (_, metrics) = get(&format!("http://{address}/metrics"));
    for name in ["registrar", "liveness"] {
        let line = format!("wharf_sidecars_controller_restarts_total{{controller=\"{name}\"}} 0");
        assert!(metrics.contains(&line), "no {line} in\n{metrics}");
    }
    assert!(metrics.contains("csi_sidecar_operations_seconds_count"), "{metrics}");
    driver.stop(PATIENCE).await?;
    let url = format!("http://127.0.0.1:{port}/healthz");
    node.ready(PATIENCE, "failed health", || async { (get(&url).0 == 500).then_some(()) }).await?;
    assert!(node.stop(PATIENCE).await?.success());
    assert!(!bench.registration_socket().exists(), "the registration socket is left");
    Ok(())
}

#[test]
fn a_registrar_among_others_needs_the_driver_s_path() {
    let output = wharf(&["sidecars", "--controllers=registrar"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("--kubelet-registration-path"), "{said}");
}

#[tokio::test]
async fn one_process_does_the_work_of_five() -> Result<()> {
    let Some(mut cluster) = Cluster::builder().start().await? else { return Ok(()) };
    let bench = Bench::new();
    let installed =
        wharf(&["crds", "install", "--kubeconfig", cluster.kubeconfig().to_str().unwrap()]);
    ensure!(installed.status.success(), "{installed:?}");
    let driver = driver(&bench).await?;
    objects(&cluster).await?;
    let before = watches(&cluster).await?;

    let address = format!("127.0.0.1:{}", free_port());
    let mut sidecars = sidecars(&bench, &cluster, &address)?;
    for lease in LEASES {
        let held = || async {
            let lease = cluster.get(&["lease", lease]).await.ok()??;
            lease["spec"]["holderIdentity"].as_str().filter(|it| !it.is_empty()).map(drop)
        };
        sidecars.ready(PATIENCE, lease, held).await?;
    }

    let volume = claim_gets_volume(&cluster, &mut sidecars).await?;
    volume_is_attached(&cluster, &mut sidecars, &volume).await?;
    snapshot_is_taken(&cluster, &mut sidecars).await?;
    claim_grows(&cluster, &mut sidecars, &volume).await?;

    let after = watches(&cluster).await?;
    for kind in WATCHED {
        let count = |watches: &BTreeMap<String, u64>| watches.get(kind).copied().unwrap_or(0);
        assert_eq!(count(&after) - count(&before), 1, "watches of {kind}");
    }
    let (_, metrics) = get(&format!("http://{address}/metrics"));
    for lease in LEASES {
        let line = format!("leader_election_master_status{{name=\"{lease}\"}} 1");
        assert!(metrics.contains(&line), "no {line} in\n{metrics}");
    }
    assert_eq!(get(&format!("http://{address}/healthz/leader-election")).0, 200);

    // In good order it gives all of them back, and nobody has to wait.
    assert!(sidecars.stop(PATIENCE).await?.success());
    for lease in LEASES {
        let lease = cluster.get(&["lease", lease]).await?.context(lease)?;
        assert_eq!(lease["spec"]["holderIdentity"].as_str().unwrap_or_default(), "", "{lease}");
    }
    driver.stop(PATIENCE).await?;
    cluster.stop_apiserver().await?;
    cluster.stop().await
}

/// All of them, with a kubeconfig that names another server than `--master` does.
fn sidecars(bench: &Bench, cluster: &Cluster, address: &str) -> Result<Process> {
    let (socket, kubeconfig) = (bench.path("csi.sock"), bench.path("kubeconfig"));
    let server = format!("https://{}", cluster.server());
    let text = std::fs::read_to_string(cluster.kubeconfig())?;
    ensure!(text.contains(&server), "{text}");
    std::fs::write(&kubeconfig, text.replace(&server, "https://127.0.0.1:1"))?;
    Ok(bench.start(
        "sidecars",
        &[
            "sidecars",
            "--controllers=*,snapshot-controller",
            "--leader-election",
            "--leader-election-namespace=default",
            "--feature-gates=ReleaseLeaderElectionOnExit=true,CSIVolumeGroupSnapshot=false",
            "--snapshotter-timeout=2m",
            "--http-endpoint",
            address,
            "--kubeconfig",
            kubeconfig.to_str().unwrap(),
            "--master",
            &server,
            "--csi-address",
            socket.to_str().unwrap(),
        ],
    ))
}

async fn driver(bench: &Bench) -> Result<Process> {
    let (socket, pool, state) = (bench.path("csi.sock"), bench.path("pool"), bench.path("state"));
    std::fs::create_dir(&pool)?;
    let endpoint = format!("unix://{}", socket.display());
    let [pool, state] = [&pool, &state].map(|it| it.to_str().unwrap());
    let place = ["--endpoint", &endpoint, "--pool", pool, "--state-dir", state, "--node", NODE];
    let mut driver = bench.start("driver", &[&["driver"], &place[..]].concat());
    driver.ready(PATIENCE, "driver socket", || exists(&socket)).await?;
    Ok(driver)
}

/// What an administrator and a kubelet have made.
async fn objects(cluster: &Cluster) -> Result<()> {
    for object in [
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": { "name": "fast" },
            "provisioner": DRIVER, "allowVolumeExpansion": true, "volumeBindingMode": "Immediate",
            "parameters": { "csi.storage.k8s.io/fstype": "ext4" },
        }),
        json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
            "metadata": { "name": "fast" }, "driver": DRIVER, "deletionPolicy": "Delete",
        }),
        json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": { "name": NODE, "labels": { "topology.local.csi.wharf/node": NODE } },
        }),
        json!({
            "apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": { "name": NODE },
            "spec": { "drivers": [{
                "name": DRIVER, "nodeID": NODE, "topologyKeys": ["topology.local.csi.wharf/node"],
            }] },
        }),
    ] {
        cluster.apply(&object).await?;
    }
    Ok(())
}

/// The provisioner makes a volume; binding is another's work, which the test does.
async fn claim_gets_volume(cluster: &Cluster, sidecars: &mut Process) -> Result<String> {
    let claim = json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "data", "namespace": "default",
            "annotations": { "volume.kubernetes.io/storage-provisioner": DRIVER },
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "fast",
            "resources": { "requests": { "storage": "32Mi" } },
        },
    });
    cluster.apply(&claim).await?;
    let uid = get_claim(cluster).await?["metadata"]["uid"].clone();
    let name = format!("pvc-{}", uid.as_str().context("uid")?);
    let made = || async { cluster.get(&["pv", &name]).await.ok()? };
    let volume = sidecars.ready(PATIENCE, "PersistentVolume", made).await?;
    assert_eq!(volume["spec"]["csi"]["driver"], DRIVER);
    assert_eq!(volume["spec"]["claimRef"]["uid"], uid);
    patch(cluster, "pvc", "data", "spec", &json!({ "spec": { "volumeName": name } })).await?;
    let bound = json!({ "status": { "phase": "Bound", "capacity": { "storage": "32Mi" } } });
    patch(cluster, "pvc", "data", "status", &bound).await?;
    let bound = json!({ "status": { "phase": "Bound" } });
    patch(cluster, "pv", &name, "status", &bound).await?;
    Ok(name)
}

async fn volume_is_attached(cluster: &Cluster, sidecars: &mut Process, name: &str) -> Result<()> {
    let attachment = json!({
        "apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": { "name": "data" },
        "spec": { "attacher": DRIVER, "nodeName": NODE, "source": { "persistentVolumeName": name } },
    });
    cluster.apply(&attachment).await?;
    let attached = || async {
        let it = cluster.get(&["volumeattachment", "data"]).await.ok()??;
        (it["status"]["attached"] == true).then_some(())
    };
    sidecars.ready(PATIENCE, "attachment", attached).await
}

/// Through both halves: the controller makes the content, the sidecar has it cut.
async fn snapshot_is_taken(cluster: &Cluster, sidecars: &mut Process) -> Result<()> {
    let snapshot = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshot",
        "metadata": { "name": "data", "namespace": "default" },
        "spec": {
            "volumeSnapshotClassName": "fast", "source": { "persistentVolumeClaimName": "data" },
        },
    });
    cluster.apply(&snapshot).await?;
    let ready = || async {
        let it = cluster.get(&["volumesnapshot", "data"]).await.ok()??;
        (it["status"]["readyToUse"] == true).then_some(())
    };
    sidecars.ready(PATIENCE, "snapshot", ready).await
}

async fn claim_grows(cluster: &Cluster, sidecars: &mut Process, volume: &str) -> Result<()> {
    let more = json!({ "spec": { "resources": { "requests": { "storage": "64Mi" } } } });
    patch(cluster, "pvc", "data", "spec", &more).await?;
    let grown = || async {
        let it = cluster.get(&["pv", volume]).await.ok()??;
        (it["spec"]["capacity"]["storage"] == "64Mi").then_some(())
    };
    sidecars.ready(PATIENCE, "larger volume", grown).await?;
    let told = || async {
        let claim = get_claim(cluster).await.ok()?;
        let status = &claim["status"]["allocatedResourceStatuses"]["storage"];
        (status == "NodeResizePending").then_some(())
    };
    wait_for(PATIENCE, "the claim to wait for its node", told).await
}

async fn get_claim(cluster: &Cluster) -> Result<Value> {
    cluster.get(&["pvc", "data"]).await?.context("no claim")
}

/// A merge patch of an object, or of its status.
async fn patch(cluster: &Cluster, kind: &str, name: &str, part: &str, body: &Value) -> Result<()> {
    let mut args = vec!["patch", kind, name, "--type=merge"];
    if part == "status" {
        args.push("--subresource=status");
    }
    let body = body.to_string();
    args.extend(["--patch", &body]);
    let output = cluster.kubectl(&args).await?;
    ensure!(output.status.success(), "{output:?}");
    Ok(())
}

/// How many watches the API server serves, by kind. It watches some kinds itself.
async fn watches(cluster: &Cluster) -> Result<BTreeMap<String, u64>> {
    let output = cluster.kubectl(&["get", "--raw", "/metrics"]).await?;
    let text = String::from_utf8(output.stdout)?;
    let mut watches = BTreeMap::new();
    for line in text.lines().filter(|line| {
        line.starts_with("apiserver_longrunning_requests{") && line.contains("verb=\"WATCH\"")
    }) {
        let kind = line.split_once("resource=\"").and_then(|(_, rest)| rest.split_once('"'));
        let count = line.rsplit_once(' ').and_then(|(_, count)| count.parse::<u64>().ok());
        if let (Some((kind, _)), Some(count)) = (kind, count) {
            *watches.entry(kind.to_owned()).or_default() += count;
        }
    }
    Ok(watches)
}
