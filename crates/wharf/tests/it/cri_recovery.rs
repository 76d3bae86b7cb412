//! containerd's answers about pods and containers that existed before the proxy started.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use wharf_cri::{Client, ClientOptions};
use wharf_testkit::{
    cluster::{Cluster, IMAGE},
    peers,
};

use crate::proxy::crictl;

#[tokio::test]
async fn a_pod_and_its_container_are_told_as_they_were_made() -> Result<()> {
    let Some(binary) = peers::binary("crictl") else { return Ok(()) };
    let Some(cluster) = Cluster::builder().containerd(true).start().await? else { return Ok(()) };
    let socket = cluster.runtime_socket();
    let run = async |line: String| -> Result<String> {
        let output = crictl(&binary, &socket, &line.split(' ').collect::<Vec<_>>()).await;
        ensure!(output.status.success(), "{line}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    };
    let group = cluster.folder().file_name().context("a name")?.display();
    let parent = format!("/{group}/pods");
    let pod = json!({
        "metadata": { "name": "p", "namespace": "default", "uid": "u-1" },
        "labels": { "app": "p" },
        "annotations": { "example.com/a": "b" },
        "log_directory": cluster.folder(),
        "linux": { "cgroup_parent": parent },
    });
    let pod = write(&cluster.folder().join("pod.json"), &pod)?;
    let container = json!({
        "metadata": { "name": "c", "attempt": 3 },
        "image": { "image": IMAGE },
        "command": ["sleep", "1000"],
        "envs": [{ "key": "B", "value": "aGk=" }, { "key": "A", "value": "" }],
        "annotations": { "example.com/c": "d" },
        "log_path": "c.log",
        "linux": { "resources": { "cpu_shares": 512, "memory_limit_in_bytes": 67108864 } },
    });
    let container = write(&cluster.folder().join("container.json"), &container)?;
    let pod_id = run(format!("runp {pod}")).await?;
    let id = run(format!("create --no-pull {pod_id} {container} {pod}")).await?;
    run(format!("start {id}")).await?;
    run(format!("update --cpuset-cpus 0 {id}")).await?;

    let client = Client::new(&socket, ClientOptions::default());
    let pods: Vec<_> = client.pods().await?.collect();
    ensure!(pods.len() == 1 && pods[0].id == pod_id && pods[0].labels["app"] == "p", "{pods:?}");
    let containers: Vec<_> = client.containers().await?.collect();
    ensure!(containers.len() == 1 && containers[0].pod_sandbox_id == pod_id, "{containers:?}");
    let found = client.container(&id[..13]).await?;
    ensure!(found.as_ref() == containers.first(), "{found:?}");
    ensure!(client.container("no-such-container").await?.is_none());
    ensure!(client.pod_details("no-such-pod").await?.is_none());
    ensure!(client.container_details("no-such-container").await?.is_none());

    let details = client.pod_details(&pod_id).await?.context("the pod")?;
    ensure!(details.cgroup_parent.as_ref() == Some(&parent), "{details:?}");
    ensure!(details.status.annotations["example.com/a"] == "b", "{details:?}");
    let details = client.container_details(&id).await?.context("the container")?;
    let config = details.config.context("verbose status")?;
    let envs: Vec<_> = config.envs.iter().flatten().collect();
    ensure!(envs.len() == 2 && envs[0].value == b"aGk=" && envs[1].key == "A", "{envs:?}");
    ensure!(config.annotations["example.com/c"] == "d", "{config:?}");
    let created = config.resources.context("resources")?;
    ensure!(created.cpu_shares == 512 && created.cpuset_cpus.is_empty(), "{created:?}");
    let in_force = details.status.resources.and_then(|all| all.linux).context("resources")?;
    ensure!(in_force.cpu_shares == 512 && in_force.cpuset_cpus == "0", "{in_force:?}");
    ensure!(details.cgroups_path == Some(format!("{parent}/{id}")), "{:?}", details.cgroups_path);

    run(format!("rmp --force {pod_id}")).await?;
    cluster.stop().await
}

fn write(path: &Path, document: &Value) -> Result<String> {
    std::fs::write(path, document.to_string())?;
    Ok(path.to_str().context("a path of text")?.to_owned())
}
