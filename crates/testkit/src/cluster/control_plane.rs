//! kube-apiserver, and its etcd.

use std::{
    fs::File,
    io::Read,
    net::{Ipv4Addr, SocketAddr, TcpListener},
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::json;

use super::etcd::{Etcd, Versions};
use crate::process::{self, Process};

const START: Duration = Duration::from_secs(60);
const PROBE: Duration = Duration::from_secs(5);

/// Makes kube-apiserver serve the APIs that were removed in its release.
const SERVE_REMOVED: &str = "KUBE_APISERVER_SERVE_REMOVED_APIS_FOR_ONE_RELEASE";

/// Names of the components' kubeconfigs.
pub(super) const MANAGER: &str = "controller-manager";
pub(super) const SCHEDULER: &str = "scheduler";

/// The processes that serve the API, and the credentials of its users.
#[derive(Debug)]
pub(super) struct ControlPlane {
    apiserver: Option<Process>,
    etcd: Etcd,
    folder: PathBuf,
    command: Command,
    admin: PathBuf,
    node: PathBuf,
    secure: u16,
}

/// Options of an API server.
#[derive(Clone, Copy)]
pub(super) struct Extras<'a> {
    /// Feature gates to enable.
    pub(super) gates: &'a [String],
    pub(super) audited: bool,
    /// A version of the API that was removed in its release.
    pub(super) removed: Option<&'a str>,
}

impl ControlPlane {
    pub(super) async fn start(
        folder: &Path,
        [etcd, apiserver]: [&Path; 2],
        node: &str,
        extras: Extras<'_>,
    ) -> Result<Self> {
        let [client, peer, secure] = free_ports()?;
        let mut etcd = Etcd::new(etcd, folder, [client, peer]);
        etcd.start()?;
        service_account_key(folder).await?;
        let node = format!("system:node:{node}");
        let users = [
            ("admin", "admin", "system:masters"),
            ("node", &node, "system:nodes"),
            (MANAGER, "system:kube-controller-manager", ""),
            (SCHEDULER, "system:kube-scheduler", ""),
        ];
        let mut tokens = String::new();
        for (name, user, groups) in users {
            let token = token()?;
            kubeconfig(folder, name, &token, secure)?;
            tokens += &format!("{token},{user},{name},{groups}\n");
        }
        std::fs::write(folder.join("tokens.csv"), tokens)?;
        let mut command = apiserver_command(apiserver, folder, &etcd.url(), secure, extras.gates);
        if extras.audited {
            command.args(audit_flags(folder)?);
        }
        if let Some(version) = extras.removed {
            command.env(SERVE_REMOVED, "true").arg(format!("--runtime-config={version}=true"));
        }
        etcd.listening().await?;
        let mut plane = Self {
            command,
            admin: path(folder, "admin"),
            node: path(folder, "node"),
            secure,
            folder: folder.to_owned(),
            apiserver: None,
            etcd,
        };
        plane.start_apiserver().await?;
        Ok(plane)
    }

    /// The address of the API server.
    pub(super) fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.secure).into()
    }

    /// The administrator's kubeconfig.
    pub(super) fn admin(&self) -> &Path {
        &self.admin
    }

    /// The node's kubeconfig.
    pub(super) fn node(&self) -> &Path {
        &self.node
    }

    /// The kubeconfig of one of the components.
    pub(super) fn component(&self, name: &str) -> PathBuf {
        path(&self.folder, name)
    }

    /// A new kubeconfig with `token`.
    pub(super) fn kubeconfig(&self, name: &str, token: &str) -> Result<PathBuf> {
        kubeconfig(&self.folder, name, token, self.secure)
    }

    pub(super) async fn start_apiserver(&mut self) -> Result<()> {
        if self.apiserver.is_none() {
            self.apiserver = Some(Process::start("kube-apiserver", &self.command, &self.folder)?);
        }
        Ok(())
    }

    pub(super) fn ids(&self) -> Vec<u32> {
        self.apiserver.iter().map(Process::id).chain(self.etcd.id()).collect()
    }

    pub(super) async fn stop_apiserver(&mut self, deadline: Duration) -> Result<()> {
        match self.apiserver.take() {
            Some(apiserver) => apiserver.stop(deadline).await.map(drop),
            None => Ok(()),
        }
    }

    /// Waits until `probe`, a kubectl that checks readiness, succeeds.
    pub(super) async fn ready(&mut self, probe: &Command) -> Result<()> {
        let apiserver = self.apiserver.as_mut().context("the kube-apiserver is stopped")?;
        apiserver
            .ready(START, "the API to be ready", || async { process::run(probe, PROBE).await.ok() })
            .await
            .map(drop)
    }

    pub(super) async fn stop(mut self, deadline: Duration) -> Result<()> {
        self.stop_apiserver(deadline).await?;
        self.etcd.stop(deadline).await
    }

    /// Writes a backup of all objects to a new file.
    pub(super) async fn back_up(&self, file: &Path) -> Result<()> {
        self.etcd.back_up(file).await
    }

    /// Restores a backup. The kube-apiserver is stopped afterwards.
    pub(super) async fn restore(
        &mut self,
        backup: &Path,
        versions: Versions,
        deadline: Duration,
    ) -> Result<()> {
        // Killed, since a graceful stop would wait for clients that watch.
        self.apiserver = None;
        self.etcd.stop(deadline).await?;
        self.etcd.restore(backup, versions).await?;
        self.etcd.start()?;
        self.etcd.listening().await
    }
}

