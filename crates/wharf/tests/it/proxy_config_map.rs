//! Hook server files from a ConfigMap volume, laid out and mounted as the kubelet does it.

use std::{
    fs::{self, DirBuilder, Permissions},
    os::unix::fs::{DirBuilderExt, PermissionsExt, symlink},
    path::{Path, PathBuf},
    process::Command,
};

use prost_reflect::prost::Message;
use rustix::process::geteuid;
use serde_json::json;
use wharf_proto::cri::RunPodSandboxRequest;
use wharf_testkit::{
    client::Client,
    hook_server::{HookScript, HookServer},
    process::{Process, wait_for},
    skip,
};

use crate::{
    proxy::{address, hook_folder, recording},
    support::{Bench, PATIENCE, WHARF},
};

/// Mounts `$1` at `$2` with the options `$3`, where nobody else sees it, and runs the rest.
const MOUNTED: &str =
    r#"mount --bind "$1" "$2" && mount -o "remount,bind,$3" "$2" && shift 3 && exec "$@""#;

/// A folder that holds a volume, with the mode that the kubelet gives to volumes.
fn volume(bench: &Bench, kind: &str) -> PathBuf {
    let volume = bench.path(&format!("kubelet/pods/uid/volumes/{kind}/hooks"));
    DirBuilder::new().recursive(true).mode(0o750).create(&volume).unwrap();
    fs::set_permissions(&volume, Permissions::from_mode(0o777)).unwrap();
    fs::create_dir(hook_folder(bench)).unwrap();
    volume
}

/// Puts a version of `test.json` into a volume, as the kubelet's atomic writer does.
fn write(volume: &Path, version: &str, server: &HookServer) {
    let entry = json!({ "remote-endpoint": server.path(), "runtime-hooks": ["PreRunPodSandbox"] });
    DirBuilder::new().mode(0o755).create(volume.join(version)).unwrap();
    fs::write(volume.join(version).join("test.json"), entry.to_string()).unwrap();
    symlink(version, volume.join("..data_tmp")).unwrap();
    fs::rename(volume.join("..data_tmp"), volume.join("..data")).unwrap();
    if !volume.join("test.json").exists() {
        symlink("..data/test.json", volume.join("test.json")).unwrap();
    }
}

/// `wharf proxy` with these arguments and the volume mounted as its folder of hook servers.
fn mounted(bench: &Bench, volume: &Path, options: &str, args: &[&str]) -> Command {
    let mut command = Command::new("unshare");
    command.args(["--mount", "--propagation", "private", "sh", "-c", MOUNTED, "mounted"]);
    command.args([volume, &hook_folder(bench)]).arg(options).args([WHARF, "proxy"]).args(args);
    command.arg("--hooks-dir").arg(hook_folder(bench));
    command
}

#[tokio::test]
async fn a_config_map_is_followed() {
    if !geteuid().is_root() {
        return skip::record(None, "mounts need root");
    }
    let bench = Bench::new();
    let runtime = recording(&bench);
    let servers = ["a.sock", "b.sock", "c.sock"]
        .map(|name| HookServer::serve(&bench.path(name), HookScript::echo()));
    let volume = volume(&bench, "kubernetes.io~configmap");
    write(&volume, "..2026_1", &servers[0]);
    let (socket, state) = (bench.path("proxy.sock"), bench.path("state"));
    let paths = [&socket, runtime.path(), &state].map(|path| path.to_str().unwrap());
    let args = ["--listen", paths[0], "--runtime", paths[1], "--state-dir", paths[2]];
    let args = [&args[..], &["--http-endpoint", "127.0.0.1:0"]].concat();
    let command = mounted(&bench, &volume, "ro", &args);
    let mut proxy = Process::start("proxy", &command, bench.folder.path()).unwrap();
    address(&mut proxy).await;
    let client = Client::dial(&socket).await;
    let versions = ["..2026_1", "..2026_2", "..2026_3"];
    for (server, version) in servers.iter().zip(versions) {
        if version != versions[0] {
            write(&volume, version, server);
        }
        let asked = || async {
            let request = RunPodSandboxRequest::default().encode_to_vec();
            let method = "/runtime.v1.RuntimeService/RunPodSandbox";
            client.call(method, request).await.unwrap();
            (!server.calls().is_empty()).then_some(())
        };
        // A rescan comes once a minute, which is more than is waited for here.
        wait_for(PATIENCE, version, asked).await.unwrap();
    }
    assert!(proxy.stop(PATIENCE).await.unwrap().success());
}

/// Who may write to the folder decides what runs in every container.
#[test]
fn other_folders_that_everybody_may_write_to_are_refused() {
    if !geteuid().is_root() {
        return skip::record(None, "mounts need root");
    }
    for (kind, options, trusted) in [
        ("kubernetes.io~configmap", "ro", true),
        ("kubernetes.io~configmap", "rw", false),
        ("kubernetes.io~empty-dir", "ro", false),
    ] {
        let bench = Bench::new();
        let volume = volume(&bench, kind);
        let output = mounted(&bench, &volume, options, &["check-config"]).output().unwrap();
        let printed = String::from_utf8_lossy(&output.stdout);
        assert_eq!(output.status.success(), trusted, "{kind} {options}: {printed}");
        assert_eq!(printed.contains("its mode 0777"), !trusted, "{kind} {options}: {printed}");
    }
}
