//! A pod's whole life through `wharf proxy`: crictl before it, containerd and runc behind it.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use wharf_testkit::{
    cluster::{Cluster, IMAGE},
    peers, process,
};

use crate::{
    proxy::{crictl, start},
    support::{Bench, PATIENCE},
};

/// crictl at a socket.
pub(crate) struct Crictl {
    pub(crate) binary: PathBuf,
    pub(crate) socket: PathBuf,
}

impl Crictl {
    pub(crate) async fn run(&self, line: &str) -> Result<String> {
        let args: Vec<_> = line.split(' ').collect();
        let output = crictl(&self.binary, &self.socket, &args).await;
        let error = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.success(), "crictl {line}: {error}");
        Ok(String::from_utf8(output.stdout)?.trim().to_owned())
    }

    pub(crate) async fn json(&self, line: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.run(line).await?)?)
    }
}

#[tokio::test]
async fn a_pods_life() -> Result<()> {
    let Some(binary) = peers::binary("crictl") else { return Ok(()) };
    let Some(cluster) = Cluster::builder().containerd(true).start().await? else { return Ok(()) };
    let bench = Bench::new();
    let (proxy, socket) = start(&bench, &cluster.runtime_socket()).await;
    let through = Crictl { binary: binary.clone(), socket: socket.clone() };
    let direct = Crictl { binary, socket: cluster.runtime_socket() };

    let version = through.run("version").await?;
    ensure!(version.contains("RuntimeName:  containerd"), "{version}");
    ensure!(version == direct.run("version").await?);
    let info = through.json("info").await?;
    ensure!(info["status"]["conditions"][0]["status"] == true, "{info}");
    ensure!(through.run("images").await? == direct.run("images").await?);
    let unknown = crictl(&through.binary, &socket, &["events"]).await;
    let same = crictl(&direct.binary, &direct.socket, &["events"]).await;
    ensure!(unknown.status.code() == same.status.code(), "{unknown:?} {same:?}");

    pod(&cluster, &through).await?;
    old_version(&socket, cluster.folder()).await?;
    ensure!(direct.run("pods -q").await?.is_empty());
    ensure!(proxy.stop(PATIENCE).await?.success());
    cluster.stop().await
}

/// The whole life of the pod `default/p` and its container `c`.
pub(crate) async fn pod(cluster: &Cluster, crictl: &Crictl) -> Result<()> {
    let group = cluster.folder().file_name().context("a name")?.display();
    let logs = cluster.folder().join("logs");
    std::fs::create_dir(&logs)?;
    let pod = write(
        &cluster.folder().join("pod.json"),
        &json!({
            "metadata": { "name": "p", "namespace": "default", "uid": "u-1" },
            "log_directory": logs,
            "linux": { "cgroup_parent": format!("/{group}/pods") },
        }),
    )?;
    let container = write(
        &cluster.folder().join("container.json"),
        &json!({
            "metadata": { "name": "c" },
            "image": { "image": IMAGE },
            "command": ["sh", "-c", "echo hello from $NAME; exec sleep 1000"],
            "envs": [{ "key": "NAME", "value": "inside" }],
            "log_path": "c.log",
        }),
    )?;
    let pod_id = crictl.run(&format!("runp {pod}")).await?;
    let id = crictl.run(&format!("create --no-pull {pod_id} {container} {pod}")).await?;
    crictl.run(&format!("start {id}")).await?;
    ensure!(crictl.run("ps -q").await? == id);

    let said = process::wait_for(PATIENCE, "the container's log", || async {
        crictl.run(&format!("logs {id}")).await.ok().filter(|text| !text.is_empty())
    });
    ensure!(said.await? == "hello from inside");
    let env = crictl.run(&format!("exec --sync {id} env")).await?;
    ensure!(env.lines().any(|line| line == "NAME=inside"), "{env}");
    // The address of a stream comes through the proxy; the stream itself goes to the runtime.
    ensure!(crictl.run(&format!("exec {id} cat /proc/1/comm")).await? == "sleep");
    let failed = crictl.run(&format!("exec --sync {id} no-such-program")).await.unwrap_err();
    ensure!(failed.to_string().contains("no-such-program"), "{failed}");
    crictl.run(&format!("update --cpu-share 512 {id}")).await?;
    let inspected = crictl.json(&format!("inspect {id}")).await?;
    ensure!(inspected["status"]["resources"]["linux"]["cpuShares"] == "512", "{inspected}");
    let stats = crictl.json("stats --output json --seconds 0").await?;
    ensure!(stats["stats"][0]["attributes"]["id"] == id, "{stats}");

    crictl.run(&format!("stop --timeout 0 {id}")).await?;
    let inspected = crictl.json(&format!("inspect {id}")).await?;
    ensure!(inspected["status"]["state"] == "CONTAINER_EXITED", "{inspected}");
    let missing = crictl.run("inspect no-such-container").await.unwrap_err();
    ensure!(missing.to_string().contains("NotFound"), "{missing}");
    crictl.run(&format!("rm {id}")).await?;
    crictl.run(&format!("stopp {pod_id}")).await?;
    crictl.run(&format!("rmp {pod_id}")).await?;
    Ok(())
}

/// crictl has forgotten v1alpha2, which containerd 1.6 still serves: curl speaks it.
async fn old_version(socket: &Path, folder: &Path) -> Result<()> {
    let request = folder.join("request");
    std::fs::write(&request, [0; 5])?;
    let mut curl = std::process::Command::new("curl");
    curl.args(["--silent", "--http2-prior-knowledge", "--max-time", "10", "--unix-socket"]);
    curl.arg(socket).args([
        "--header",
        "content-type: application/grpc",
        "--header",
        "te: trailers",
    ]);
    curl.args(["--dump-header", "-", "--data-binary"]).arg(format!("@{}", request.display()));
    curl.arg("http://localhost/runtime.v1alpha2.RuntimeService/Version");
    let answer = process::run(&curl, PATIENCE).await?;
    ensure!(answer.contains("containerd") && answer.contains("grpc-status: 0"), "{answer:?}");
    Ok(())
}

pub(crate) fn write(path: &Path, document: &Value) -> Result<String> {
    std::fs::write(path, document.to_string())?;
    Ok(path.to_str().context("a path of text")?.to_owned())
}
