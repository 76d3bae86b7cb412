use std::{io::Write, process::ExitCode, time::Duration};

use anyhow::Context;
use clap::Args;
use wharf_registration::survey;

use super::{Folder, Output, table};
use crate::{
    running::{Threads, run},
    text::json,
};

/// Asks every plugin who it is. Plugins are not told anything: what they are registered as stays as it is.
#[derive(Args)]
pub(crate) struct Ls {
    #[command(flatten)]
    folder: Folder,
    /// Table or JSON
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
    /// How long to wait for a socket to accept a connection
    #[arg(long, default_value = "1s", value_parser = crate::running::duration)]
    timeout: Duration,
}

impl Ls {
    pub(crate) fn run(self) -> ExitCode {
        run(Threads::One, |_| async move {
            let root = &self.folder.root;
            let lines = survey::look(root, self.timeout).await.with_context(|| {
                format!("--root {}: not a folder that can be read", root.display())
            })?;
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
