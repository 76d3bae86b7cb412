//! The bench's images, made here since there is no registry to pull from: one layer with busybox, as an archive in
//! the form that `docker save` writes.

use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use crate::process;

/// Runs `sh`; has all of busybox.
pub(super) const BUSYBOX: &str = "wharf.test/busybox:1";
/// Does nothing for ever, as the process that holds a pod's namespaces.
pub(super) const PAUSE: &str = "wharf.test/pause:1";

const LIST: Duration = Duration::from_secs(10);
const EXECUTABLE: u32 = 0o755;

/// Writes both images to the archive `path`.
pub(super) async fn write(path: &Path) -> Result<()> {
    let layer = layer().await?;
    let busybox = config(&layer, &["/bin/sh"]);
    let pause = config(&layer, &["/bin/sleep", "2147483647"]);
    let manifest = json!([
        { "Config": "busybox.json", "RepoTags": [BUSYBOX], "Layers": ["layer.tar"] },
        { "Config": "pause.json", "RepoTags": [PAUSE], "Layers": ["layer.tar"] },
    ]);
    let mut archive = Builder::new(File::create(path)?);
    add(&mut archive, "layer.tar", &layer)?;
    add(&mut archive, "busybox.json", busybox.to_string().as_bytes())?;
    add(&mut archive, "pause.json", pause.to_string().as_bytes())?;
    add(&mut archive, "manifest.json", manifest.to_string().as_bytes())?;
    Ok(archive.finish()?)
}

async fn layer() -> Result<Vec<u8>> {
    let binary =
        ["/bin/busybox", "/usr/bin/busybox"].into_iter().find(|path| Path::new(path).exists());
    let binary = binary.context("no busybox: install the package busybox-static")?;
    let applets = process::run(Command::new(binary).arg("--list"), LIST).await?;
    let mut layer = Builder::new(Vec::new());
    for folder in ["bin/", "dev/", "etc/", "proc/", "sys/", "tmp/"] {
        let mut header = header(EntryType::Directory, 0);
        layer.append_data(&mut header, folder, std::io::empty())?;
    }
    add(&mut layer, "bin/busybox", &std::fs::read(binary)?)?;
    for applet in applets.lines().filter(|applet| *applet != "busybox") {
        let mut header = header(EntryType::Symlink, 0);
        layer.append_link(&mut header, format!("bin/{applet}"), "busybox")?;
    }
    Ok(layer.into_inner()?)
}

fn config(layer: &[u8], entrypoint: &[&str]) -> Value {
    let digest: String = Sha256::digest(layer).iter().map(|byte| format!("{byte:02x}")).collect();
    json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": { "Cmd": entrypoint, "Env": ["PATH=/bin"] },
        "rootfs": { "type": "layers", "diff_ids": [format!("sha256:{digest}")] },
    })
}

fn add<W: std::io::Write>(archive: &mut Builder<W>, name: &str, contents: &[u8]) -> Result<()> {
    let mut header = header(EntryType::Regular, contents.len());
    Ok(archive.append_data(&mut header, name, contents)?)
}

fn header(kind: EntryType, size: usize) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(EXECUTABLE);
    header.set_size(size as u64);
    header
}
