//! Removes the remains of a cluster, from outside of the test process: also when that is killed,
//! and for clusters in statics, which Rust never drops.

use std::{
    os::unix::process::CommandExt,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, pidfd_open},
};

use crate::process::wait_for;

const DROP: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };

/// Owns the cluster's folder and, with containers, its control group, named after the folder.
#[derive(Debug)]
pub(super) struct Guard {
    folder: PathBuf,
    watcher: Child,
}

impl Guard {
    pub(super) fn new(groups: bool) -> Result<Self> {
        // A short name: paths of sockets below it may have 107 bytes.
        let folder = tempfile::Builder::new().prefix("wharf-").rand_bytes(6).tempdir()?.keep();
        let watcher = Command::new("sh")
            .args(["-c", include_str!("guard.sh"), "guard"])
            .arg(&folder)
            .arg(if groups { "groups" } else { "folder" })
            // A signal from the terminal ends the tests, and must not end their guard.
            .process_group(0)
            .current_dir("/")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .context("start sh")?;
        let guard = Self { folder, watcher };
        if groups {
            guard.make_groups()?;
        }
        Ok(guard)
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    /// The control group's path, for a kubelet's `cgroupRoot`.
    pub(super) fn group(&self) -> String {
        format!("/{}", self.folder.file_name().unwrap_or_default().display())
    }

    /// `program`, as a member of the control group. Its children are members, too, including shims
    /// of containers.
    pub(super) fn member(&self, program: impl AsRef<std::ffi::OsStr>) -> Result<Command> {
        let mut command = Command::new("sh");
        command.args(["-c", r#"for group; do [ "$group" = -- ] && break; echo $$ > "$group"; shift; done; shift; exec "$@""#, "member"]);
        for hierarchy in hierarchies()? {
            command.arg(hierarchy.join(&self.group()[1..]).join("bench/cgroup.procs"));
        }
        command.arg("--").arg(program);
        Ok(command)
    }

    /// Cleans up and waits until nothing is left.
    pub(super) async fn clear(mut self, deadline: Duration) -> Result<()> {
        drop(self.watcher.stdin.take());
        let watcher = &mut self.watcher;
        wait_for(deadline, "the guard of the cluster's folder to clear up", || {
            std::future::ready(watcher.try_wait().transpose())
        })
        .await??;
        ensure!(!self.folder.exists(), "{} could not be removed", self.folder.display());
        Ok(())
    }

    fn make_groups(&self) -> Result<()> {
        for hierarchy in hierarchies()? {
            let group = hierarchy.join(&self.group()[1..]).join("bench");
            std::fs::create_dir_all(&group)
                .with_context(|| format!("control group {}", group.display()))?;
        }
        Ok(())
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        drop(self.watcher.stdin.take());
        if let Ok(exit) = pidfd_open(Pid::from_child(&self.watcher), PidfdFlags::empty()) {
            let _ = poll(&mut [PollFd::new(&exit, PollFlags::IN)], Some(&DROP));
        }
        let _ = self.watcher.try_wait();
    }
}

/// The roots of the cgroup hierarchies: one of version 2, or one per controller of version 1.
fn hierarchies() -> Result<Vec<PathBuf>> {
    let root = Path::new("/sys/fs/cgroup");
    let rooted = |path: &PathBuf| path.join("cgroup.procs").exists();
    if rooted(&root.to_owned()) {
        return Ok(vec![root.to_owned()]);
    }
    let entries = root.read_dir()?.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    Ok(entries.into_iter().filter(rooted).collect())
}
