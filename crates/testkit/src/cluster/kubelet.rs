//! The kubelet, configured to share nothing with others on this machine.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::Result;
use serde_json::{Value, json};

use super::{control_plane::free_ports, guard::Guard};
use crate::process::{self, Process};

const START: Duration = Duration::from_secs(60);
const PROBE: Duration = Duration::from_secs(5);

/// A running kubelet.
#[derive(Debug)]
pub(super) struct Kubelet(Process);

impl Kubelet {
    pub(super) fn start(
        binary: &Path,
        guard: &Guard,
        kubeconfig: &Path,
        node: &str,
        runtime: &Path,
        gates: &[String],
    ) -> Result<Self> {
        let folder = guard.folder();
        let config = folder.join("kubelet.json");
        let contents = configuration(guard, runtime, gates)?;
        std::fs::write(&config, serde_json::to_vec_pretty(&contents)?)?;
        let mut command = guard.member(binary)?;
        command
            .arg(format!("--config={}", config.display()))
            .arg(format!("--kubeconfig={}", kubeconfig.display()))
            .arg(format!("--root-dir={}", root(folder).display()))
            .arg(format!("--cert-dir={}", folder.join("certificates/kubelet").display()))
            .arg(format!("--hostname-override={node}"));
        Ok(Self(Process::start("kubelet", &command, folder)?))
    }

    /// Waits until `probe`, a kubectl that gets the node, succeeds.
    pub(super) async fn registered(&mut self, probe: &Command) -> Result<()> {
        self.0
            .ready(START, "the kubelet to register its node", || async {
                process::run(probe, PROBE).await.ok()
            })
            .await
            .map(drop)
    }

    pub(super) async fn stop(self, deadline: Duration) -> Result<()> {
        self.0.stop(deadline).await.map(drop)
    }
}

/// The kubelet's root folder, in place of `/var/lib/kubelet`.
pub(super) fn root(folder: &Path) -> PathBuf {
    folder.join("kubelet")
}

/// The folder of containers' output.
pub(super) fn logs(folder: &Path) -> PathBuf {
    folder.join("pod-logs")
}

fn configuration(guard: &Guard, runtime: &Path, gates: &[String]) -> Result<Value> {
    let folder = guard.folder();
    let gates: BTreeMap<_, _> = gates.iter().map(|gate| (gate, true)).collect();
    let [port, health] = free_ports()?;
    Ok(json!({
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        "address": "127.0.0.1",
        "port": port,
        "healthzPort": health,
        "authentication": { "anonymous": { "enabled": true }, "webhook": { "enabled": false } },
        "authorization": { "mode": "AlwaysAllow" },
        "failCgroupV1": false,
        "failSwapOn": false,
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": guard.group(),
        "enforceNodeAllocatable": [],
        "makeIPTablesUtilChains": false,
        "oomScoreAdj": 0,
        "containerRuntimeEndpoint": format!("unix://{}", runtime.display()),
        "volumePluginDir": folder.join("volume-plugins"),
        "podLogsDir": logs(folder),
        "resolvConf": "",
        // A full disk or little memory on the machine must not cause evictions.
        "evictionHard": { "memory.available": "0%", "nodefs.available": "0%", "nodefs.inodesFree": "0%",
            "imagefs.available": "0%", "imagefs.inodesFree": "0%" },
        "imageGCHighThresholdPercent": 100,
        "syncFrequency": "5s",
        // Volumes are attached and detached after updates of the node's status, and reconciled once
        // a period.
        "nodeStatusUpdateFrequency": "1s",
        "volumeStatsAggPeriod": "2s",
        "featureGates": gates,
    }))
}
