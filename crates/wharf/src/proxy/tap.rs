//! `wharf proxy tap`: shows calls as they pass a running proxy.

use std::{io, os::unix::net::UnixStream as StdStream, process::ExitCode, time::Duration};

use anyhow::{Context, anyhow, bail};
use clap::Args;
use serde_json::json;
use tokio::{
    io::{AsyncBufReadExt, BufReader, Lines},
    net::UnixStream,
    task::spawn_blocking,
    time::{Instant, sleep_until},
};
use wharf_criproxy::{
    ControlAnswer, ControlQuestion, TapCall, TapEnd, TapEvent, TapFilter, TapLine,
};

use super::{
    control::{Form, NOT_UNDERSTOOD, ProxyArgs},
    format::milliseconds,
};
use crate::{
    runtime::{self, Threads},
    text::{json_line, plain},
};

/// The duration of a tap without --for: in effect no limit.
const FOR_EVER: Duration = Duration::from_secs(100 * 365 * 24 * 3600);

/// Shows calls as they pass the proxy: method, pod, container, duration and code
///
/// A call is shown when it ends, a stream also when it begins. Pod and container are known for the
/// calls that have hooks; the proxy does not read other calls, and --pod, --namespace and
/// --container exclude them. A tap never delays a call: calls that it does not read fast enough are
/// dropped and counted. It continues over an upgrade of the proxy, and ends with Ctrl-C.
#[derive(Args)]
pub(super) struct Tap {
    /// Only calls of this method, such as CreateContainer or runtime.v1.ImageService/PullImage. May
    /// be repeated
    #[arg(long, value_name = "METHOD")]
    method: Vec<String>,
    /// Only calls about this pod: POD, NAMESPACE/POD or a sandbox ID. May be repeated
    #[arg(long, value_name = "POD")]
    pod: Vec<String>,
    /// Only calls about pods of this namespace. May be repeated
    #[arg(long, value_name = "NAMESPACE")]
    namespace: Vec<String>,
    /// Only calls about this container, by name or ID. May be repeated
    #[arg(long, value_name = "CONTAINER")]
    container: Vec<String>,
    /// End after this many lines
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    /// End after this time, such as 30s
    #[arg(long = "for", value_name = "DURATION", value_parser = runtime::duration)]
    time: Option<Duration>,
    #[command(flatten)]
    proxy: ProxyArgs,
    /// Form of the output; json prints one object per line
    #[arg(short, long, value_enum, default_value = "text")]
    output: Form,
}

/// Why a tap ended.
enum Over {
    /// A limit was reached, or standard output is closed.
    Done,
    /// Another process has taken over the proxy.
    Replaced,
}

impl Tap {
    pub(super) fn run(self) -> ExitCode {
        runtime::run(Threads::One, |stop| async move {
            let outcome = stop.run_until_cancelled(self.follow()).await;
            if let Some(Err(error)) = outcome {
                eprintln!("wharf proxy: {error:#}");
                return Ok(ExitCode::FAILURE);
            }
            Ok(ExitCode::SUCCESS)
        })
    }

    /// Shows calls of the proxy, and of each successor.
    async fn follow(&self) -> anyhow::Result<()> {
        let mut lines = self.begin().await?;
        let ends = Instant::now() + self.time.unwrap_or(FOR_EVER).min(FOR_EVER);
        if self.output == Form::Text && !write(HEADER.to_owned()).await? {
            return Ok(());
        }
        let mut left = self.count;
        loop {
            let over = tokio::select! {
                biased;
                over = self.show(&mut lines, &mut left) => over?,
                () = sleep_until(ends) => Over::Done,
            };
            match over {
                Over::Done => return Ok(()),
                Over::Replaced => eprintln!(
                    "wharf proxy: another process has taken over the proxy, and this tap follows it; calls that the old \
                     process still finishes are not shown"
                ),
            }
            lines = self.begin().await?;
        }
    }

