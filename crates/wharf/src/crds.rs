//! `wharf crds`: prints or installs the snapshot CRDs, which Kubernetes itself does not include.

use std::{io::Write, process::ExitCode, time::Duration};

use clap::{Args, Subcommand, ValueEnum};
use serde_json::{Value, json};
use wharf_sidecars::crds::{Crd, Installed, SNAPSHOT_CRDS, install};

use crate::{
    access::KubectlArgs,
    runtime::{Threads, duration, run},
};

/// Prints the CustomResourceDefinitions of snapshots, or installs them.
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct Crds {
    #[command(subcommand)]
    command: Option<Command>,
    /// Form of the output
    #[arg(short, long, value_enum, default_value = "yaml")]
    output: Output,
}

#[derive(Subcommand)]
enum Command {
    Install(Install),
}

/// Creates missing CustomResourceDefinitions and waits until the API server serves them. Existing
/// ones do not change.
#[derive(Args)]
struct Install {
    #[command(flatten)]
    cluster: KubectlArgs,
    /// Time that the API server has to serve them
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    timeout: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Output {
    /// YAML documents for kubectl
    Yaml,
    /// One JSON list for programs
    Json,
}

impl Crds {
    pub(crate) fn run(self) -> ExitCode {
        run(Threads::One, |stop| async move {
            match self.command {
                None => print(self.output)?,
                Some(Command::Install(command)) => {
                    stop.run_until_cancelled(command.install()).await.unwrap_or(Ok(()))?;
                }
            }
            Ok(ExitCode::SUCCESS)
        })
    }
}

impl Install {
    async fn install(self) -> anyhow::Result<()> {
        let client = self.cluster.client().await?;
        let mut out = std::io::stdout().lock();
        for (name, done) in install(&client, self.timeout).await? {
            match done {
                Installed::Created => writeln!(out, "{name} created")?,
                Installed::Kept => writeln!(out, "{name} exists, unchanged")?,
            }
        }
        Ok(())
    }
}

fn print(output: Output) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match output {
        Output::Yaml => {
            for crd in &SNAPSHOT_CRDS {
                write!(out, "---\n{}", crd.yaml)?;
            }
        }
        Output::Json => {
            let items: Vec<Value> = SNAPSHOT_CRDS.iter().map(Crd::document).collect();
            let list = json!({ "apiVersion": "v1", "kind": "List", "items": items });
            writeln!(out, "{}", serde_json::to_string_pretty(&list)?)?;
        }
    }
    Ok(())
}
