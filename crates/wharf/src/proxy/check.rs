use std::{io::Write, path::PathBuf, process::ExitCode};

use clap::Args;
use wharf_criproxy::check;
use wharf_facts::hook;

/// Lists the hook servers that a proxy would call, in order, and errors in their files
///
/// Exits with 1 if the proxy would refuse a file.
#[derive(Args)]
pub(super) struct CheckConfig {
    /// Folder with a file for each hook server
    #[arg(long, value_name = "DIR", default_value = hook::FOLDER)]
    hooks_dir: PathBuf,
}

impl CheckConfig {
    pub(super) fn run(self) -> ExitCode {
        let report = check(&self.hooks_dir);
        let printed = write!(std::io::stdout(), "{report}");
        if report.is_ok() && printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
    }
}
