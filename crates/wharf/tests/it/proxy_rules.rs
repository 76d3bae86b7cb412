//! `wharf hooks static` with `wharf proxy`, containerd and runc: rules take effect inside
//! containers.

use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};
use wharf_testkit::{
    cluster::{Cluster, IMAGE},
    peers,
    process::Process,
};

use crate::{
    proxy::{hook_folder, start},
    proxy_containerd::{Crictl, write},
    support::{Bench, PATIENCE, exists},
};

#[tokio::test]
async fn rules_are_felt_inside_of_containers() -> Result<()> {
    let Some(binary) = peers::binary("crictl") else { return Ok(()) };
    let Some(cluster) = Cluster::builder().containerd(true).start().await? else { return Ok(()) };
    let bench = Bench::new();
    let hooks =
        rules(&bench, "cpuset: '0', env: { HOOKED: inside }, annotations: { note: rule }").await;
    let (proxy, socket) = start(&bench, &cluster.runtime_socket()).await;
    let crictl = Crictl { binary, socket };
    std::fs::create_dir(cluster.folder().join("logs"))?;

    let hooked = Life::begin(&cluster, &crictl, "hooked", &json!({ "hooked": "yes" })).await?;
    let plain = Life::begin(&cluster, &crictl, "plain", &json!({ "hooked": "no" })).await?;
    ensure!(hooked.cpus(&crictl).await? == "0");
    let env = hooked.exec(&crictl, "env").await?;
    let envs: Vec<_> = env.lines().filter(|line| line.contains('=')).collect();
    ensure!(envs.contains(&"OWN=kept") && envs.contains(&"HOOKED=inside"), "{env}");
    ensure!(hooked.inspect(&crictl).await?["annotations"]["note"] == "rule");
    ensure!(plain.cpus(&crictl).await? == own_cpus()?);
    ensure!(!plain.exec(&crictl, "env").await?.contains("HOOKED"));
    ensure!(plain.inspect(&crictl).await?["annotations"]["note"].is_null());

    // An update of something else, and one that asks for what the rule forbids.
    crictl.run(&format!("update --cpu-share 512 {}", hooked.id)).await?;
    ensure!(hooked.cpus(&crictl).await? == "0");
    crictl.run(&format!("update --cpuset-cpus {} {}", own_cpus()?, hooked.id)).await?;
    ensure!(hooked.cpus(&crictl).await? == "0");
    let resources = &hooked.inspect(&crictl).await?["resources"]["linux"];
    ensure!(resources["cpuShares"] == "512" && resources["cpusetCpus"] == "0", "{resources}");

    hooked.end(&crictl).await?;
    plain.end(&crictl).await?;
    ensure!(crictl.run("pods -q").await?.is_empty() && crictl.run("ps -aq").await?.is_empty());
    ensure!(proxy.stop(PATIENCE).await?.success());
    ensure!(hooks.stop(PATIENCE).await?.success());
    cluster.stop().await
}

/// `wharf hooks static` for the bench's proxy, which sets these for pods with the label `hooked:
/// yes`.
pub(crate) async fn rules(bench: &Bench, set: &str) -> Process {
    let (file, socket) = (bench.path("rules.yaml"), bench.path("static.sock"));
    let rule =
        format!("{{ name: hooked, match: {{ labels: {{ hooked: 'yes' }} }}, set: {{ {set} }} }}");
    std::fs::write(&file, format!("rules: [{rule}]")).unwrap();
    let folder = hook_folder(bench);
    let paths = [&file, &socket, &folder].map(|path| path.to_str().unwrap());
    let args = ["hooks", "static", "--failure-policy", "Fail", "--rules", paths[0]];
    let more = ["--socket", paths[1], "--config-dir", paths[2]];
    let mut hooks = bench.start("static", &[&args[..], &more].concat());
    let registered = folder.join("wharf-static.json");
    hooks.ready(PATIENCE, "the server's file", || exists(&registered)).await.unwrap();
    hooks
}

/// The processors that a container without a cpuset has, which are those of the test.
pub(crate) fn own_cpus() -> Result<String> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    allowed(&status).context("no Cpus_allowed_list")
}

/// The processors that `/proc/self/status` names.
pub(crate) fn allowed(status: &str) -> Option<String> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    Some(list.trim().to_owned())
}

/// A pod with a container that runs.
struct Life {
    pod: String,
    id: String,
}

impl Life {
    async fn begin(cluster: &Cluster, crictl: &Crictl, name: &str, labels: &Value) -> Result<Self> {
        let folder: &Path = cluster.folder();
        let group = folder.file_name().context("a name")?.display();
        let pod = write(
            &folder.join(format!("{name}-pod.json")),
            &json!({
                "metadata": { "name": name, "namespace": "default", "uid": name },
                "labels": labels,
                "log_directory": folder.join("logs"),
                "linux": { "cgroup_parent": format!("/{group}/pods") },
            }),
        )?;
        let container = write(
            &folder.join(format!("{name}-container.json")),
            &json!({
                "metadata": { "name": "c" },
                "image": { "image": IMAGE },
                "command": ["sleep", "1000"],
                "envs": [{ "key": "OWN", "value": "kept" }],
                "log_path": format!("{name}.log"),
            }),
        )?;
        let pod_id = crictl.run(&format!("runp {pod}")).await?;
        let id = crictl.run(&format!("create --no-pull {pod_id} {container} {pod}")).await?;
        crictl.run(&format!("start {id}")).await?;
        Ok(Life { pod: pod_id, id })
    }

    async fn exec(&self, crictl: &Crictl, command: &str) -> Result<String> {
        crictl.run(&format!("exec --sync {} {command}", self.id)).await
    }

    /// The processors that a process of the container may use.
    async fn cpus(&self, crictl: &Crictl) -> Result<String> {
        let status = self.exec(crictl, "cat /proc/self/status").await?;
        allowed(&status).with_context(|| status.clone())
    }

    async fn inspect(&self, crictl: &Crictl) -> Result<Value> {
        Ok(crictl.json(&format!("inspect {}", self.id)).await?["status"].take())
    }

    async fn end(self, crictl: &Crictl) -> Result<()> {
        crictl.run(&format!("stop --timeout 0 {}", self.id)).await?;
        crictl.run(&format!("rm {}", self.id)).await?;
        crictl.run(&format!("stopp {}", self.pod)).await?;
        crictl.run(&format!("rmp {}", self.pod)).await.map(drop)
    }
}
