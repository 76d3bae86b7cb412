//! containerd, with its own root, state and socket.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::net::UnixStream;

use super::{
    guard::Guard,
    image::{self, Image},
};
use crate::process::{self, Process};

const START: Duration = Duration::from_secs(60);

/// A running containerd with the images of the node.
#[derive(Debug)]
pub(super) struct Containerd(Process);

impl Containerd {
    pub(super) async fn start(guard: &Guard, images: &[Image]) -> Result<Self> {
        let folder = guard.folder();
        let config = folder.join("containerd.toml");
        let networks = folder.join("networks");
        std::fs::create_dir(&networks)?;
        std::fs::write(networks.join("10-bench.conflist"), network(folder, &guard.group()[1..]))?;
        std::fs::write(&config, configuration(folder, &networks))?;
        let mut command = guard.member("containerd")?;
        command.arg("--config").arg(&config);
        let mut containerd = Process::start("containerd", &command, folder)
            .context("the packages containerd and runc must be installed")?;
        let socket = socket(folder);
        let listening = || async { UnixStream::connect(&socket).await.ok() };
        containerd.ready(START, "containerd to listen", listening).await?;

        let archive = folder.join("images.tar");
        image::write(&archive, images).await?;
        let mut import = Command::new("ctr");
        import.arg("--address").arg(&socket).args(["--namespace", "k8s.io", "images", "import"]);
        process::run(import.arg(&archive), START).await?;
        std::fs::remove_file(&archive)?;
        Ok(Self(containerd))
    }

    pub(super) async fn stop(self, deadline: Duration) -> Result<()> {
        self.0.stop(deadline).await.map(drop)
    }
}

/// containerd's CRI socket.
pub(super) fn socket(folder: &Path) -> PathBuf {
    folder.join("containerd.sock")
}

fn configuration(folder: &Path, networks: &Path) -> String {
    format!(
        r#"version = 2
root = "{root}"
state = "{state}"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs"]

[grpc]
address = "{socket}"

[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{pause}"
# Lowering the score below the runtime's own takes a capability that containers lack.
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{networks}"
"#,
        root = folder.join("containerd").display(),
        state = folder.join("run").display(),
        socket = socket(folder).display(),
        pause = image::PAUSE,
        networks = networks.display(),
    )
}

/// A veth pair for each pod, which vanishes with the pod's network namespace, and addresses that
/// only this machine routes.
fn network(folder: &Path, name: &str) -> String {
    serde_json::json!({
        "cniVersion": "0.4.0",
        "name": name,
        "plugins": [{
            "type": "ptp",
            "ipam": {
                "type": "host-local",
                "subnet": "10.88.77.0/24",
                "dataDir": folder.join("addresses"),
            },
        }],
    })
    .to_string()
}