    /// Sends the request for calls to the proxy.
    async fn begin(&self) -> anyhow::Result<Lines<BufReader<UnixStream>>> {
        let question = ControlQuestion::Tap(TapFilter {
            methods: self.method.clone(),
            pods: self.pod.clone(),
            namespaces: self.namespace.clone(),
            containers: self.container.clone(),
        });
        let proxy = self.proxy.clone();
        let (answer, stream) = spawn_blocking(move || proxy.begin(&question)).await??;
        if answer != ControlAnswer::Tapping {
            bail!(NOT_UNDERSTOOD);
        }
        let stream: StdStream = stream;
        stream.set_nonblocking(true)?;
        Ok(BufReader::new(UnixStream::from_std(stream)?).lines())
    }

    /// Shows calls of one process until the tap ends or another process takes over.
    async fn show(
        &self,
        lines: &mut Lines<BufReader<UnixStream>>,
        left: &mut Option<u64>,
    ) -> anyhow::Result<Over> {
        let socket = self.proxy.control.display();
        loop {
            let line = lines.next_line().await.with_context(|| format!("{socket}"))?;
            let Some(line) = line else {
                bail!(
                    "{socket}: the proxy has closed the connection without a word: it was killed, or this tap was not \
                     read for a minute; start it again"
                );
            };
            let line: TapLine = serde_json::from_str(&line).map_err(|_| anyhow!(NOT_UNDERSTOOD))?;
            let (text, is_call) = match line {
                TapLine::Call(call) => (self.call(&call)?, true),
                TapLine::Dropped(count) => (self.dropped(count), false),
                TapLine::End(TapEnd::Replaced) => return Ok(Over::Replaced),
                TapLine::End(TapEnd::Stopping) => {
                    bail!("{socket}: the proxy stops; start the tap again once it is back")
                }
            };
            if !write(text).await? {
                return Ok(Over::Done);
            }
            if let Some(left) = left.as_mut().filter(|_| is_call) {
                *left -= 1;
                if *left == 0 {
                    return Ok(Over::Done);
                }
            }
        }
    }

    fn call(&self, call: &TapCall) -> anyhow::Result<String> {
        Ok(match self.output {
            Form::Json => json_line(call)?,
            Form::Text => row(call),
        })
    }

    fn dropped(&self, count: u64) -> String {
        match self.output {
            Form::Json => json!({ "event": "dropped", "calls": count }).to_string(),
            Form::Text => format!("-- {count} calls dropped: they were not read fast enough"),
        }
    }
}

const HEADER: &str = "TIME                     METHOD                   POD                              CONTAINER            \
                      TOTAL    HOOKS  RUNTIME CODE";

fn row(call: &TapCall) -> String {
    let TapCall { event, identity, code, .. } = call;
    let method = call.method.trim_start_matches('/');
    let short = ["runtime.v1.RuntimeService/", "runtime.v1.ImageService/"];
    let method = short.iter().find_map(|it| method.strip_prefix(it)).unwrap_or(method);
    let text = |text: Option<&String>| text.map_or_else(|| "-".to_owned(), |text| plain(text));
    let time = |micros: Option<u64>| micros.map_or_else(|| "-".to_owned(), milliseconds);
    let pod = Some(&identity.pod).filter(|pod| !pod.is_empty()).or(identity.pod_id.as_ref());
    let container = identity.container.as_ref().or(identity.container_id.as_ref());
    let (total, hooks) = (time(call.total_us), time(call.hooks_us));
    let end = match event {
        TapEvent::Call => text(code.as_ref()),
        TapEvent::StreamStarted => "stream started".to_owned(),
        TapEvent::StreamEnded => format!("{}, stream ended", text(code.as_ref())),
    };
    let left = if call.client_disconnected { ", client disconnected" } else { "" };
    format!(
        "{:<24} {:<24} {:<32} {:<16} {total:>9} {hooks:>8} {:>8} {end}{left}",
        plain(&call.time),
        plain(method),
        text(pod),
        text(container),
        time(call.runtime_us),
    )
}

/// Writes a line, and returns whether standard output is still open. Runs on a thread of its own: a
/// stopped terminal must not keep a signal from ending the tap.
async fn write(line: String) -> anyhow::Result<bool> {
    let written = spawn_blocking(move || {
        use io::Write;
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()
    });
    match written.await? {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error).context("standard output"),
    }
}
