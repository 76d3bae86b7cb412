//! `cargo xtask peers`: builds each folder of `peers/` once, and again when it or Go changes.
//!
//! A folder is a Go module. Its `tool` lines are built under the tools' names, a main package of
//! ours under the folder's name. Further files: `ldflags` adds linker flags, to stamp versions;
//! `copy` names a module and packages of it, which are built in a copy of the module with its own
//! go.mod, for modules with many replace lines (these count in the main module only), and then a
//! main package of ours is built in the copy, too; `test` names packages whose tests are built as
//! programs `NAME.test`; `env` has environment variables for Go.

use std::{
    fs::{self, File},
    io::ErrorKind,
    path::Path,
    time::Instant,
};

use anyhow::{Context, Result, bail};
use wharf_testkit::peers::{self, Peer};

use crate::{go::Go, shell};

/// The file that names a module to copy, and the folder of the copy during the build.
const COPY: &str = "copy";

/// The file that names packages whose tests are built.
const TEST: &str = "test";

/// Peers that are built only by name: no test of the workspace uses them.
const ON_REQUEST: &[&str] = &["kubernetes-e2e"];

/// Builds the peers `names`, by default all that tests of the workspace use, unless they are in the
/// cache.
pub(crate) fn build(names: &[String]) -> Result<()> {
    let all = Peer::all().context("peers/")?;
    if let Some(unknown) = names.iter().find(|name| all.iter().all(|peer| peer.name != **name)) {
        let known: Vec<_> = all.iter().map(|peer| peer.name.as_str()).collect();
        bail!("there is no peer {unknown:?}: expected one of {}", known.join(", "));
    }
    let go = Go::find()?;
    let folder = peers::cache().join("peers");
    fs::create_dir_all(&folder).with_context(|| folder.display().to_string())?;
    // One build at a time: two would only share the same cores.
    let lock = File::create(folder.join("lock"))?;
    lock.lock().context("lock of the peers' cache")?;
    for peer in all.iter().filter(|peer| wanted(&peer.name, names)) {
        build_one(peer, &go).with_context(|| format!("peer {}", peer.name))?;
    }
    Ok(())
}

fn wanted(peer: &str, names: &[String]) -> bool {
    match names {
        [] => !ON_REQUEST.contains(&peer),
        names => names.iter().any(|name| name == peer),
    }
}

fn build_one(peer: &Peer, go: &Go) -> Result<()> {
    let target = peer.target(&go.release)?;
    if target.join("stamp").is_file() {
        println!("peers: {} is up to date", peer.name);
        return Ok(());
    }
    println!("peers: {} is being built with {}", peer.name, go.release);
    let start = Instant::now();
    // A hidden name, renamed when the build is complete.
    let parts = target.with_file_name(format!(".building-{}", peer.name));
    remove(&parts)?;
    let bin = parts.join("bin");
    fs::create_dir_all(&bin)?;
    compile(peer, go, &bin)?;
    remove(&parts.join(COPY))?;
    let seconds = start.elapsed().as_secs();
    fs::write(parts.join("stamp"), format!("{} {seconds} s\n", go.release))?;
    remove(&target)?;
    fs::rename(&parts, &target)?;
    for stale in peer.stale(&target)? {
        remove(&stale)?;
    }
    println!("peers: {} took {seconds} s", peer.name);
    Ok(())
}

fn compile(peer: &Peer, go: &Go, bin: &Path) -> Result<()> {
    let flags = linker_flags(&peer.source)?;
    let env = environment(&peer.source)?;
    let build = |source: &Path, output: &Path, package: &str| {
        let mut command = go.command(source);
        command.envs(env.clone());
        command.args(["build", "-trimpath", "-ldflags", &flags, "-o"]).arg(output).arg(package);
        shell::quiet(&mut command).map(drop)
    };
    let compile = |output: &Path, package: &str| build(&peer.source, output, package);
    let own = peer.source.join("main.go");
    if let Some((module, packages)) = copied(&peer.source)? {
        let source = bin.with_file_name(COPY);
        copy(peer, go, &module, &source)?;
        for package in packages {
            build(&source, &bin.join(""), &package)?;
        }
        if own.is_file() {
            let inside = format!("{}.go", peer.name);
            fs::copy(&own, source.join(&inside))?;
            build(&source, &bin.join(&peer.name), &inside)?;
        }
        return Ok(());
    }
    if has_tools(&fs::read_to_string(peer.source.join("go.mod"))?) {
        // A trailing slash: a folder for several outputs.
        compile(&bin.join(""), "tool")?;
    }
    if own.is_file() {
        compile(&bin.join(&peer.name), ".")?;
    }
    for package in optional(&peer.source.join(TEST))?.unwrap_or_default().split_whitespace() {
        let mut command = go.command(&peer.source);
        command.envs(env.clone());
        command.args(["test", "-c", "-trimpath", "-ldflags", &flags, "-o"]);
        shell::quiet(command.arg(bin.join("")).arg(package))?;
    }
    if bin.read_dir()?.next().is_none() {
        bail!(
            "{}: go.mod has no tool line, and there is no main.go, copy or test next to it",
            peer.source.join("go.mod").display()
        );
    }
    Ok(())
}

