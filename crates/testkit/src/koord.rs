//! Koordinator's part of a node: its runtime proxy, and its hook server without the rest of
//! koordlet.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result};
use rustix::process::geteuid;
use tokio::net::UnixStream;

use crate::{peers, process::Process, skip};

const START: Duration = Duration::from_secs(20);

/// Runs a program with an `/etc` that has only a folder of hook servers, whose path is constant in
/// the program. The mounts belong to the program, and end with it.
const UNSHARED: &str = r#"mount --bind "$1" /etc && mount --bind "$2" /etc/runtime/hookserver.d && shift 2 && exec "$@""#;

/// A program of koordinator's, and its socket.
#[derive(Debug)]
pub struct Koord {
    /// The program. Dropping this kills it.
    pub process: Process,
    /// The socket on which it listens.
    pub socket: PathBuf,
}

/// koord-runtime-proxy in front of the runtime at the socket `runtime`, with the hook servers that
/// the folder `hooks` has now. Logs, its socket and its `/etc` are put into `folder`. `None` if
/// this run skips the peer.
pub async fn runtime_proxy(folder: &Path, runtime: &Path, hooks: &Path) -> Result<Option<Koord>> {
    let Some(binary) = peers::binary("koord-runtime-proxy") else { return Ok(None) };
    let Some(mut command) = unshared(folder, hooks, &binary)? else { return Ok(None) };
    let socket = folder.join("koord.sock");
    command.arg(flag("--koord-runtimeproxy-endpoint", &socket));
    // A whole path would become an illegal `:authority`, which only Go's servers accept.
    let (home, name) = runtime.parent().zip(runtime.file_name()).context("the runtime's socket")?;
    command.current_dir(home).arg(flag("--remote-runtime-service-endpoint", Path::new(name)));
    let mut process = Process::start("koord-runtime-proxy", &command, folder)?;
    // It reads its configuration and lists the runtime's pods before it listens.
    process.ready(START, "its socket", || connected(&socket)).await?;
    Ok(Some(Koord { process, socket }))
}

/// `program`, with the folder `hooks` as its `/etc/runtime/hookserver.d`. The rest of its `/etc` is
/// in `folder`. `None` without root.
pub fn unshared(folder: &Path, hooks: &Path, program: &Path) -> Result<Option<Command>> {
    if !geteuid().is_root() {
        skip::record(None, "koord-runtime-proxy has its folder below /etc, and mounts need root");
        return Ok(None);
    }
    let etc = folder.join("etc");
    std::fs::create_dir_all(etc.join("runtime/hookserver.d")).context("the proxy's /etc")?;
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", UNSHARED, "unshared"]);
    command.args([&etc, hooks, program]);
    Ok(Some(command))
}

/// koordlet's hook server, listening on a socket in `folder`. It writes its file into the folder
/// `hooks`, with `endpoint` as its address, so that a test can put another server in front of it.
/// Pods of class LS get the CPUs of `pool`.
pub async fn koordlet_hooks(
    folder: &Path,
    endpoint: &Path,
    hooks: &Path,
    pool: &str,
) -> Result<Option<Koord>> {
    let Some(binary) = peers::binary("koordlet-hooks") else { return Ok(None) };
    let socket = folder.join("koordlet.sock");
    let mut command = Command::new(binary);
    command.arg(flag("--runtime-hooks-addr", &socket));
    command.arg(flag("--runtime-hooks-host-endpoint", endpoint));
    command.arg(flag("--runtime-hooks-config-path", hooks));
    command.arg(format!("--cpu-shared-pool={pool}"));
    let mut process = Process::start("koordlet-hooks", &command, folder)?;
    let file = hooks.join("koordlet.json");
    process.ready(START, "its configuration file", || written(&file)).await?;
    Ok(Some(Koord { process, socket }))
}

fn flag(name: &str, value: &Path) -> String {
    format!("{name}={}", value.display())
}

async fn connected(socket: &Path) -> Option<()> {
    UnixStream::connect(socket).await.ok().map(drop)
}

/// Whether the file exists and is complete: it is written in place.
async fn written(file: &Path) -> Option<()> {
    let text = std::fs::read(file).ok()?;
    serde_json::from_slice::<serde_json::Value>(&text).ok().map(drop)
}
