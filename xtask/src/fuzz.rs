//! `cargo xtask fuzz [TARGET]`: the targets of `fuzz/` under libFuzzer, for a while each.
//!
//! What they check is also tested with seeded input, by `cargo xtask test`. This goes on where that stops, with what
//! only a nightly compiler can do.

use std::fs;

use anyhow::{Context, Result, bail};
use wharf_testkit::peers;

use crate::shell;

/// A folder beside the workspace, with a package of its own.
const PACKAGE: &str = "fuzz";
const TARGETS: &[&str] = &["frames", "hook-server-file", "messages", "requests"];

/// What to run, and for how long.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// The target; all of them, one after the other, unless named
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(TARGETS))]
    target: Option<String>,
    /// How long each target runs
    #[arg(long, value_name = "SECONDS", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..))]
    seconds: u32,
}

/// Runs targets until their time is over, or until one fails: its input is then in `fuzz/artifacts`.
pub(crate) fn run(options: &Options) -> Result<()> {
    installed()?;
    let named = options.target.as_deref();
    for target in TARGETS.iter().filter(|target| named.is_none_or(|named| named == **target)) {
        println!("== {target}: {} s", options.seconds);
        // What was found before is where the next run begins.
        let corpus = peers::cache().join(PACKAGE).join(target);
        fs::create_dir_all(&corpus).with_context(|| corpus.display().to_string())?;
        let mut fuzz = shell::cargo();
        fuzz.args(["+nightly", "fuzz", "run", "--fuzz-dir", PACKAGE, target]).arg(corpus);
        fuzz.args(["--", &format!("-max_total_time={}", options.seconds), "-print_final_stats=1"]);
        shell::run(&mut fuzz)?;
    }
    Ok(())
}

/// Says everything that is missing at once, with what to do about it.
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
