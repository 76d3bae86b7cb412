//! A real kubelet whose runtime is `wharf proxy`, with containerd and hook servers.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use rustix::process::Signal;
use serde_json::{Value, json};
use wharf_testkit::{
    cluster::{Cluster, IMAGE},
    hook_server::{HookCall, HookScript, HookServer},
    peers,
    process::wait_for,
};

use crate::{
    proxy::{register, start},
    proxy_containerd::Crictl,
    proxy_rules::{allowed, own_cpus, rules},
    support::{Bench, PATIENCE},
};

/// Kubelet takes its time, and more when all tests run.
const POD: Duration = Duration::from_secs(90);

#[tokio::test]
async fn pods_of_the_api_get_what_hooks_give_them() -> Result<()> {
    let Some(binary) = peers::binary("crictl") else { return Ok(()) };
    let Some(mut cluster) = Cluster::builder().containerd(true).start().await? else {
        return Ok(());
    };
    let bench = Bench::new();
    let _rules = rules(&bench, "cpuset: '0', env: { HOOKED: inside }").await;
    let witness = HookServer::serve(&bench.path("witness.sock"), HookScript::default());
    register(&bench, &witness, &["PostStopContainer"]);
    let (mut proxy, socket) = start(&bench, &cluster.runtime_socket()).await;
    cluster.start_kubelet(&socket).await?;
    let node = Node { cluster, crictl: Crictl { binary, socket } };

    // Labels decide.
    node.run("hooked", "yes").await?;
    node.run("plain", "no").await?;
    let hooked = node.running("hooked").await?;
    ensure!(node.seen(&hooked).await? == ("inside".to_owned(), "0".to_owned()));
    let plain = node.running("plain").await?;
    ensure!(node.seen(&plain).await? == (String::new(), own_cpus()?));

    // A proxy that is killed takes no pod with it, and the next one knows what it knew.
    proxy.signal(Signal::KILL)?;
    proxy.wait(PATIENCE).await?;
    let (mut proxy, _) = start(&bench, &node.cluster.runtime_socket()).await;
    node.run("late", "yes").await?;
    let late = node.running("late").await?;
    ensure!(node.seen(&late).await? == ("inside".to_owned(), "0".to_owned()));
    ensure!(node.running("hooked").await? == hooked && node.running("plain").await? == plain);
    ensure!(node.is_ready().await?, "the node is not ready");
    ensure!(witness.calls().is_empty(), "{:?}", witness.hooks());

    // Nor does one that is killed while a pod is being started: the kubelet does again what it has
    // no answer to.
    for stage in [Stage::Asked, Stage::Sandbox, Stage::Container] {
        let name = stage.name();
        node.run(name, "yes").await?;
        node.reached(stage).await?;
        proxy.signal(Signal::KILL)?;
        proxy.wait(PATIENCE).await?;
        (proxy, _) = start(&bench, &node.cluster.runtime_socket()).await;
        let id = node.running(name).await.with_context(|| format!("killed at {stage:?}"))?;
        ensure!(node.seen(&id).await? == ("inside".to_owned(), "0".to_owned()));
        node.is_once(name, &id).await.with_context(|| format!("killed at {stage:?}"))?;
    }
    ensure!(node.running("hooked").await? == hooked && node.running("plain").await? == plain);

    node.delete("hooked").await?;
    node.collect("hooked").await?;
    let stops: Vec<_> = witness.calls().into_iter().filter(|call| id(call) == hooked).collect();
    ensure!(stops.len() == 1, "{stops:?}");
    ensure!(stops[0].metadata["wharf-outcome-code"] == "0", "{stops:?}");
    let asked = stops[0].container();
    ensure!(asked.container_envs["HOOKED"] == "inside", "{asked:?}");
    ensure!(asked.container_resources.as_ref().is_some_and(|own| own.cpuset_cpus == "0"));
    ensure!(asked.pod_labels["hooked"] == "yes", "{asked:?}");
    ensure!(node.running("late").await? == late);

    node.cluster.stop().await?;
    ensure!(proxy.stop(PATIENCE).await?.success());
    Ok(())
}

/// A hook's container.
fn id(call: &HookCall) -> &str {
    call.container().container_meta.as_ref().map_or("", |container| &container.id)
}

/// How far a pod is.
#[derive(Clone, Copy, Debug)]
enum Stage {
    Asked,
    Sandbox,
    Container,
}

impl Stage {
    /// The name of the pod that gets so far.
    fn name(self) -> &'static str {
        match self {
            Stage::Asked => "asked",
            Stage::Sandbox => "sandboxed",
            Stage::Container => "contained",
        }
    }
}

struct Node {
    cluster: Cluster,
    crictl: Crictl,
}

