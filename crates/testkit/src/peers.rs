//! Real peers: programs of other projects that wharf works with.
//!
//! Each folder of `peers/` is a small Go module. `cargo xtask peers` builds it once into the cache,
//! in a folder named after its contents; [`binary`] finds the build. Some peers are served by no Go
//! module proxy ([`EXTERNAL`]): tests take these, under their usual names, from the folder that
//! `WHARF_PEERS` names, and are skipped without it.

use std::{
    io,
    path::{Path, PathBuf},
    sync::LazyLock,
};

use sha2::{Digest, Sha256};

use crate::skip;

/// A folder of binaries that take precedence over those of the cache.
pub const PEERS: &str = "WHARF_PEERS";
/// If set, every test that needs a peer is skipped.
pub const SKIP_PEERS: &str = "WHARF_SKIP_PEERS";
/// The cache folder, `~/.cache/wharf` by default.
pub const CACHE: &str = "WHARF_CACHE";

/// Peers that cannot be built here.
pub const EXTERNAL: &[&str] = &[
    "csi-attacher",
    "hostpathplugin",
    "csi-node-driver-registrar",
    "livenessprobe",
    "node-driver-registrar",
];

/// The peer binary `name`; `None` if this run skips it, and the current test is then recorded as
/// skipped.
///
/// # Panics
///
/// If the peer can be built but was not: a forgotten build must not count as a skip.
#[must_use]
pub fn binary(name: &str) -> Option<PathBuf> {
    if std::env::var_os(SKIP_PEERS).is_some() {
        skip::record(None, &format!("needs the peer {name}, and {SKIP_PEERS} is set"));
        return None;
    }
    let given = std::env::var_os(PEERS).map(|folder| Path::new(&folder).join(name));
    if let Some(given) = given.filter(|path| path.is_file()) {
        return Some(given);
    }
    if EXTERNAL.contains(&name) {
        skip::record(
            None,
            &format!("needs the peer {name}: set {PEERS} to a folder that holds it"),
        );
        return None;
    }
    let built = Peer::all()
        .and_then(|peers| peers.iter().map(Peer::built).collect::<io::Result<Vec<_>>>())
        .unwrap_or_else(|error| panic!("peers: {error}"));
    let found = built.into_iter().flatten().map(|folder| folder.join("bin").join(name));
    Some(
        found
            .into_iter()
            .find(|path| path.is_file())
            .unwrap_or_else(|| panic!("the peer {name} is not built: run `cargo xtask peers`")),
    )
}

/// The cache folder: peers, tools and build output that are kept when a clone is removed.
///
/// # Panics
///
/// If neither `WHARF_CACHE` nor `HOME` is set.
#[must_use]
pub fn cache() -> PathBuf {
    std::env::var_os(CACHE).map(PathBuf::from).unwrap_or_else(|| {
        let home = std::env::var_os("HOME").expect("HOME or WHARF_CACHE names where the cache is");
        Path::new(&home).join(".cache/wharf")
    })
}

/// The repository's root, from the environment that cargo sets.
///
/// Not that of compile time: clones that share a target folder share its binaries.
#[must_use]
pub fn repository() -> &'static Path {
    static ROOT: LazyLock<PathBuf> = LazyLock::new(|| {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs this");
        let package = PathBuf::from(package);
        let root = package.ancestors().find(|folder| folder.join("Cargo.lock").is_file());
        root.expect("a package is in a workspace with a Cargo.lock").to_owned()
    });
    &ROOT
}

/// A folder of `peers/`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The folder's name.
    pub name: String,
    /// The Go module's folder.
    pub source: PathBuf,
}

impl Peer {
    /// Every folder of `peers/` that holds a Go module, by name.
    pub fn all() -> io::Result<Vec<Self>> {
        let mut peers = Vec::new();
        for entry in repository().join("peers").read_dir()? {
            let source = entry?.path();
            if let Some(name) = source.file_name().filter(|_| source.join("go.mod").is_file()) {
                peers.push(Self {
                    name: name.to_string_lossy().into_owned(),
                    source: source.clone(),
                });
            }
        }
        peers.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(peers)
    }

    /// The cache folder of this peer, built with the Go release `go` (`go1.26.8`); it holds `bin/`.
    pub fn target(&self, go: &str) -> io::Result<PathBuf> {
        Ok(cache().join("peers").join(format!("{}{go}", self.prefix()?)))
    }

    /// The cached build of exactly this source, with any Go release.
    pub fn built(&self) -> io::Result<Option<PathBuf>> {
        let prefix = self.prefix()?;
        cached(|name| name.starts_with(&prefix)).map(|mut folders| folders.pop())
    }

    /// Cached builds of this peer from other sources or Go releases than the one in `target`.
    pub fn stale(&self, target: &Path) -> io::Result<Vec<PathBuf>> {
        let name = format!("{}-", self.name);
        let mut folders = cached(|folder| {
            // `<name>-<digest>-<go>`: another peer's name may begin with this name.
            folder.strip_prefix(&name).is_some_and(|rest| rest.matches('-').count() == 1)
        })?;
        folders.retain(|folder| folder != target);
        Ok(folders)
    }

    fn prefix(&self) -> io::Result<String> {
        Ok(format!("{}-{}-", self.name, digest(&self.source)?))
    }
}

/// The folders of the peers' cache whose names are `wanted`.
fn cached(wanted: impl Fn(&str) -> bool) -> io::Result<Vec<PathBuf>> {
    let folder = match cache().join("peers").read_dir() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        folder => folder?,
    };
    let mut found = Vec::new();
    for entry in folder {
        let entry = entry?;
        if wanted(&entry.file_name().to_string_lossy()) {
            found.push(entry.path());
        }
    }
    found.sort();
    Ok(found)
}

/// A short digest of the names and contents of the files in `folder`, at any depth.
fn digest(folder: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    collect(folder, &mut files)?;
    files.sort();
    let mut hash = Sha256::new();
    for file in files {
        let name = file.strip_prefix(folder).unwrap_or(&file).to_string_lossy();
        let contents = std::fs::read(&file)?;
        hash.update(format!("{}:{name}{}:", name.len(), contents.len()));
        hash.update(contents);
    }
    Ok(hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect())
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in folder.read_dir()? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_follows_names_and_contents() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, contents: &str| {
            std::fs::write(folder.path().join(name), contents).unwrap();
        };
        write("go.mod", "module a");
        let first = digest(folder.path()).unwrap();
        assert_eq!(first, digest(folder.path()).unwrap());
        std::fs::create_dir(folder.path().join("inner")).unwrap();
        write("inner/main.go", "");
        let second = digest(folder.path()).unwrap();
        assert_ne!(first, second);
        write("inner/main.go", "package main");
        assert_ne!(second, digest(folder.path()).unwrap());
    }

    #[test]
    fn every_peer_has_a_build_folder_of_its_own() {
        let peers = Peer::all().unwrap();
        assert!(peers.iter().any(|peer| peer.name == "kubernetes"), "{peers:?}");
        let mut targets: Vec<_> = peers.iter().map(|peer| peer.target("go1.0").unwrap()).collect();
        targets.dedup();
        assert_eq!(targets.len(), peers.len());
    }
}
