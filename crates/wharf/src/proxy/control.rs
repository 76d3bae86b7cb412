//! `wharf proxy status`, `forget` and `upgrade`: questions to a running proxy through its control socket.

use std::{fmt::Display, io::Write, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context, anyhow, bail};
use clap::{Args, ValueEnum};
use comfy_table::{Table, presets::NOTHING};
use wharf_criproxy::{ConfigStatus, ControlAnswer, ControlQuestion, ServerStatus};
use wharf_uds::{ask_line, socket_of};

use super::CONTROL;

/// How long an answer may take: as long as a successor may take to start, one that waits for another's.
const PATIENCE: Duration = Duration::from_secs(60);
const NOT_UNDERSTOOD: &str = "the proxy's answer is not understood; is it of another version?";

/// Lists the hook servers of a running proxy: their files, sockets, policies and errors
#[derive(Args)]
pub(super) struct Status {
    #[command(flatten)]
    proxy: ProxyArgs,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value = "table")]
    output: Output,
}

/// Lets pods run without a required hook server whose file is gone
///
/// For a server that is not coming back. One that --require-server names is required again when its file is back, or when
/// the proxy is started again with that flag.
#[derive(Args)]
pub(super) struct Forget {
    /// Name of the hook server: that of its file without .json
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    proxy: ProxyArgs,
}

/// Has a running proxy start its program anew, and hand over to it
///
/// For a new version of the program, at the same path: it gets the same arguments and the sockets, and no call is lost. If
/// it does not come to serve, the running proxy goes on, and this command ends with 1. Changed arguments take a restart, or
/// a proxy that is started with --take-over.
#[derive(Args)]
pub(super) struct Upgrade {
    #[command(flatten)]
    proxy: ProxyArgs,
}

#[derive(Args)]
struct ProxyArgs {
    /// The proxy's --control
    #[arg(long, value_name = "SOCKET", default_value = CONTROL, value_parser = socket_of)]
    control: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Output {
    Table,
    Json,
}

impl Status {
    pub(super) fn run(self) -> ExitCode {
        exit_code(self.show())
    }

    fn show(&self) -> anyhow::Result<()> {
        let ControlAnswer::Status(status) = self.proxy.ask(&ControlQuestion::Status)? else {
            bail!(NOT_UNDERSTOOD);
        };
        match self.output {
            Output::Json => print(serde_json::to_string_pretty(&status)?),
            Output::Table => print(table(&status)),
        }
    }
}

impl Forget {
    pub(super) fn run(self) -> ExitCode {
        exit_code(self.forget())
    }

    fn forget(self) -> anyhow::Result<()> {
        match self.proxy.ask(&ControlQuestion::Forget(self.name))? {
            ControlAnswer::Done(done) => print(done),
            _ => bail!(NOT_UNDERSTOOD),
        }
    }
}

impl Upgrade {
    pub(super) fn run(self) -> ExitCode {
        exit_code(match self.proxy.ask(&ControlQuestion::Upgrade) {
            Ok(ControlAnswer::Done(done)) => print(done),
            Ok(_) => Err(anyhow!(NOT_UNDERSTOOD)),
            Err(error) => Err(error),
        })
    }
}

impl ProxyArgs {
    fn ask(&self, question: &ControlQuestion) -> anyhow::Result<ControlAnswer> {
        let socket = self.control.display();
        let line = ask_line(&self.control, &serde_json::to_string(question)?, PATIENCE);
        let line = line.with_context(|| {
            format!("no proxy answers at {socket}: start it, or name its socket with --control")
        })?;
        let answer = serde_json::from_str(&line).with_context(|| {
            format!("{socket}: the proxy's answer is not understood; is it of another version?")
        })?;
        match answer {
            ControlAnswer::Failed(reason) => bail!("{reason}"),
            answer => Ok(answer),
        }
    }
}

fn table(ConfigStatus { servers, faults, container_events }: &ConfigStatus) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING);
    table.set_header(["NAME", "FILE", "STATE", "EFFECT", "REQUIRED", "ENDPOINT", "HOOKS", "ERROR"]);
    for server in servers {
        table.add_row(row(server));
    }
    let faults = faults.iter().map(|fault| format!("\n{fault}"));
    let notes = container_events.note().map(|note| format!("\n{note}"));
    table.trim_fmt() + &faults.chain(notes).collect::<String>()
}

fn row(server: &ServerStatus) -> [String; 8] {
    let endpoint = server.endpoint.as_ref().map(|it| it.display().to_string());
    let hooks = server.hooks.iter().map(|(hook, policy)| format!("{hook}={policy}"));
    [
        server.name.escape_debug().to_string(),
        server.file.escape_debug().to_string(),
        server.state.to_string(),
        server.effect.to_string(),
        if server.required { "yes" } else { "no" }.to_owned(),
        endpoint.unwrap_or_default().escape_debug().to_string(),
        hooks.collect::<Vec<_>>().join(","),
        server.error.as_deref().unwrap_or_default().escape_debug().to_string(),
    ]
}

fn exit_code(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wharf proxy: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Standard output may be a closed pipe: that is an error like any other.
fn print(text: impl Display) -> anyhow::Result<()> {
    Ok(writeln!(std::io::stdout().lock(), "{text}")?)
}
