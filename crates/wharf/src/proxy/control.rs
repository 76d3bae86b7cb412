//! `wharf proxy status`, `forget` and `upgrade`, and requests to a running proxy through its
//! control socket, which other commands share.

use std::{
    fmt::Display,
    io::{self, Read, Write},
    os::unix::net::UnixStream,
    path::PathBuf,
    process::ExitCode,
    time::Duration,
};

use anyhow::{Context, anyhow, bail, ensure};
use clap::{Args, ValueEnum};
use comfy_table::{Table, presets::NOTHING};
use wharf_criproxy::{ConfigStatus, ControlAnswer, ControlQuestion, ServerStatus};
use wharf_uds::{ask_line, begin_ask, socket_of};

use super::CONTROL;
use crate::text::plain;

/// The longest request that a proxy accepts, in bytes.
const LONGEST_QUESTION: usize = 4096;
/// The longest first line of an answer of several lines.
const LONGEST_FIRST_LINE: usize = 64 << 10;
/// Limit for an answer: an upgrade may wait for another upgrade, and each may take as long as a
/// successor may take to start.
const PATIENCE: Duration = Duration::from_secs(60);
pub(super) const NOT_UNDERSTOOD: &str =
    "cannot parse the proxy's answer; does it run another version of wharf?";

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
/// Use it for a server that does not come back. A server of --require-server is required again when
/// its file comes back or when the proxy restarts with that flag.
#[derive(Args)]
pub(super) struct Forget {
    /// Name of the hook server: its file's name without .json
    #[arg(value_name = "NAME")]
    name: String,
    #[command(flatten)]
    proxy: ProxyArgs,
}

/// Makes a running proxy start its program again and hand over to the new process
///
/// Use it after you replace the program at the same path. The new process gets the same arguments
/// and the sockets, and no call is lost. If it fails to serve, the running proxy continues and this
/// command exits with 1. To change arguments, restart the proxy or start another with --take-over.
#[derive(Args)]
pub(super) struct Upgrade {
    #[command(flatten)]
    proxy: ProxyArgs,
}

#[derive(Args, Clone)]
pub(super) struct ProxyArgs {
    /// The proxy's --control
    #[arg(long, value_name = "SOCKET", default_value = CONTROL, value_parser = socket_of)]
    pub(super) control: PathBuf,
}

/// The form of the output.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Form {
    Text,
    Json,
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
    pub(super) fn ask(&self, question: &ControlQuestion) -> anyhow::Result<ControlAnswer> {
        let line = ask_line(&self.control, &self.encode(question)?, PATIENCE);
        self.answer(&line.with_context(|| self.silence())?)
    }

    /// Sends a request whose answer has several lines: returns the first line, and the connection
    /// for the others.
    pub(super) fn begin(
        &self,
        question: &ControlQuestion,
    ) -> anyhow::Result<(ControlAnswer, UnixStream)> {
        let stream = begin_ask(&self.control, &self.encode(question)?, PATIENCE);
        let mut stream = stream.with_context(|| self.silence())?;
        let line = first_line(&mut stream).with_context(|| self.silence())?;
        Ok((self.answer(&line)?, stream))
    }

    fn encode(&self, question: &ControlQuestion) -> anyhow::Result<String> {
        let line = serde_json::to_string(question)?;
        ensure!(
            line.len() < LONGEST_QUESTION,
            "the arguments are too long: the proxy accepts requests of {LONGEST_QUESTION} bytes"
        );
        Ok(line)
    }

    fn answer(&self, line: &str) -> anyhow::Result<ControlAnswer> {
        let answer = serde_json::from_str(line).with_context(|| {
            let socket = self.control.display();
            format!("{socket}: {NOT_UNDERSTOOD}")
        })?;
        match answer {
            // The answer may hold names that others chose.
            ControlAnswer::Failed(reason) => bail!(plain(&reason)),
            answer => Ok(answer),
        }
    }

    fn silence(&self) -> String {
        let socket = self.control.display();
        format!("no proxy answers at {socket}: start the proxy, or set --control to its socket")
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

/// Reads one line, and no byte beyond it.
fn first_line(stream: &mut UnixStream) -> io::Result<String> {
    let (mut line, mut byte) = (Vec::new(), [0]);
    while line.len() < LONGEST_FIRST_LINE {
        stream.read_exact(&mut byte)?;
        match byte {
            [b'\n'] => return String::from_utf8(line).map_err(io::Error::other),
            [byte] => line.push(byte),
        }
    }
    Err(io::Error::new(io::ErrorKind::InvalidData, "the answer is too long"))
}

pub(super) fn exit_code(done: anyhow::Result<()>) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("wharf proxy: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Prints a line. A closed pipe is an error.
pub(super) fn print(text: impl Display) -> anyhow::Result<()> {
    Ok(writeln!(io::stdout().lock(), "{text}")?)
}
