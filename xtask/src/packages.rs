//! Debian packages that tests and the build of peers need.

use std::{path::Path, process::Command};

use anyhow::{Context, Result, bail};
use rustix::process::geteuid;

use crate::shell;

/// A program, by name or path, or another file, and its package.
const PROGRAMS: &[(&str, &str)] = &[
    ("containerd", "containerd"),
    ("runc", "runc"),
    ("/usr/lib/cni/ptp", "containernetworking-plugins"),
    ("busybox", "busybox-static"),
    ("curl", "curl"),
    ("jq", "jq"),
    ("openssl", "openssl"),
    ("promtool", "prometheus"),
    ("setpriv", "util-linux"),
    ("systemd-socket-activate", "systemd"),
    ("mkfs.ext4", "e2fsprogs"),
    ("mkfs.xfs", "xfsprogs"),
    ("mkfs.btrfs", "btrfs-progs"),
    ("fio", "fio"),
    ("mount", "mount"),
    ("/usr/include/perfmon/pfmlib.h", "libpfm4-dev"),
];

/// Installs missing packages as root on Debian; otherwise fails with the command to run.
pub(crate) fn install() -> Result<()> {
    let missing = missing(|program| shell::find(program).is_some() || Path::new(program).is_file());
    if missing.is_empty() {
        return Ok(());
    }
    let advice = format!("install {0}, as root: apt-get install {0}", missing.join(" "));
    if shell::find("apt-get").is_none() || !geteuid().is_root() {
        bail!("{advice}");
    }
    println!("packages: apt-get installs {}", missing.join(" "));
    if shell::quiet(&mut apt(&missing)).is_err() {
        // The package lists may be missing or out of date.
        shell::quiet(Command::new("apt-get").arg("update"))?;
        shell::quiet(&mut apt(&missing)).context(advice)?;
    }
    Ok(())
}

fn missing(installed: impl Fn(&str) -> bool) -> Vec<&'static str> {
    PROGRAMS
        .iter()
        .filter(|(program, _)| !installed(program))
        .map(|(_, package)| *package)
        .collect()
}

fn apt(packages: &[&str]) -> Command {
    let mut command = Command::new("apt-get");
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command.args(["install", "--yes", "--no-install-recommends"]).args(packages);
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_not_there_is_asked_for() {
        assert_eq!(missing(|program| program != "runc"), ["runc"]);
        assert!(missing(|_| true).is_empty());
    }
}
