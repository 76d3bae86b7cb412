//! API calls of each operation, and watches, from the API server's audit log.

use std::{
    collections::BTreeMap,
    io::{Read, Seek, SeekFrom},
    path::PathBuf,
    time::Duration,
};

use anyhow::{Context, Result};
use serde_json::Value;

use super::{
    api::AGENT,
    observation::Observation,
    operation::{Batch, Operation},
    rig::Rig,
    side::{Programs, Side},
};
use crate::report::Report;

/// Calls of upstream's sidecars for each operation.
const UPSTREAM: [(Operation, &str, f64); 6] = [
    (Operation::Provision, "provision", 3.0),
    (Operation::Delete, "delete", 2.0),
    (Operation::Attach, "attach", 3.0),
    (Operation::Detach, "detach", 2.0),
    (Operation::Expand, "expand", 5.0),
    (Operation::Snapshot, "snapshot, both halves", 20.0),
];

const DEADLINE: Duration = Duration::from_secs(60);
/// After this time, consequences of the last expected change, such as events, are written.
const SETTLED: Duration = Duration::from_secs(2);

/// Runs each operation `count` times.
pub(super) async fn measure(programs: &Programs, count: usize, report: &mut Report) -> Result<()> {
    report.section(&format!("calls to the API for one operation, mean of {count}"));
    let Some(rig) = Rig::start(programs, &[Side::Ours], true).await? else {
        report.not_measured("calls", "no kube-apiserver");
        return Ok(());
    };
    let mut log = AuditLog { path: rig.cluster.audit_log(), read: 0 };
    let sidecars = programs.start_ours(&rig.surroundings(Side::Ours), &[])?;
    tokio::time::sleep(SETTLED).await;
    let mut watches = log.next()?.watches;

    for (operation, title, upstream) in UPSTREAM {
        let prefix = match operation {
            Operation::Provision | Operation::Delete => "volume-",
            Operation::Attach | Operation::Detach => "attachment-",
            Operation::Expand => "expansion-",
            Operation::Snapshot => "snapshot-",
        };
        let batch = Batch { side: Side::Ours, prefix: prefix.to_owned(), count };
        let observation = Observation::start(&rig.api, operation.goals(&batch)).await?;
        operation.prepare(&rig.api, &batch).await?;
        let outcome = observation.finish(DEADLINE).await;
        outcome.with_context(|| format!("{title}:\n{}", sidecars.tail()))?;
        tokio::time::sleep(SETTLED).await;
        let requests = log.next()?;
        for (kind, more) in &requests.watches {
            *watches.entry(kind.clone()).or_default() += more;
        }
        // A GET precedes a guarded PUT.
        let limit = upstream + f64::from(requests.puts) / count as f64;
        report.at_most(title, f64::from(requests.calls) / count as f64, limit, "");
    }
    drop(sidecars);
    rig.stop().await?;
    report.show("kinds that are watched", watches.len() as f64, "");
    if let Some((kind, most)) = watches.iter().max_by_key(|(_, count)| **count) {
        report.at_most(
            &format!("watches of one kind, at most ({kind})"),
            f64::from(*most),
            1.0,
            "",
        );
    }
    Ok(())
}

/// An audit log, read incrementally.
struct AuditLog {
    path: PathBuf,
    read: u64,
}

/// The sidecars' requests.
#[derive(Debug, Default, PartialEq, Eq)]
struct Requests {
    calls: u32,
    puts: u32,
    watches: BTreeMap<String, u32>,
}

impl AuditLog {
    /// The requests since the last call.
    fn next(&mut self) -> Result<Requests> {
        let mut file = std::fs::File::open(&self.path).context("the audit log")?;
        file.seek(SeekFrom::Start(self.read))?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        // An incomplete line is left for the next call.
        let whole = text.rfind('\n').map_or(0, |end| end + 1);
        self.read += whole as u64;
        let mut requests = Requests::default();
        for line in text[..whole].lines() {
            requests.add(&serde_json::from_str(line).context("a line of the audit log")?);
        }
        Ok(requests)
    }
}

impl Requests {
    fn add(&mut self, entry: &Value) {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let agent = text(&entry["userAgent"]);
        let is_sidecar =
            entry["user"]["username"] == "admin" && agent != AGENT && !agent.starts_with("kubectl");
        if !is_sidecar {
            return;
        }
        let (verb, stage) = (text(&entry["verb"]), text(&entry["stage"]));
        match (verb.as_str(), stage.as_str()) {
            // A refused watch, as of a kind that was declared just now, does not count.
            ("watch", "ResponseStarted") if entry["responseStatus"]["code"] == 200 => {
                let kind = text(&entry["objectRef"]["resource"]);
                *self.watches.entry(kind).or_default() += 1;
            }
            ("watch" | "list", _) => {}
            (_, "ResponseComplete") if entry["objectRef"]["resource"].is_string() => {
                self.calls += 1;
                self.puts += u32::from(verb == "update");
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn calls_of_the_sidecars_are_counted() {
        let mut requests = Requests::default();
        let entry = |agent: &str, verb: &str, stage: &str| {
            json!({
                "user": { "username": "admin" }, "userAgent": agent, "verb": verb, "stage": stage,
                "objectRef": { "resource": "pods" }, "responseStatus": { "code": 200 },
            })
        };
        requests.add(&entry("", "watch", "ResponseStarted"));
        requests.add(&entry("", "watch", "ResponseComplete"));
        requests.add(&entry("", "list", "ResponseComplete"));
        requests.add(&entry("", "update", "ResponseComplete"));
        requests.add(&entry("", "create", "ResponseComplete"));
        requests.add(&entry(AGENT, "create", "ResponseComplete"));
        requests.add(&entry("kubectl/v1", "get", "ResponseComplete"));
        let watches = BTreeMap::from([("pods".to_owned(), 1)]);
        assert_eq!(requests, Requests { calls: 2, puts: 1, watches });
    }
}
