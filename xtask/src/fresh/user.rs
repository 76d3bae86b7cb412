//! A user with a toolchain and Go, and nothing else.

use std::{
    fs,
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process_group};
use wharf_testkit::peers;

use crate::shell;

/// Debian's `nobody`: an ordinary user on every machine, without files.
const NOBODY: u32 = 65534;

/// The folder of the clone in the home folder.
const CLONE: &str = "wharf";

/// Downloads that may be copied from the caller's home: crates, the registry's index, Go modules.
const REGISTRY_CACHES: &[&str] = &[".cargo/registry", "go/pkg/mod/cache/download"];

/// Folders whose size is reported.
const GROWING: &[&str] = &[".cargo", "go", ".cache/go-build", ".cache/wharf", CLONE];

/// A home folder, its owner, and the environment of a login.
pub(super) struct User {
    name: &'static str,
    id: u32,
    home: PathBuf,
    path: String,
}

impl User {
    pub(super) fn root(homes: &Path, toolchain: &Path) -> Result<Self> {
        Self::new("root", 0, homes, toolchain)
    }

    pub(super) fn ordinary(homes: &Path, toolchain: &Path) -> Result<Self> {
        Self::new("nobody", NOBODY, homes, toolchain)
    }

    fn new(name: &'static str, id: u32, homes: &Path, toolchain: &Path) -> Result<Self> {
        // With a space, to find scripts that do not quote it.
        let home = homes.join(format!("home of {name}"));
        let path = std::env::var("PATH").context("PATH")?;
        let own = std::env::home_dir().context("HOME")?;
        let path = login_path(&path, &own, toolchain);
        Ok(Self { name, id, home, path })
    }

    /// Makes the home folder and the clone in it; copies registry caches unless `cold`.
    pub(super) fn prepare(&self, cold: bool) -> Result<()> {
        fs::create_dir(&self.home).with_context(|| self.home.display().to_string())?;
        let mut clone = Command::new("sh");
        clone.args(["-c", r#"umask 077; exec git clone --quiet --no-hardlinks "$0" "$1""#]);
        shell::quiet(clone.arg(peers::repository()).arg(self.home.join(CLONE)))?;
        let own = std::env::home_dir().context("HOME")?;
        for cache in REGISTRY_CACHES.iter().filter(|_| !cold) {
            let (from, to) = (own.join(cache), self.home.join(cache));
            if from.is_dir() {
                fs::create_dir_all(to.parent().unwrap_or(&to))?;
                copy(&from, &to, "--recursive")?;
            }
        }
        let owner = format!("{0}:{0}", self.id);
        shell::quiet(Command::new("chown").args(["-R", &owner]).arg(&self.home)).map(drop)
    }

    /// Runs `script` in the clone, printing its output, and kills processes that it left.
    pub(super) fn run(&self, script: &str, deadline: Duration) -> Result<()> {
        let mut command = Command::new("timeout");
        command.args(["--kill-after=10", &deadline.as_secs().to_string(), "setpriv"]);
        let id = self.id.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups", "bash", "-c"]);
        command.arg(format!("umask 077\n{script}")).current_dir(self.home.join(CLONE));
        command.env_clear().envs(network_settings()).env("PATH", &self.path);
        command.env("HOME", &self.home).env("USER", self.name).env("LOGNAME", self.name);
        let mut child = command.process_group(0).spawn().context("timeout")?;
        let group = Pid::from_child(&child);
        let status = child.wait()?;
        // Fails if no process is left in the group.
        let _ = kill_process_group(group, Signal::KILL);
        match status.success() {
            true => Ok(()),
            false => bail!("{status}"),
        }
    }

    /// The sizes of the home folder's large folders, in MiB.
    pub(super) fn sizes(&self) -> Result<Vec<(String, u64)>> {
        let mut sizes = Vec::new();
        for folder in GROWING.iter().filter(|folder| self.home.join(folder).exists()) {
            let mut du = Command::new("du");
            let size = shell::quiet(du.args(["-sm"]).arg(self.home.join(folder)))?;
            let mib = size.split_whitespace().next().and_then(|size| size.parse().ok());
            sizes.push((format!("~{}/{folder}", self.name), mib.context("du's output")?));
        }
        Ok(sizes)
    }

    /// Removes the home folder. Go writes its modules read-only, which does not stop root.
    pub(super) fn remove(&self) -> Result<()> {
        fs::remove_dir_all(&self.home).with_context(|| self.home.display().to_string())
    }
}

/// A copy of the running toolchain below `homes`, readable for every user: rustup keeps it in a
/// home folder.
pub(super) fn toolchain(homes: &Path) -> Result<PathBuf> {
    let sysroot = shell::quiet(Command::new("rustc").args(["--print", "sysroot"]))?;
    let copied = homes.join("toolchain");
    let from = Path::new(sysroot.trim());
    // Hard links take neither time nor space, but need the same disk.
    if copy(from, &copied, "-al").is_err() {
        copy(from, &copied, "-a")?;
    }
    Ok(copied)
}

fn copy(from: &Path, to: &Path, how: &str) -> Result<()> {
    let mut cp = Command::new("cp");
    shell::quiet(cp.args([how, "--no-target-directory"]).arg(from).arg(to)).map(drop)
}

/// The toolchain's folder, then the folders of `path` outside of the caller's home.
fn login_path(path: &str, home: &Path, toolchain: &Path) -> String {
    let system = path.split(':').filter(|folder| !Path::new(folder).starts_with(home));
    let compiler = toolchain.join("bin").display().to_string();
    std::iter::once(compiler.as_str()).chain(system).collect::<Vec<_>>().join(":")
}

/// The environment variables with this machine's access to package registries.
fn network_settings() -> impl Iterator<Item = (String, String)> {
    std::env::vars().filter(|(name, _)| is_network_setting(name))
}

fn is_network_setting(name: &str) -> bool {
    let name = name.to_ascii_uppercase();
    name.ends_with("PROXY") || name.starts_with("SSL_CERT_") || name.ends_with("_CA_BUNDLE")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_login_finds_the_compiler_and_nothing_of_another_home() {
        let path =
            login_path("/home/a/.cargo/bin:/usr/bin:/bin", Path::new("/home/a"), Path::new("/t"));
        assert_eq!(path, "/t/bin:/usr/bin:/bin");
    }

    #[test]
    fn only_settings_of_the_network_are_kept() {
        let kept = |name: &&str| is_network_setting(name);
        let names = ["https_proxy", "GOPROXY", "SSL_CERT_FILE", "CARGO_TARGET_DIR", "HOME", "CI"];
        let kept: Vec<_> = names.into_iter().filter(kept).collect();
        assert_eq!(kept, ["https_proxy", "GOPROXY", "SSL_CERT_FILE"]);
    }
}
