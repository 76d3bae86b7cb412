//! `cargo xtask fuzz [TARGET]`: runs the targets of `fuzz/` under libFuzzer.
//!
//! `cargo xtask test` runs the same checks with seeded input. This runs them longer, with coverage
//! feedback, which needs a nightly compiler.

use std::fs;

use anyhow::{Context, Result, bail};
use wharf_testkit::peers;

use crate::shell;

/// A package outside of the workspace.
const PACKAGE: &str = "fuzz";
const TARGETS: &[&str] = &["frames", "hook-server-file", "messages", "requests"];

/// Which targets to run, and for how long.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The target; by default all of them, one after the other
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(TARGETS))]
    target: Option<String>,
    /// How long each target runs, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

/// Runs targets until their time is over, or until one fails: its input is then in
/// `fuzz/artifacts`.
pub(crate) fn run(options: &Options) -> Result<()> {
    installed()?;
    let named = options.target.as_deref();
    for target in TARGETS.iter().filter(|target| named.is_none_or(|named| named == **target)) {
        println!("== {target}: {} s", options.seconds);
        // The corpus of earlier runs is the input of the next.
        let corpus = peers::cache().join(PACKAGE).join(target);
        fs::create_dir_all(&corpus).with_context(|| corpus.display().to_string())?;
        let mut fuzz = shell::cargo();
        fuzz.args(["+nightly", "fuzz", "run", "--fuzz-dir", PACKAGE, target]).arg(corpus);
        fuzz.args(["--", &format!("-max_total_time={}", options.seconds), "-print_final_stats=1"]);
        shell::run(&mut fuzz)?;
    }
    Ok(())
}

/// Lists everything that is missing, with the command that installs it.
fn installed() -> Result<()> {
    let answers =
        |arguments: &[&str]| shell::quiet(shell::command("cargo").args(arguments)).is_ok();
    let needs = [
        ("a nightly compiler", &["+nightly", "--version"][..], "rustup toolchain install nightly"),
        ("cargo-fuzz", &["fuzz", "--version"], "cargo install cargo-fuzz"),
    ];
    let missing: Vec<_> = needs
        .into_iter()
        .filter(|(_, question, _)| !answers(question))
        .map(|(name, _, remedy)| format!("{name} is not installed: {remedy}"))
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    bail!(
        "{}\nthe same checks run on stable, with seeded input: cargo test --package wharf-wire --package wharf-criproxy --lib fuzz",
        missing.join("\n")
    );
}