/// The content of the file `copy`, if it exists: a module, and the packages to build in it.
fn copied(source: &Path) -> Result<Option<(String, Vec<String>)>> {
    let Some(text) = optional(&source.join(COPY))? else { return Ok(None) };
    let mut words = text.split_whitespace().map(str::to_owned);
    let module = words.next().context("copy: expected a module and packages of it")?;
    Ok(Some((module, words.collect())))
}

/// Copies `module` to a writable folder. The peer's go.mod and go.sum fix its version and digest.
fn copy(peer: &Peer, go: &Go, module: &str, target: &Path) -> Result<()> {
    let mut download = go.command(&peer.source);
    let download = shell::quiet(download.args(["mod", "download", "-json", module]))?;
    let download: serde_json::Value = serde_json::from_str(&download)?;
    let folder = download["Dir"].as_str().with_context(|| format!("{module}: {download}"))?;
    let mut copy = shell::command("cp");
    copy.args(["--recursive", "--no-preserve=mode", "--no-target-directory", folder]).arg(target);
    shell::quiet(&mut copy).map(drop)
}

fn linker_flags(source: &Path) -> Result<String> {
    let own = optional(&source.join("ldflags"))?.unwrap_or_default();
    Ok(["-s", "-w"].into_iter().chain(own.split_whitespace()).collect::<Vec<_>>().join(" "))
}

fn environment(source: &Path) -> Result<Vec<(String, String)>> {
    let text = optional(&source.join("env"))?.unwrap_or_default();
    let variable = |word: &str| {
        let (name, value) = word.split_once('=')?;
        Some((name.to_owned(), value.to_owned()))
    };
    let expected = |word| format!("env: expected NAME=value, not {word:?}");
    text.split_whitespace().map(|word| variable(word).with_context(|| expected(word))).collect()
}

/// The text of a file; `None` if it does not exist.
fn optional(file: &Path) -> Result<Option<String>> {
    match fs::read_to_string(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        text => text.map(Some).with_context(|| file.display().to_string()),
    }
}

fn has_tools(module: &str) -> bool {
    module.lines().any(|line| line.split_whitespace().next() == Some("tool"))
}

fn remove(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed.with_context(|| format!("remove {}", folder.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tools_are_lines_of_their_own() {
        assert!(has_tools("module a\n\ntool (\n\tb/cmd/c\n)\n"));
        assert!(has_tools("module a\n\ntool b/cmd/c\n"));
        assert!(!has_tools("module a/tool\n\nrequire b/tool v1.0.0\n"));
    }

    #[test]
    fn a_copy_names_a_module_and_its_packages() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(copied(folder.path()).unwrap(), None);
        fs::write(folder.path().join(COPY), "a.example/m ./cmd/b ./cmd/c\n").unwrap();
        let packages = vec!["./cmd/b".to_owned(), "./cmd/c".to_owned()];
        assert_eq!(copied(folder.path()).unwrap(), Some(("a.example/m".to_owned(), packages)));
        fs::write(folder.path().join(COPY), "\n").unwrap();
        assert!(copied(folder.path()).is_err());
    }

    #[test]
    fn peers_that_no_test_uses_are_built_when_named() {
        assert!(wanted("etcd", &[]));
        assert!(!wanted("kubernetes-e2e", &[]));
        assert!(wanted("kubernetes-e2e", &["kubernetes-e2e".to_owned()]));
        assert!(!wanted("etcd", &["kubernetes-e2e".to_owned()]));
    }

    #[test]
    fn an_environment_is_names_and_values() {
        let folder = tempfile::tempdir().unwrap();
        assert!(environment(folder.path()).unwrap().is_empty());
        fs::write(folder.path().join("env"), "A=1\nB=c=d\n").unwrap();
        let variables = [("A", "1"), ("B", "c=d")].map(|(a, b)| (a.to_owned(), b.to_owned()));
        assert_eq!(environment(folder.path()).unwrap(), variables);
        fs::write(folder.path().join("env"), "A\n").unwrap();
        assert!(environment(folder.path()).is_err());
    }

    #[test]
    fn linker_flags_are_those_of_the_folder_too() {
        let folder = tempfile::tempdir().unwrap();
        assert_eq!(linker_flags(folder.path()).unwrap(), "-s -w");
        fs::write(folder.path().join("ldflags"), "-X a=b\n-X c=d\n").unwrap();
        assert_eq!(linker_flags(folder.path()).unwrap(), "-s -w -X a=b -X c=d");
    }
}