/// Free ports. They are bound at the same time, so that they differ.
pub(super) fn free_ports<const N: usize>() -> Result<[u16; N]> {
    let mut held = Vec::new();
    let mut ports = [0; N];
    for port in &mut ports {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).context("a free port")?;
        *port = listener.local_addr()?.port();
        held.push(listener);
    }
    Ok(ports)
}

/// The flag that enables feature gates.
fn gates_flag(gates: &[String]) -> Option<String> {
    let on: Vec<_> = gates.iter().map(|gate| format!("{gate}=true")).collect();
    (!on.is_empty()).then(|| format!("--feature-gates={}", on.join(",")))
}

fn apiserver_command(
    binary: &Path,
    folder: &Path,
    etcd: &str,
    secure: u16,
    gates: &[String],
) -> Command {
    let key = folder.join("service-account.pem");
    let mut command = Command::new(binary);
    command
        .args([
            "--bind-address=127.0.0.1",
            "--endpoint-reconciler-type=none",
            "--service-cluster-ip-range=10.0.0.0/24",
            "--service-account-issuer=https://kubernetes.default.svc",
            "--authorization-mode=Node,RBAC",
            "--enable-admission-plugins=NodeRestriction",
            // Pods of the tests do not use the API, and most clusters have no controller that
            // creates service accounts.
            "--disable-admission-plugins=ServiceAccount",
            "--allow-privileged",
        ])
        .arg(format!("--secure-port={secure}"))
        .arg(format!("--etcd-servers={etcd}"))
        // kube-apiserver makes a certificate for its address here, and reuses it after a restart.
        .arg(format!("--cert-dir={}", certificates(folder).display()))
        .arg(format!("--token-auth-file={}", folder.join("tokens.csv").display()))
        .arg(format!("--service-account-key-file={}", key.display()))
        .arg(format!("--service-account-signing-key-file={}", key.display()))
        .args(gates_flag(gates));
    command
}

/// The path of the audit log.
pub(super) fn audit_log(folder: &Path) -> PathBuf {
    folder.join("audit.log")
}

/// Logs each request when its answer begins or is complete.
fn audit_flags(folder: &Path) -> Result<[String; 2]> {
    let path = folder.join("audit-policy.json");
    let policy = json!({
        "apiVersion": "audit.k8s.io/v1",
        "kind": "Policy",
        "omitStages": ["RequestReceived"],
        "rules": [{ "level": "Metadata" }],
    });
    std::fs::write(&path, policy.to_string())?;
    Ok([
        format!("--audit-policy-file={}", path.display()),
        format!("--audit-log-path={}", audit_log(folder).display()),
    ])
}

async fn service_account_key(folder: &Path) -> Result<()> {
    let mut command = Command::new("openssl");
    command.args(["ecparam", "-genkey", "-noout", "-name", "prime256v1", "-out"]);
    command.arg(folder.join("service-account.pem"));
    process::run(&command, START).await.map(drop)
}

fn token() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes a kubeconfig for `user`; JSON is YAML too.
fn kubeconfig(folder: &Path, user: &str, token: &str, port: u16) -> Result<PathBuf> {
    let path = path(folder, user);
    let certificate = certificates(folder).join("apiserver.crt");
    let cluster = json!({ "server": format!("https://127.0.0.1:{port}"), "certificate-authority": certificate });
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "bench", "cluster": cluster }],
        "users": [{ "name": user, "user": { "token": token } }],
        "contexts": [{ "name": "bench", "context": { "cluster": "bench", "user": user } }],
        "current-context": "bench",
    });
    std::fs::write(&path, serde_json::to_vec_pretty(&config)?)?;
    Ok(path)
}

fn path(folder: &Path, user: &str) -> PathBuf {
    folder.join(format!("{user}.kubeconfig"))
}

pub(super) fn certificates(folder: &Path) -> PathBuf {
    folder.join("certificates")
}
