//! The test bench itself: a whole cluster in a folder, of which nothing is left.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use wharf_testkit::{
    cluster::{Cluster, IMAGE},
    process::wait_for,
};

const POD: Duration = Duration::from_secs(90);

#[tokio::test]
async fn a_pod_runs_to_its_end_and_nothing_is_left() -> Result<()> {
    let Some(cluster) = Cluster::builder().kubelet(true).node("node-a").start().await? else {
        return Ok(());
    };
    let folder = cluster.folder().to_owned();
    let shared = tempfile::tempdir()?;
    let wait = "until [ -e /shared/end ]; do sleep 0.1; done";
    cluster.apply(&pod("pod-a", wait, shared.path())).await?;
    phase(&cluster, "pod-a", "Running").await?;
    std::fs::write(shared.path().join("end"), "")?;
    phase(&cluster, "pod-a", "Succeeded").await?;
    assert!(cluster.plugins_registry().is_dir());

    // This pod still runs when the cluster ends.
    cluster.apply(&pod("pod-b", "sleep 1000", shared.path())).await?;
    phase(&cluster, "pod-b", "Running").await?;
    cluster.stop().await?;
    assert_eq!(processes_of(&folder)?, Vec::<String>::new());
    assert_eq!(mounts_below(&folder)?, Vec::<String>::new());
    assert!(!folder.exists());
    Ok(())
}

#[tokio::test]
async fn an_api_server_comes_back_with_its_data() -> Result<()> {
    let Some(mut cluster) = Cluster::builder().start().await? else { return Ok(()) };
    cluster.create_node("node-b").await?;
    cluster.stop_apiserver().await?;
    assert!(!cluster.kubectl(&["get", "nodes"]).await?.status.success());
    cluster.start_apiserver().await?;
    let node = cluster.get(&["node", "node-b"]).await?.context("node-b")?;
    assert_eq!(node["metadata"]["labels"]["kubernetes.io/hostname"], "node-b");
    assert_eq!(cluster.get(&["node", "node-c"]).await?, None);
    cluster.stop().await
}

/// A pod on `node-a` that runs `script` and mounts the folder `shared` as `/shared`.
fn pod(name: &str, script: &str, shared: &Path) -> Value {
    let command = json!(["sh", "-c", script]);
    let mounts = json!([{ "name": "shared", "mountPath": "/shared" }]);
    let container =
        json!({ "name": "main", "image": IMAGE, "command": command, "volumeMounts": mounts });
    let volume = json!({ "name": "shared", "hostPath": { "path": shared } });
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "nodeName": "node-a",
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 0,
            "containers": [container],
            "volumes": [volume],
        },
    })
}

async fn phase(cluster: &Cluster, pod: &str, wanted: &str) -> Result<()> {
    let seen = wait_for(POD, &format!("{pod} to be {wanted}"), || async {
        let pod = cluster.get(&["pod", pod]).await.ok()??;
        (pod["status"]["phase"] == wanted).then_some(())
    })
    .await;
    if seen.is_err() {
        let events = cluster.kubectl(&["get", "events,pods,nodes", "-o", "wide"]).await?;
        let log = std::fs::read_to_string(cluster.folder().join("kubelet.log"))?;
        eprintln!("{}\n{log}", String::from_utf8_lossy(&events.stdout));
    }
    seen
}

/// Processes whose command line or control group contains the cluster's folder.
fn processes_of(folder: &Path) -> Result<Vec<String>> {
    let name = folder.file_name().context("a folder")?.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for entry in Path::new("/proc").read_dir()? {
        let process = entry?.path();
        let read = |file: &str| std::fs::read(process.join(file)).unwrap_or_default();
        let text = [read("cmdline"), read("cgroup")].concat();
        // A dead process that its parent has not collected yet no longer counts.
        let dead = String::from_utf8_lossy(&read("status")).contains("State:\tZ");
        if !dead && String::from_utf8_lossy(&text).contains(&name) {
            found.push(format!("{}: {}", process.display(), String::from_utf8_lossy(&text)));
        }
    }
    Ok(found)
}

fn mounts_below(folder: &Path) -> Result<Vec<String>> {
    let mounts = std::fs::read_to_string("/proc/self/mountinfo")?;
    let folder = folder.display().to_string();
    Ok(mounts.lines().filter(|line| line.contains(&folder)).map(str::to_owned).collect())
}
