//! Images of the tests, made here since there is no registry: a layer with busybox and, for some,
//! one with a program, as an archive in the format of `docker save`.

use std::{
    fs::File,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use tar::{Builder, EntryType, Header};

use crate::process;

/// Runs `sh`, with all of busybox.
pub(super) const BUSYBOX: &str = "wharf.test/busybox:1";
/// Sleeps for ever, as the process that holds a pod's namespaces.
pub(super) const PAUSE: &str = "wharf.test/pause:1";

const LIST: Duration = Duration::from_secs(10);
const EXECUTABLE: u32 = 0o755;

/// An image with all of busybox.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Image {
    /// Its names with tags, such as `wharf.test/busybox:1`.
    pub names: Vec<String>,
    /// A static program in the image's root folder, under its own name.
    pub program: Option<PathBuf>,
    /// The entry point of its containers; empty for none.
    pub entrypoint: Vec<String>,
    /// The default command of its containers.
    pub command: Vec<String>,
}

impl Image {
    /// An image that runs `command`.
    #[must_use]
    pub fn busybox(names: Vec<String>, command: &[&str]) -> Self {
        let command = command.iter().map(|&word| word.to_owned()).collect();
        Self { names, command, ..Self::default() }
    }
}

/// Writes the images of every node, and `more`, to the archive `path`.
pub(super) async fn write(path: &Path, more: &[Image]) -> Result<()> {
    let busybox = Layer::new("busybox.tar".to_owned(), layer().await?);
    let own = [
        Image::busybox(vec![BUSYBOX.to_owned()], &["/bin/sh"]),
        Image::busybox(vec![PAUSE.to_owned()], &["/bin/sleep", "2147483647"]),
    ];
    let mut archive = Builder::new(File::create(path)?);
    add(&mut archive, &busybox.file, &busybox.contents)?;
    let mut manifest = Vec::new();
    for (number, image) in own.iter().chain(more).enumerate() {
        let program = match &image.program {
            Some(program) => {
                let layer = Layer::new(format!("{number}.tar"), program_layer(program)?);
                add(&mut archive, &layer.file, &layer.contents)?;
                Some(layer)
            }
            None => None,
        };
        let layers: Vec<_> = [Some(&busybox), program.as_ref()].into_iter().flatten().collect();
        let file = format!("{number}.json");
        add(&mut archive, &file, config(image, &layers).to_string().as_bytes())?;
        let layers: Vec<_> = layers.iter().map(|layer| &layer.file).collect();
        manifest.push(json!({ "Config": file, "RepoTags": image.names, "Layers": layers }));
    }
    add(&mut archive, "manifest.json", json!(manifest).to_string().as_bytes())?;
    Ok(archive.finish()?)
}

/// A layer as a file of the archive.
struct Layer {
    file: String,
    contents: Vec<u8>,
    digest: String,
}

impl Layer {
    fn new(file: String, contents: Vec<u8>) -> Self {
        let digest = Sha256::digest(&contents).iter().map(|byte| format!("{byte:02x}")).collect();
        Self { file, contents, digest }
    }
}

fn program_layer(program: &Path) -> Result<Vec<u8>> {
    let name = program.file_name().context("a program is a file")?.to_string_lossy();
    let contents = std::fs::read(program).with_context(|| program.display().to_string())?;
    let mut layer = Builder::new(Vec::new());
    add(&mut layer, &name, &contents)?;
    Ok(layer.into_inner()?)
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

fn config(image: &Image, layers: &[&Layer]) -> Value {
    let digests: Vec<_> = layers.iter().map(|layer| format!("sha256:{}", layer.digest)).collect();
    let Image { entrypoint, command, .. } = image;
    json!({
        "architecture": if cfg!(target_arch = "aarch64") { "arm64" } else { "amd64" },
        "os": "linux",
        "config": { "Entrypoint": entrypoint, "Cmd": command, "Env": ["PATH=/bin"] },
        "rootfs": { "type": "layers", "diff_ids": digests },
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
