//! The first build: the processor time of the README's first command with an empty target folder.
//!
//! The crates are fetched before. cargo starts this program in place of rustc (`RUSTC_WRAPPER`),
//! which measures the processor time of each crate.

use std::{
    collections::BTreeMap,
    ffi::OsString,
    fs::{self, OpenOptions},
    io::Write,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};

use crate::{Arguments, report::Report, usage};

/// The variable with the file for the processor time of each crate.
const TIMES: &str = "WHARF_BENCH_BUILD_TIMES";

/// How many of the slowest crates are shown.
const SHOWN: usize = 12;

/// Measures `cargo build --release`.
pub(crate) fn run(arguments: &Arguments, report: &mut Report) -> Result<()> {
    report.section("cargo build --release into an empty folder, the registry fetched");
    if arguments.quick {
        report.not_measured("processor time", "a first build takes minutes: leave out --quick");
        return Ok(());
    }
    complete(&mut cargo(Path::new("target"), &["fetch", "--locked"]))?;
    let folder = tempfile::tempdir().context("a temporary folder")?;
    let times = folder.path().join("times");
    let target = folder.path().join("target");
    let mut build = cargo(&target, &["build", "--release", "--locked", "--quiet"]);
    build.env("RUSTC_WRAPPER", std::env::current_exe()?).env(TIMES, &times);
    let (start, before) = (Instant::now(), usage::children()?);
    complete(&mut build)?;
    let (elapsed, processor) = (start.elapsed(), usage::children()? - before);

    report.at_most("processor time, user and system", processor.as_secs_f64(), 480.0, "s");
    report.show("until it is done", elapsed.as_secs_f64(), "s");
    let binary = fs::metadata(target.join("release/wharf")).context("the binary")?.len();
    report.show("the binary", binary as f64 / 1e6, "MB");
    let crates = per_crate(&fs::read_to_string(&times).context("times of the crates")?);
    report.show("crates", crates.len() as f64, "");
    for (name, time) in crates.iter().take(SHOWN) {
        report.show(name, time.as_secs_f64(), "s");
    }
    Ok(())
}

/// The command line of rustc, if cargo started this program in place of rustc.
pub(crate) fn wrapped() -> Option<Vec<OsString>> {
    std::env::var_os(TIMES)?;
    Some(std::env::args_os().skip(1).collect())
}

/// Runs the rustc in `command`, and records its processor time and the crate.
pub(crate) fn rustc(command: &[OsString]) -> ExitCode {
    match measured(command) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measured(command: &[OsString]) -> Result<ExitCode> {
    let (program, arguments) = command.split_first().context("no command to run")?;
    let status = Command::new(program).args(arguments).status().context("rustc")?;
    let name = arguments.windows(2).find(|pair| pair[0] == "--crate-name");
    if let (Some(file), Some([_, name])) = (std::env::var_os(TIMES), name) {
        let line = format!("{} {}\n", name.to_string_lossy(), usage::children()?.as_millis());
        // A single write at the end of the file, so that lines of several processes do not mix.
        OpenOptions::new().create(true).append(true).open(file)?.write_all(line.as_bytes())?;
    }
    let code = status.code().and_then(|code| u8::try_from(code).ok());
    Ok(code.map_or(ExitCode::FAILURE, ExitCode::from))
}

/// The crates with their processor times, the longest first. Build scripts count as one.
fn per_crate(lines: &str) -> Vec<(String, Duration)> {
    let mut times = BTreeMap::<_, Duration>::new();
    for line in lines.lines() {
        let Some((name, time)) = line.split_once(' ') else { continue };
        // cargo queries the compiler with an empty crate of this name.
        if name != "___" {
            *times.entry(name.to_owned()).or_default() +=
                Duration::from_millis(time.parse().unwrap_or_default());
        }
    }
    let mut times: Vec<_> = times.into_iter().collect();
    times.sort_by_key(|(_, time)| std::cmp::Reverse(*time));
    times
}

/// cargo in the repository, with `target` as the folder of its output.
fn cargo(target: &Path, arguments: &[&str]) -> Command {
    let repository = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut command = Command::new("cargo");
    command.current_dir(repository).args(arguments).env("CARGO_TARGET_DIR", target);
    command
}

fn complete(command: &mut Command) -> Result<()> {
    let status = command.status().context("cargo")?;
    if !status.success() {
        bail!("cargo: {status}");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_added_up_and_sorted() {
        let times = per_crate("a 5\nb 7\n___ 90\na 4\nnonsense\n");
        let expected =
            [("a", 9), ("b", 7)].map(|(name, time)| (name.to_owned(), Duration::from_millis(time)));
        assert_eq!(times, expected);
    }
}
