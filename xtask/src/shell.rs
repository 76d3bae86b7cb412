//! Runs commands in the repository's root.

use std::{
    path::PathBuf,
    process::{Command, Stdio},
};

use anyhow::{Context, Result, bail};
use cargo_metadata::MetadataCommand;
use wharf_testkit::peers;

/// `program`, with the repository's root as its working folder.
pub(crate) fn command(program: &str) -> Command {
    let mut command = Command::new(program);
    command.current_dir(peers::repository());
    command
}

/// cargo. In CI, where each clone is built once, without incremental compilation.
pub(crate) fn cargo() -> Command {
    let mut command = command("cargo");
    if std::env::var_os("CI").is_some() {
        command.env("CARGO_INCREMENTAL", "0");
    }
    command
}

/// The folder of cargo's output.
pub(crate) fn target() -> Result<PathBuf> {
    let mut metadata = MetadataCommand::new();
    let metadata = metadata.current_dir(peers::repository()).no_deps().exec()?;
    Ok(metadata.target_directory.into_std_path_buf())
}

/// Runs `command`, printing its output.
pub(crate) fn run(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| line(command))?;
    if !status.success() {
        bail!("{}: {status}", line(command));
    }
    Ok(())
}

/// Runs `command` and returns its standard output; prints its output only if it fails.
pub(crate) fn quiet(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| line(command))?;
    let out = String::from_utf8_lossy(&output.stdout).into_owned();
    if !output.status.success() {
        let err = String::from_utf8_lossy(&output.stderr);
        bail!("{}: {}\n{out}{err}", line(command), output.status);
    }
    Ok(out)
}

/// The path of `program`, if it is installed.
pub(crate) fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    // Debian keeps some programs in folders that are not in every user's PATH.
    let folders = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]);
    folders.map(|folder| folder.join(program)).find(|file| file.is_file())
}

fn line(command: &Command) -> String {
    let words = std::iter::once(command.get_program()).chain(command.get_args());
    words.map(|word| word.to_string_lossy()).collect::<Vec<_>>().join(" ")
}
