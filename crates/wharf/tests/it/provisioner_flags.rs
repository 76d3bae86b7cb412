//! csi-provisioner's name and flags, and the binary at work with the driver beside it.

use std::process::Command;

use anyhow::{Context, Result};
use serde_json::json;
use wharf_testkit::{
    cluster::Cluster,
    process::{Process, wait_for},
};

use crate::support::{Bench, PATIENCE, run_as};

#[test]
fn mistakes_are_named() {
    let node = [("NODE_NAME", "n1")];
    let elected = ["--node-deployment", "--leader-election"];
    for (args, variables, wanted) in [
        (&["--feature-gates=Topologie=true"][..], &[][..], "unrecognized feature gate: Topologie"),
        (&["--worker-threads=0"], &[], "--worker-threads must be greater than 0"),
        (&["--cloning-protection-threads=0"], &[], "--cloning-protection-threads must be"),
        (&["--timeout=0"], &[], "--timeout must be longer than 0s"),
        (&["--volume-name-uuid-length=33"], &[], "--volume-name-uuid-length must be"),
        (&["--master=10.0.0.1"], &[], "--master: \"10.0.0.1\" is not the URL of an API server"),
        (&["--node-deployment"], &[], "NODE_NAME"),
        (&elected, &node, "--leader-election cannot be set with --node-deployment"),
        (&["--enable-capacity"], &[], "NAMESPACE"),
        (&["--enable-capacity"], &[("NAMESPACE", "n")], "POD_NAME"),
        (&["--worker-thread=5"], &[], "worker-threads"),
    ] {
        let (output, said) = run_as("csi-provisioner", args, variables);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(wanted), "{args:?}: {said}");
    }
}

#[test]
fn what_charts_still_pass_is_accepted_with_a_word_about_it() {
    let (output, said) = run_as(
        "csi-provisioner",
        &[
            "--provisioner=csi.example.com",
            "--connection-timeout=15s",
            "--enable-leader-election=false",
            "--leader-election-type=leases",
            "--enable-pprof",
            "--feature-gates=Topology=true,HonorPVReclaimPolicy=true",
            "--kubeconfig=/nonexistent/kubeconfig",
            "-v=5",
        ],
        &[],
    );
    for flag in
        ["provisioner", "connection-timeout", "enable-leader-election", "leader-election-type"]
    {
        assert!(said.contains(&format!("--{flag} has been deprecated, ")), "{flag}: {said}");
    }
    assert!(said.contains("--enable-pprof is not served: "), "{said}");
    assert!(said.contains("HonorPVReclaimPolicy"), "{said}");
    assert!(said.contains("/nonexistent/kubeconfig"), "{said}");
    assert_eq!(output.status.code(), Some(1), "{said}");
}

#[tokio::test]
async fn a_claim_gets_a_volume_of_the_driver_on_its_node() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let (bench, name) = (Bench::new(), "provisioned.csi.example.com");
    let paths = ["csi.sock", "pool", "state"].map(|name| bench.path(name));
    let [socket, pool, state] = paths.each_ref().map(|path| path.to_str().unwrap());
    let place =
        ["--endpoint", socket, "--pool", pool, "--state-dir", state, "--node", "provisioned-1"];
    let _driver = bench.start("driver", &[&["driver", "--driver-name", name], &place[..]].concat());
    let mut command = Command::new(bench.called("csi-provisioner"));
    command.args(["--node-deployment", "--csi-address", socket, "--default-fstype=ext4"]);
    command.arg("--kubeconfig").arg(cluster.kubeconfig());
    command.env("NODE_NAME", "provisioned-1").env_remove("KUBECONFIG");
    let process = Process::start("provisioner", &command, bench.folder.path())?;

    let metadata = json!({ "name": "provisioned" });
    let class = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": metadata,
        "provisioner": name,
        "volumeBindingMode": "WaitForFirstConsumer",
    });
    cluster.apply(&class).await?;
    let claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {
            "name": "provisioned",
            "annotations": {
                "volume.kubernetes.io/storage-provisioner": name,
                "volume.kubernetes.io/selected-node": "provisioned-1",
            },
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "provisioned",
            "resources": { "requests": { "storage": "64Mi" } },
        },
    });
    cluster.apply(&claim).await?;
    let claim = cluster.get(&["pvc", "provisioned"]).await?.context("no claim")?;
    let volume = format!("pvc-{}", claim["metadata"]["uid"].as_str().context("no UID")?);
    let object = wait_for(PATIENCE, &volume, || async {
        cluster.get(&["pv", &volume]).await.ok().flatten()
    })
    .await?;
    assert_eq!(object["spec"]["csi"]["driver"], name);
    assert_eq!(object["spec"]["csi"]["fsType"], "ext4");
    assert_eq!(object["spec"]["claimRef"]["uid"], claim["metadata"]["uid"]);
    assert!(object["spec"]["nodeAffinity"].is_object(), "{object}");
    assert!(process.stop(PATIENCE).await?.success());
    Ok(())
}
