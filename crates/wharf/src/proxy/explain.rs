//! `wharf proxy explain`: the recent hook calls about a pod or container, and their effects.

use std::{
    fmt::{self, Write},
    process::ExitCode,
};

use anyhow::bail;
use clap::{Args, builder::NonEmptyStringValueParser};
use wharf_criproxy::{
    Change, ChangeEffect, ControlAnswer, ControlQuestion, Decision, Explanation, ServerDecision,
    Shown, Verdict,
};

use super::{
    control::{Form, NOT_UNDERSTOOD, ProxyArgs, exit_code, print},
    format::{milliseconds, short_id},
};
use crate::text::{self, plain};

/// Shows the recent hook calls about a pod or container: requests, answers, and why a change was
/// not applied
///
/// The proxy keeps the last 1,000 hook calls since its start or last upgrade, in at most 1 MiB of
/// memory. It keeps the lengths of environment variables and annotations and not their values. A
/// pod is shown with its containers.
#[derive(Args)]
pub(super) struct Explain {
    /// The ID or name of a container, the sandbox ID or name of a pod, NAMESPACE/POD, or
    /// NAMESPACE/POD/CONTAINER. The beginning of an ID is enough
    #[arg(value_name = "CONTAINER|POD", value_parser = NonEmptyStringValueParser::new())]
    name: String,
    #[command(flatten)]
    proxy: ProxyArgs,
    /// Form of the answer
    #[arg(short, long, value_enum, default_value = "text")]
    output: Form,
}

impl Explain {
    pub(super) fn run(self) -> ExitCode {
        exit_code(self.show())
    }

    fn show(self) -> anyhow::Result<()> {
        let Self { name, proxy, output } = self;
        let ControlAnswer::Explanation(explanation) = proxy.ask(&ControlQuestion::Explain(name))?
        else {
            bail!(NOT_UNDERSTOOD);
        };
        match output {
            Form::Json => print(text::json(&explanation)?),
            Form::Text => print(Text(&explanation)),
        }
    }
}

/// The answer as text. Strings that others chose are shown without control characters.
struct Text<'a>(&'a Explanation);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Explanation { subject, since, decisions } = self.0;
        writeln!(f, "{}", plain(subject))?;
        write!(f, "{} hook calls since {}", decisions.len(), plain(since))?;
        decisions.iter().try_for_each(|decision| {
            f.write_str("\n\n")?;
            show(f, decision)
        })
    }
}

fn show(f: &mut fmt::Formatter<'_>, decision: &Decision) -> fmt::Result {
    let Decision { time, hook, identity, call, body } = decision;
    write!(f, "{} {} {}", plain(time), plain(hook), plain(&identity.pod))?;
    if let Some(container) = &identity.container {
        write!(f, " {}", plain(container))?;
    }
    let id = match identity.container {
        Some(_) => &identity.container_id,
        None => identity.container_id.as_ref().map_or(&identity.pod_id, |_| &identity.container_id),
    };
    if let Some(id) = id {
        write!(f, " ({})", plain(short_id(id)))?;
    }
    if body.took_us > 0 {
        write!(f, ", {}", milliseconds(body.took_us))?;
    }
    f.write_str(match body.verdict {
        Verdict::WentOn => "",
        Verdict::Refused => ", refused",
        Verdict::Abandoned => ", the caller left",
    })?;
    if let Some(end) = call {
        let (method, code) = (plain(&end.method), plain(&end.code));
        write!(f, "; {method} ended with {code} after {}", milliseconds(end.took_us))?;
    }
    if let Some(note) = &body.note {
        write!(f, "\n  {}", plain(note))?;
    }
    if !body.request.is_empty() {
        f.write_str("\n  asked with")?;
        for (field, value) in &body.request {
            write!(f, " {}={}", plain(field), Value(value))?;
        }
        more(f, body.more_fields, "fields")?;
    }
    body.servers.iter().try_for_each(|server| show_server(f, server))
}

fn show_server(f: &mut fmt::Formatter<'_>, server: &ServerDecision) -> fmt::Result {
    write!(f, "\n  {}: ", plain(&server.server))?;
    if server.dry_run {
        f.write_str("dry run, ")?;
    }
    f.write_str(&plain(&server.outcome))?;
    if let Some(took) = server.took_us {
        write!(f, " after {}", milliseconds(took))?;
    }
    if let Some(given) = server.given_us.filter(|_| server.outcome == "timeout") {
        write!(f, " of {}", milliseconds(given))?;
    }
    if let Some(policy) = &server.policy {
        write!(f, ", policy {}", plain(policy))?;
    }
    if let Some(error) = &server.error {
        write!(f, "\n    error: {}", plain(error))?;
    }
    if server.outcome == "ok" && server.changes.is_empty() {
        f.write_str(", no changes")?;
    }
    server.changes.iter().try_for_each(|change| show_change(f, change))?;
    more(f, server.more_changes, "changes")
}

fn show_change(f: &mut fmt::Formatter<'_>, change: &Change) -> fmt::Result {
    let Change { field, from, to, effect, why } = change;
    let effect = match effect {
        ChangeEffect::Applied => "applied",
        ChangeEffect::Remembered => "not in this call",
        ChangeEffect::Overridden => "overridden",
        ChangeEffect::Refused => "refused",
        ChangeEffect::Ignored => "ignored",
        ChangeEffect::Undone => "undone",
        ChangeEffect::DryRun => "would change",
    };
    write!(f, "\n    {effect}: {}: {} -> {}", plain(field), Value(from), Value(to))?;
    match why {
        Some(why) => write!(f, " ({})", plain(why)),
        None => Ok(()),
    }
}

fn more(f: &mut fmt::Formatter<'_>, count: usize, what: &str) -> fmt::Result {
    match count {
        0 => Ok(()),
        _ => write!(f, " and {count} more {what}"),
    }
}

/// A value, or its length where the proxy keeps no more.
struct Value<'a>(&'a Shown);

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Shown::Absent => f.write_str("absent"),
            Shown::Number(number) => write!(f, "{number}"),
            Shown::Text(text) => {
                f.write_char('"')?;
                f.write_str(&plain(text))?;
                f.write_char('"')
            }
            Shown::Hidden { bytes } => write!(f, "({bytes} bytes)"),
        }
    }
}
