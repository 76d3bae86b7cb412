//! `cargo xtask test`: runs every check and every test, all of them even after a failure, and
//! prints a summary.

mod leftovers;
mod libtest;
mod space;
mod tools;

use std::{
    io::{BufRead, BufReader, Write},
    process::{Command, ExitCode, Stdio},
    time::Instant,
};

use anyhow::{Context, Result, bail};
use wharf_testkit::{peers as bench, skip};

use self::{leftovers::Leftovers, libtest::Tally};
use crate::{packages, peers, shell, tidy};

/// Options of the task.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Skip tests that need real peers
    #[arg(long)]
    quick: bool,
    /// Run only tests whose name contains this
    #[arg(long, value_name = "TEXT")]
    filter: Option<String>,
}

/// Runs everything. The exit code is 0 if nothing failed.
pub(crate) fn run(options: &Options) -> ExitCode {
    let mut report = Report::default();
    if !options.quick {
        report.check("space", space::ensure);
        report.check("packages", packages::install);
        report.check("peers", || peers::build(&[]));
    }
    report.check("format", || shell::run(shell::cargo().args(["fmt", "--all", "--check"])));
    report.check("clippy", || shell::run(&mut clippy()));
    report.check("documentation", || shell::run(&mut documentation()));
    report.check("tidy", tidy::run);
    report.check("deny", tools::deny);
    let before = Leftovers::now();
    report.tests(options);
    report.check("leftovers", || before.ensure_none_added());
    report.close()
}

#[derive(Default)]
struct Report {
    tally: Tally,
    skipped: Vec<skip::Skip>,
    failed: Vec<String>,
}

impl Report {
    fn check(&mut self, name: &str, check: impl FnOnce() -> Result<()>) {
        println!("== {name}");
        let start = Instant::now();
        match check() {
            Ok(()) => println!("== {name}: {:.0?}", start.elapsed()),
            Err(error) => {
                println!("== {name} failed: {error:#}");
                self.failed.push(name.to_owned());
            }
        }
    }

    fn tests(&mut self, options: &Options) {
        let mut tally = Tally::default();
        let mut skipped = Vec::new();
        self.check("tests", || {
            skipped = test(options, &mut tally)?;
            Ok(())
        });
        (self.tally, self.skipped) = (tally, skipped);
    }

    fn close(&self) -> ExitCode {
        for text in &self.tally.failures {
            println!("{text}");
        }
        for skip in &self.skipped {
            println!("skipped {} of {}: {}", skip.test, skip.binary, skip.reason);
        }
        for name in &self.failed {
            println!("failed: {name}");
        }
        let skipped = self.skipped.len();
        let failed = self.tally.failed + self.failed.len();
        println!(
            "{} passed, {failed} failed, {} skipped",
            self.tally.passed.saturating_sub(skipped),
            self.tally.ignored + skipped
        );
        if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}

fn clippy() -> Command {
    let mut command = shell::cargo();
    command.args(["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"]);
    command
}

fn documentation() -> Command {
    let mut command = shell::cargo();
    command.args(["doc", "--quiet", "--workspace", "--no-deps", "--document-private-items"]);
    command.env("RUSTDOCFLAGS", "-D warnings");
    command
}

/// Runs cargo test, prints its output and counts results; returns the skipped tests.
fn test(options: &Options, tally: &mut Tally) -> Result<Vec<skip::Skip>> {
    let folder = tempfile::tempdir()?;
    let skips = folder.path().join("skips");
    let mut command = shell::cargo();
    command.args(["test", "--workspace", "--no-fail-fast", "--"]).args(&options.filter);
    command.env(skip::SKIPS, &skips).stdout(Stdio::piped());
    if options.quick {
        command.env(bench::SKIP_PEERS, "1");
    }
    let mut child = command.spawn().context("cargo test")?;
    let output = child.stdout.take().context("cargo's output")?;
    for line in BufReader::new(output).lines() {
        let line = line.context("cargo's output")?;
        writeln!(std::io::stdout(), "{line}")?;
        tally.line(&line);
    }
    let status = child.wait()?;
    let skips = skip::read(&skips)?;
    if !status.success() && tally.failed == 0 {
        bail!("cargo test: {status}, and no test failed: it did not build, or a test process died");
    }
    Ok(skips)
}