impl Node {
    /// Asks for a pod with the label `hooked` that says what it finds.
    async fn run(&self, name: &str, hooked: &str) -> Result<()> {
        let script = "echo \"HOOKED=$HOOKED\"; cat /proc/self/status; exec sleep 1000";
        let container = json!({ "name": "main", "image": IMAGE, "command": ["sh", "-c", script] });
        let pod = json!({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": { "name": name, "namespace": "default", "labels": { "hooked": hooked } },
            "spec": {
                "nodeName": self.cluster.node(),
                "terminationGracePeriodSeconds": 1,
                "automountServiceAccountToken": false,
                "containers": [container],
            },
        });
        self.cluster.apply(&pod).await
    }

    /// The id of a pod's container, once that runs.
    async fn running(&self, name: &str) -> Result<String> {
        let what = format!("the pod {name} to run");
        let running = wait_for(POD, &what, || async {
            let pod = self.cluster.get(&["pod", name]).await.ok()??;
            let container = &pod["status"]["containerStatuses"][0];
            container["state"]["running"].as_object()?;
            let id = container["containerID"].as_str()?;
            Some(id.strip_prefix("containerd://")?.to_owned())
        });
        match running.await {
            Ok(id) => Ok(id),
            Err(error) => Err(error.context(self.events().await)),
        }
    }

    /// Asks containerd itself for what it has of a pod.
    async fn listed(&self, what: &str, pod: &str) -> Result<Vec<String>> {
        let (binary, socket) = (self.crictl.binary.clone(), self.cluster.runtime_socket());
        let line = format!("{what} --quiet --label io.kubernetes.pod.name={pod}");
        let ids = Crictl { binary, socket }.run(&line).await?;
        Ok(ids.lines().map(str::to_owned).collect())
    }

    /// Waits until the pod of a stage has come so far.
    async fn reached(&self, stage: Stage) -> Result<()> {
        let what = match stage {
            Stage::Asked => return Ok(()),
            Stage::Sandbox => "pods",
            Stage::Container => "ps --all",
        };
        wait_for(POD, &format!("{stage:?}"), || async {
            let found = self.listed(what, stage.name()).await.ok()?;
            (!found.is_empty()).then_some(())
        })
        .await
    }

    /// Waits until a pod has one sandbox and this container, and nothing else of it runs.
    async fn is_once(&self, name: &str, id: &str) -> Result<()> {
        wait_for(POD, &format!("one sandbox and one container of {name}"), || async {
            let sandboxes = self.listed("pods --state ready", name).await.ok()?;
            let containers = self.listed("ps", name).await.ok()?;
            (sandboxes.len() == 1 && containers == [id]).then_some(())
        })
        .await
    }

    /// What a container found: its variable, and the processors that it may use.
    async fn seen(&self, id: &str) -> Result<(String, String)> {
        wait_for(PATIENCE, "the container's log", || async {
            let log = self.crictl.run(&format!("logs {id}")).await.ok()?;
            let variable = log.lines().find_map(|line| line.strip_prefix("HOOKED="))?;
            Some((variable.to_owned(), allowed(&log)?))
        })
        .await
    }

    async fn delete(&self, name: &str) -> Result<()> {
        let deleted = self.cluster.kubectl(&["delete", "pod", name, "--wait=false"]).await?;
        ensure!(deleted.status.success(), "{deleted:?}");
        wait_for(POD, &format!("the pod {name} to go"), || async {
            self.cluster.get(&["pod", name]).await.ok()?.is_none().then_some(())
        })
        .await
    }

    /// Removes what is left of a deleted pod, as the kubelet does once a minute: it stops it again
    /// before.
    async fn collect(&self, name: &str) -> Result<()> {
        wait_for(PATIENCE, "the sandbox's removal", || async {
            let left = self.crictl.run(&format!("pods --quiet --name {name}")).await.ok()?;
            for sandbox in left.lines() {
                // The kubelet may be the first.
                let _ = self.crictl.run(&format!("rmp --force {sandbox}")).await;
            }
            left.is_empty().then_some(())
        })
        .await
    }

    async fn is_ready(&self) -> Result<bool> {
        let node = self.cluster.get(&["node", self.cluster.node()]).await?.context("the node")?;
        let conditions = node["status"]["conditions"].as_array().context("conditions")?.clone();
        let ready =
            |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
        Ok(conditions.iter().any(ready))
    }

    async fn events(&self) -> String {
        match self.cluster.kubectl(&["get", "events,pods,nodes", "-o", "wide"]).await {
            Ok(events) => String::from_utf8_lossy(&events.stdout).into_owned(),
            Err(error) => error.to_string(),
        }
    }
}
