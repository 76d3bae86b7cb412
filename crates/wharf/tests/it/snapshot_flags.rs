//! csi-snapshotter's and snapshot-controller's names and flags, and the CRDs that both need.

use std::process::Command;

use anyhow::Result;
use serde_json::json;
use wharf_testkit::{
    cluster::Cluster,
    process::{self, Process, wait_for},
};

use crate::support::{Bench, PATIENCE, WHARF, free_port, get, run_as};

#[test]
fn mistakes_are_named() {
    for (name, args, wanted) in [
        ("csi-snapshotter", &["--snapshot-name-uuid-length=33"][..], "expected -1, or 0 to 32"),
        (
            "csi-snapshotter",
            &["--snapshot-name-prefix="],
            "--snapshot-name-prefix must not be empty",
        ),
        ("csi-snapshotter", &["--timeout=0"], "--timeout must be longer than 0s"),
        ("csi-snapshotter", &["--node-deployment"], "NODE_NAME"),
        ("csi-snapshotter", &["-worker-threads=-1"], "--worker-threads must be greater than 0"),
        ("snapshot-controller", &["--worker-threads=0"], "--worker-threads must be greater than 0"),
        ("snapshot-controller", &["--csi-address=/x"], "csi-address"),
    ] {
        let (output, said) = run_as(name, args, &[]);
        assert_eq!(output.status.code(), Some(2), "{name} {args:?}: {said}");
        assert!(said.contains(wanted), "{name} {args:?}: {said}");
    }
    let bench = Bench::new();
    let mut command = Command::new(bench.called("csi-snapshotter"));
    command.args(["--node-deployment", "--leader-election"]).env("NODE_NAME", "here");
    let said = command.output().unwrap().stderr;
    let said = String::from_utf8(said).unwrap();
    assert!(said.contains("--leader-election cannot be set with --node-deployment"), "{said}");
}

#[test]
fn the_kinds_are_printed_for_kubectl_and_for_programs() {
    let output = Command::new(WHARF).arg("crds").output().unwrap();
    let yaml = String::from_utf8(output.stdout).unwrap();
    assert_eq!(yaml.matches("\nkind: CustomResourceDefinition\n").count(), 3, "{yaml}");
    let output = Command::new(WHARF).args(["crds", "-o", "json"]).output().unwrap();
    let list: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(list["kind"], "List");
    assert_eq!(list["items"].as_array().unwrap().len(), 3);
}

#[tokio::test]
async fn the_controller_needs_its_kinds_then_leads_and_serves() -> Result<()> {
    let Some(cluster) = Cluster::builder().start().await? else { return Ok(()) };
    let bench = Bench::new();
    let kubeconfig = cluster.kubeconfig().to_str().unwrap();
    let mut controller = Command::new(bench.called("snapshot-controller"));
    controller.args(["--kubeconfig", kubeconfig, "--retry-crd-interval-max=1s"]);
    let output = process::output(&controller, PATIENCE).await?;
    let said = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("with `wharf crds install`"), "{said}");

    for done in ["created", "exists, unchanged"] {
        let mut install = Command::new(WHARF);
        install.args(["crds", "install", "--kubeconfig", kubeconfig]);
        let told = process::run(&install, PATIENCE).await?;
        assert_eq!(told.matches(done).count(), 3, "{told}");
    }

    let address = format!("127.0.0.1:{}", free_port());
    let mut command = Command::new(WHARF);
    command.args(["snapshot-controller", "--kubeconfig", kubeconfig, "--leader-election"]);
    command.args(["--leader-election-namespace=kube-system", "--http-endpoint", &address]);
    let mut process = Process::start("controller", &command, bench.folder.path())?;
    let leads = "became leader, starting";
    process.line(PATIENCE, leads, |line| line.contains(leads).then_some(())).await?;
    let source = json!({ "persistentVolumeClaimName": "none" });
    let snapshot = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1",
        "kind": "VolumeSnapshot",
        "metadata": { "name": "flags", "namespace": "default" },
        "spec": { "source": source, "volumeSnapshotClassName": "none" },
    });
    cluster.apply(&snapshot).await?;
    let error = wait_for(PATIENCE, "the error of the snapshot", || async {
        let found = cluster.get(&["volumesnapshot", "flags"]).await.ok()??;
        found["status"]["error"]["message"].as_str().map(str::to_owned)
    });
    assert!(error.await?.contains("\"none\" not found"));
    let lease = ["lease", "snapshot-controller-leader", "--namespace", "kube-system"];
    assert!(cluster.get(&lease).await?.is_some());
    let (code, metrics) = get(&format!("http://{address}/metrics"));
    assert_eq!(code, 200);
    for name in ["snapshot_controller_operations_in_flight 0", "leader_election_master_status"] {
        assert!(metrics.contains(name), "no {name} in\n{metrics}");
    }
    process.stop(PATIENCE).await?;
    cluster.stop().await
}
