//! Many claims, attachments, expansions and snapshots at once.

use std::{sync::Arc, time::Duration};

use anyhow::{Context, Result};
use futures_util::future::try_join_all;
use wharf_testkit::process::Process;

use super::{
    Counts, Topic,
    bare::{self, Model},
    observation::{Observation, Outcome},
    operation::{self, Batch, Operation},
    rig::Rig,
    side::{Programs, Side},
};
use crate::{report::Report, sample::median, usage::Usage};

/// Target, as a share of the bare client's rate.
const SHARE: f64 = 0.8;
/// Target, as a multiple of the rate of Go at its defaults.
const TIMES: f64 = 10.0;
/// Targets, as a multiple of the rate of Go without a limit, or as this share of the bare client's
/// rate; the lower one counts.
const FAST_TIMES: f64 = 1.5;
const FAST_SHARE: f64 = 0.9;

const DEADLINE: Duration = Duration::from_secs(240);
const STOP: Duration = Duration::from_secs(40);

/// The rates of all sides for one operation, in objects per second.
struct Rates {
    operation: Operation,
    title: &'static str,
    count: usize,
    ours: Vec<f64>,
    bare: Vec<f64>,
    fast: Vec<f64>,
    fast_without_events: Vec<f64>,
    /// Processor time per object, in milliseconds.
    our_time: Vec<f64>,
    fast_time: Vec<f64>,
    /// Processor time of kube-apiserver and etcd per object, in milliseconds.
    our_servers: Vec<f64>,
    bare_servers: Vec<f64>,
    fast_servers: Vec<f64>,
    slow: Option<(usize, f64)>,
    lacking: usize,
}

/// Measures the chosen operations.
pub(super) async fn measure(
    programs: &Programs,
    counts: &Counts,
    is_wanted: impl Fn(Topic) -> bool,
    report: &mut Report,
) -> Result<()> {
    let all = [
        (Topic::Claims, Operation::Provision, "claims", counts.many),
        (Topic::Attachments, Operation::Attach, "attachments", counts.many),
        (Topic::Attachments, Operation::Detach, "detachments", counts.many),
        (Topic::Expansions, Operation::Expand, "expansions", counts.few),
        (Topic::Snapshots, Operation::Snapshot, "snapshots through both halves", counts.few),
    ];
    let wanted = all.into_iter().filter(|(topic, ..)| is_wanted(*topic));
    let mut wanted: Vec<Rates> =
        wanted.map(|(_, operation, title, count)| Rates::new(operation, title, count)).collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let Some(rig) = Rig::start(programs, &[Side::Ours, Side::Go, Side::FastGo], false).await?
    else {
        report.section("claims, attachments, expansions and snapshots");
        report.not_measured("rates", "no kube-apiserver");
        return Ok(());
    };
    let model = Arc::new(model(programs, &rig).await.context("a first claim")?);
    for round in 0..counts.rounds {
        for rates in &mut wanted {
            rates.round(programs, &rig, round, &model).await.context(rates.title)?;
            // Listing objects that others left is not part of the measurement; attached volumes are
            // needed for the detach.
            if rates.operation != Operation::Attach {
                operation::clear(&rig.api).await?;
            }
        }
    }
    // Each waits for its own rate limit most of the time, so they may run in parallel. Attached
    // volumes are needed for the detach.
    let slow =
        wanted.chunk_by_mut(|rates, _| rates.operation == Operation::Attach).map(|group| async {
            for rates in group {
                rates.slow(programs, &rig, counts).await?;
            }
            anyhow::Ok(())
        });
    try_join_all(slow).await.context("Go at its defaults")?;
    for rates in &wanted {
        rates.show(programs, counts.rounds, report);
    }
    rig.stop().await
}

/// The objects that our provisioner writes for a claim.
async fn model(programs: &Programs, rig: &Rig) -> Result<Model> {
    let batch = Batch { side: Side::Ours, prefix: "model-".to_owned(), count: 1 };
    sidecars(programs, rig, Operation::Provision, &batch).await?;
    let model = Model::of(&rig.api, &batch).await?;
    operation::clear(&rig.api).await?;
    Ok(model)
}

impl Rates {
    fn new(operation: Operation, title: &'static str, count: usize) -> Self {
        Self {
            operation,
            title,
            count,
            ours: Vec::new(),
            bare: Vec::new(),
            fast: Vec::new(),
            fast_without_events: Vec::new(),
            our_time: Vec::new(),
            fast_time: Vec::new(),
            our_servers: Vec::new(),
            bare_servers: Vec::new(),
            fast_servers: Vec::new(),
            slow: None,
            lacking: 0,
        }
    }

    /// All sides except Go at its defaults, one after the other. Ours and the bare client come
    /// first alternately, since kube-apiserver is still busy with earlier deletions then.
    async fn round(
        &mut self,
        programs: &Programs,
        rig: &Rig,
        round: usize,
        model: &Arc<Model>,
    ) -> Result<()> {
        if round.is_multiple_of(2) {
            self.ours(programs, rig, round).await?;
            self.bare(rig, round, model).await?;
        } else {
            self.bare(rig, round, model).await?;
            self.ours(programs, rig, round).await?;
        }
        if programs.missing(self.operation).is_none() {
            let batch = self.batch(Side::FastGo, round);
            let done = sidecars(programs, rig, self.operation, &batch).await.context("Go")?;
            let outcome = done.outcome;
            self.fast.push(rate(&batch, outcome));
            self.fast_time.push(each(&batch, done.processor));
            self.fast_servers.push(each(&batch, done.servers));
            let work = outcome.without_events.as_secs_f64();
            self.fast_without_events.push(batch.count as f64 / work);
            self.lacking += outcome.lacking;
        }
        Ok(())
    }

