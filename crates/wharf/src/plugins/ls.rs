use std::{io::Write, process::ExitCode, time::Duration};

use anyhow::Context;
use clap::Args;
use wharf_registration::survey;

use super::{Folder, Output, table};
use crate::{
    runtime::{Threads, run},
    text::json,
};

/// Calls GetInfo of every plugin. Registrations do not change.
#[derive(Args)]
pub(crate) struct Ls {
    #[command(flatten)]
    folder: Folder,
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// Limit for a socket to accept a connection
    #[arg(long, default_value = "1s", value_parser = crate::runtime::duration)]
    timeout: Duration,
}

impl Ls {
    pub(crate) fn run(self) -> ExitCode {
        run(Threads::One, |_| async move {
            let root = &self.folder.root;
            let lines = survey::look(root, self.timeout)
                .await
                .with_context(|| format!("--root {}: cannot read this folder", root.display()))?;
            let mut out = std::io::stdout().lock();
            match self.output {
                Output::Json => writeln!(out, "{}", json(&lines)?)?,
                Output::Table if lines.is_empty() => {
                    writeln!(out, "No plugin sockets in {}.", root.display())?;
                }
                Output::Table => writeln!(out, "{}", table::render(root, &lines))?,
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}
