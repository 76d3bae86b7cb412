//! kube-controller-manager and kube-scheduler, each with its own user.

use std::{path::Path, process::Command, time::Duration};

use anyhow::Result;
use tokio::net::TcpStream;

use super::control_plane::{ControlPlane, MANAGER, SCHEDULER, certificates, free_ports};
use crate::process::Process;

const START: Duration = Duration::from_secs(60);

/// The controllers that pods with volumes need, and those that clean up.
const WANTED: &[&str] = &[
    "ephemeral-volume-controller",
    "garbage-collector-controller",
    "namespace-controller",
    "node-lifecycle-controller",
    "persistentvolume-attach-detach-controller",
    "persistentvolume-binder-controller",
    "persistentvolume-expander-controller",
    "persistentvolume-protection-controller",
    "persistentvolumeclaim-protection-controller",
    "pod-garbage-collector-controller",
    "root-ca-certificate-publisher-controller",
    "serviceaccount-controller",
    "taint-eviction-controller",
    "volumeattributesclass-protection-controller",
];

/// Both processes.
#[derive(Debug)]
pub(super) struct Controllers {
    manager: Process,
    scheduler: Process,
}

impl Controllers {
    /// Starts them once the API answers, and waits until they serve.
    pub(super) async fn start(
        folder: &Path,
        plane: &ControlPlane,
        [manager, scheduler]: [&Path; 2],
    ) -> Result<Self> {
        let [manager_port, scheduler_port] = free_ports()?;
        let mut command = component(manager, folder, plane, MANAGER, manager_port);
        command.arg("--use-service-account-credentials");
        command.arg(format!("--controllers={}", WANTED.join(",")));
        let certificate = certificates(folder).join("apiserver.crt");
        command.arg(format!("--root-ca-file={}", certificate.display()));
        let manager = Process::start("kube-controller-manager", &command, folder)?;
        let command = component(scheduler, folder, plane, SCHEDULER, scheduler_port);
        let scheduler = Process::start("kube-scheduler", &command, folder)?;
        let mut controllers = Self { manager, scheduler };
        serving(&mut controllers.manager, manager_port).await?;
        serving(&mut controllers.scheduler, scheduler_port).await?;
        Ok(controllers)
    }

    pub(super) async fn stop(self, deadline: Duration) -> Result<()> {
        let (scheduler, manager) =
            tokio::join!(self.scheduler.stop(deadline), self.manager.stop(deadline));
        scheduler.and(manager).map(drop)
    }
}

fn component(binary: &Path, folder: &Path, plane: &ControlPlane, name: &str, port: u16) -> Command {
    let mut command = Command::new(binary);
    command
        .args(["--leader-elect=false", "--bind-address=127.0.0.1"])
        .arg(format!("--secure-port={port}"))
        .arg(format!("--cert-dir={}", certificates(folder).join(name).display()))
        .arg(format!("--kubeconfig={}", plane.component(name).display()));
    command
}

async fn serving(component: &mut Process, port: u16) -> Result<()> {
    let listening = || async move { TcpStream::connect(("127.0.0.1", port)).await.ok() };
    component.ready(START, "it to listen", listening).await.map(drop)
}