    async fn ours(&mut self, programs: &Programs, rig: &Rig, round: usize) -> Result<()> {
        let batch = self.batch(Side::Ours, round);
        let done = sidecars(programs, rig, self.operation, &batch).await.context("ours")?;
        self.ours.push(rate(&batch, done.outcome));
        self.our_time.push(each(&batch, done.processor));
        self.our_servers.push(each(&batch, done.servers));
        Ok(())
    }

    async fn bare(&mut self, rig: &Rig, round: usize, model: &Arc<Model>) -> Result<()> {
        let batch = self.batch(Side::Bare, round);
        self.operation.prepare(&rig.api, &batch).await?;
        let observation = Observation::start(&rig.api, self.operation.goals(&batch)).await?;
        rig.rest().await?;
        let before = rig.servers()?;
        bare::write(&rig.api, self.operation, &batch, Arc::clone(model)).await?;
        let outcome = observation.finish(DEADLINE).await.context("the bare client")?;
        self.bare.push(rate(&batch, outcome));
        self.bare_servers.push(each(&batch, rig.servers()?.saturating_sub(before)));
        Ok(())
    }

    async fn slow(&mut self, programs: &Programs, rig: &Rig, counts: &Counts) -> Result<()> {
        let [claims, expansions, snapshots] = counts.slow;
        let count = match self.operation {
            Operation::Expand => expansions,
            Operation::Snapshot => snapshots,
            _ => claims,
        };
        if programs.missing(self.operation).is_none() {
            let batch = Batch { count, ..self.batch(Side::Go, 0) };
            let done = sidecars(programs, rig, self.operation, &batch).await?;
            self.slow = Some((count, rate(&batch, done.outcome)));
        }
        Ok(())
    }

    /// Removed attachments are those made before.
    fn batch(&self, side: Side, round: usize) -> Batch {
        let word = match self.operation {
            Operation::Provision | Operation::Delete => "claim",
            Operation::Attach | Operation::Detach => "attachment",
            Operation::Expand => "expansion",
            Operation::Snapshot => "snapshot",
        };
        let prefix = format!("{}-{word}-{round}-", side.word());
        Batch { side, prefix, count: self.count }
    }

    fn show(&self, programs: &Programs, rounds: usize, report: &mut Report) {
        let Self { title, count, .. } = self;
        report.section(&format!("{count} {title} at once, median of {rounds}"));
        let [ours, bare, fast] =
            [&self.ours, &self.bare, &self.fast].map(|rates| median(rates.iter().copied()));
        let time = |times: &[f64]| median(times.iter().copied());
        const SERVERS: &str = "kube-apiserver and etcd then, processor time for one";
        report.show("a bare client that makes the same writes", bare, "/s");
        report.show(SERVERS, time(&self.bare_servers), "ms");
        report.show("wharf sidecars", ours, "/s");
        report.show("the same, processor time for one", time(&self.our_time), "ms");
        report.show(SERVERS, time(&self.our_servers), "ms");
        report.at_least("share of the bare client's rate", ours / bare, SHARE, "x");
        if let Some(missing) = programs.missing(self.operation) {
            for what in ["beside Go at its defaults", "beside Go at qps 1000 and burst 2000"] {
                report.not_measured(what, format!("give {missing} with --peers DIR"));
            }
            return;
        }
        if let Some((count, slow)) = self.slow {
            report.show(&format!("Go at its defaults, {count} of them"), slow, "/s");
            report.at_least("beside Go at its defaults", ours / slow, TIMES, "x");
        }
        report.show("Go at qps 1000 and burst 2000", fast, "/s");
        let without = median(self.fast_without_events.iter().copied());
        report.show("the same, not counting the time of its events", without, "/s");
        report.show("the same, processor time for one", time(&self.fast_time), "ms");
        report.show(SERVERS, time(&self.fast_servers), "ms");
        if self.lacking > 0 {
            report.show("events that it dropped", self.lacking as f64, "");
        }
        report.show("beside it", ours / fast, "x");
        let limit = (FAST_TIMES * fast).min(FAST_SHARE * bare);
        let what = "rate, at least 1.5 x that or 0.9 x the bare client's";
        report.at_least(what, ours, limit.round(), "/s");
    }
}

/// The work of sidecars.
struct Done {
    outcome: Outcome,
    /// Processor time since their start.
    processor: Duration,
    /// Processor time of kube-apiserver and etcd meanwhile.
    servers: Duration,
}

/// Prepares a batch, starts the sidecars of its side and waits until they have done all of it.
async fn sidecars(
    programs: &Programs,
    rig: &Rig,
    operation: Operation,
    batch: &Batch,
) -> Result<Done> {
    operation.prepare(&rig.api, batch).await?;
    let observation = Observation::start(&rig.api, operation.goals(batch)).await?;
    rig.rest().await?;
    let before = rig.servers()?;
    let running = programs.start(batch.side, operation, &rig.surroundings(batch.side))?;
    let outcome = observation.finish(DEADLINE).await;
    let outcome = outcome
        .with_context(|| running.iter().map(Process::tail).collect::<Vec<_>>().join("\n"))?;
    let servers = rig.servers()?.saturating_sub(before);
    let mut processor = Duration::ZERO;
    for process in running {
        processor += Usage::of(process.id())?.processor();
        process.stop(STOP).await?;
    }
    Ok(Done { outcome, processor, servers })
}

/// Milliseconds per object.
fn each(batch: &Batch, all: Duration) -> f64 {
    all.as_secs_f64() * 1e3 / batch.count as f64
}

fn rate(batch: &Batch, outcome: Outcome) -> f64 {
    batch.count as f64 / outcome.took.as_secs_f64()
}
