//! `cargo xtask fresh`: runs the steps of a new user, with an empty home folder and a clone.
//!
//! An ordinary user runs `cargo xtask test --quick`. Then root runs every shell block of the README
//! and the docs, including the README's two commands, in the order of the documents. Both have a
//! home folder with a space in its path, a umask of 077, and an environment without this user's
//! variables.

mod packages;
mod user;

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    process::ExitCode,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rustix::process::geteuid;
use wharf_testkit::docs::{self, Scratch};

use self::user::User;
use crate::shell;

/// The limit of a step: a cold `cargo xtask test` takes about an hour on two cores.
const PATIENCE: Duration = Duration::from_secs(3 * 60 * 60);

/// How to run the steps.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Download every crate and Go module again instead of copying this user's registry caches
    #[arg(long)]
    cold: bool,
    /// Keep the home folders, and print their path
    #[arg(long)]
    keep: bool,
}

/// Runs every step, also after a failure. The exit code is 0 if all of them passed.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    ensure!(geteuid().is_root(), "the tests of the README need root: run this as root");
    let changed = shell::quiet(shell::command("git").args(["status", "--porcelain"]))?;
    if !changed.is_empty() {
        println!("fresh: uncommitted changes are not part of the clone:\n{changed}");
    }
    let blocks = docs::blocks().context("documents")?;
    let homes = tempfile::Builder::new().prefix("wharf-fresh-").tempdir()?;
    // The ordinary user needs to traverse this folder.
    fs::set_permissions(homes.path(), fs::Permissions::from_mode(0o711))?;
    let toolchain = user::toolchain(homes.path())?;
    let mut report = Report::default();

    let ordinary = User::ordinary(homes.path(), &toolchain)?;
    let root = User::root(homes.path(), &toolchain)?;
    // Both clone now, so that both have the same commit.
    ordinary.prepare(options.cold)?;
    root.prepare(options.cold)?;
    // First, while the packages that root will install are still missing.
    report.step("cargo xtask test --quick, as an ordinary user", || {
        ordinary.run("cargo xtask test --quick", PATIENCE)
    });
    report.sizes(ordinary.sizes()?);
    if !options.keep {
        ordinary.remove()?;
    }

    let before = packages::installed()?;
    for block in blocks {
        report.step(&format!("{}: {}", block.name(), summary(&block.script)), || {
            // A block without `mktemp` gets a folder of its own; others make and remove theirs.
            let scratch = match block.script.contains("mktemp") {
                true => Some(Scratch(tempfile::tempdir()?)),
                false => None,
            };
            let temporary = scratch.as_ref().map(|scratch| scratch.0.path());
            let export = temporary.map(|path| format!("export TMPDIR={}", path.display()));
            let export = export.unwrap_or_default();
            root.run(&format!("set -euo pipefail\n{export}\n{}", block.script), PATIENCE)
        });
    }
    report.sizes(root.sizes()?);
    report.packages(packages::added(&before, &packages::installed()?));
    if options.keep {
        println!("fresh: the home folders are kept in {}", homes.keep().display());
    }
    Ok(report.close())
}

/// The first line of a script.
fn summary(script: &str) -> &str {
    script.lines().next().unwrap_or_default()
}

#[derive(Default)]
struct Report {
    lines: Vec<String>,
    passed: usize,
    failed: usize,
}

impl Report {
    fn step(&mut self, name: &str, step: impl FnOnce() -> Result<()>) {
        println!("== fresh: {name}");
        let start = Instant::now();
        let result = step();
        let seconds = start.elapsed().as_secs();
        let outcome = match &result {
            Ok(()) => "passed".to_owned(),
            Err(error) => format!("FAILED: {error:#}"),
        };
        *if result.is_ok() { &mut self.passed } else { &mut self.failed } += 1;
        let line = format!("{:>3} min {:02} s  {outcome}  {name}", seconds / 60, seconds % 60);
        println!("== fresh: {line}");
        self.lines.push(line);
    }

    fn sizes(&mut self, sizes: Vec<(String, u64)>) {
        let size = |(name, mib): (String, u64)| format!("{mib:>8} MiB  {name}");
        self.lines.extend(sizes.into_iter().map(size));
    }

    fn packages(&mut self, added: Vec<String>) {
        self.lines.push(format!("Debian packages installed: {}", added.len()));
        self.lines.extend(added.into_iter().map(|package| format!("  {package}")));
    }

    fn close(&self) -> ExitCode {
        println!("== fresh: summary");
        self.lines.iter().for_each(|line| println!("{line}"));
        println!("fresh: {} passed, {} failed", self.passed, self.failed);
        if self.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ci_runs_the_second_command_of_the_readme_and_nothing_else() {
        let root = wharf_testkit::peers::repository();
        let script = fs::read_to_string(root.join(".ci/run")).unwrap();
        let commands: Vec<_> = script.lines().filter(|line| !line.starts_with('#')).collect();
        let tests = "cargo xtask test";
        assert_eq!(commands, ["set -euo pipefail", r#"cd "$(dirname "$0")/..""#, tests]);
        let blocks = docs::blocks().unwrap();
        let readme: Vec<_> = blocks.iter().take(2).map(|block| block.script.trim()).collect();
        assert_eq!(readme, ["cargo run --release -- demo", tests]);
    }
}
