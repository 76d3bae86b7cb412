//! A very busy node: many running calls, those of each pod in order.
//!
//! Calls are sent at a fixed rate, whether or not earlier ones were answered, four of a pod at a
//! time. The runtime delays each answer, so that the rate determines the number of running calls. A
//! hook server is called for all of them.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use prost::Message;
use tokio::{
    task::JoinSet,
    time::{Instant, interval},
};
use wharf_proto::cri;

use super::{
    Counts,
    calls::{self, framed},
    client::Client,
    hooks, records,
    rig::Rig,
    runtime::OVERTAKEN,
};
use crate::{
    report::Report,
    sample::{Sample, median},
    usage::Usage,
};

const PODS: usize = 100;
const MEMBERS: usize = 4;
const TICK: Duration = Duration::from_millis(2);
/// The runtime's delay of an update.
const UPDATE: Duration = Duration::from_millis(100);
const RATE: f64 = 2000.0;
const STREAMS: f64 = 200.0;
/// Target for the number of calls sent, as a share of the planned number.
const SLACK: f64 = 0.99;

/// Measures a short time without a proxy, and the full time with it.
pub(super) async fn measure(binary: &Path, counts: &Counts, report: &mut Report) -> Result<()> {
    let seconds = counts.load.as_secs();
    report.section(&format!("{RATE} updates a second for {seconds} s, each asked about"));
    let rig = Rig::new(binary)?;
    let milliseconds = u64::try_from(UPDATE.as_millis())?;
    let runtime = rig.runtime(milliseconds).await?;
    let hook_server = rig.hook_server().await?;
    hooks::register(&rig.hooks(), &hook_server.socket)?;
    let direct = runtime.client().await?;
    let proxy = rig.proxy("proxy")?;
    let ours = proxy.client().await?;
    let mut pods = Vec::new();
    for number in 0..PODS {
        pods.push(records::make(&ours, number, MEMBERS).await?);
    }

    let mut number = 0;
    let baseline = run(&direct, &pods, &mut number, counts.load / 6).await?;
    let before = Usage::of(proxy.process.id())?;
    let outcome = run(&ours, &pods, &mut number, counts.load).await?;
    let work = Usage::of(proxy.process.id())?.since(&before);
    let told = direct.call(OVERTAKEN, &framed(&calls::version())).await?;
    let overtaken: f64 = cri::VersionResponse::decode(told)?.version.parse()?;

    let beyond = |millis: f64| millis - UPDATE.as_secs_f64() * 1e3;
    report.at_least("calls", outcome.rate, RATE * SLACK, "/s");
    report.at_least("in flight, median", outcome.in_flight, STREAMS * SLACK, "");
    report.at_most("errors", outcome.errors as f64, 0.0, "");
    report.at_most("calls that overtook another of their pod", overtaken, 0.0, "");
    report.show("direct, p50 beyond the runtime's 100 ms", beyond(baseline.took.p50()), "ms");
    report.show("direct, p99 beyond it", beyond(baseline.took.p99()), "ms");
    report.show("wharf and the hook server, p50 beyond it", beyond(outcome.took.p50()), "ms");
    report.show("wharf and the hook server, p99 beyond it", beyond(outcome.took.p99()), "ms");
    let share = work.processor.as_secs_f64() / counts.load.as_secs_f64();
    report.show("wharf, share of a processor", share * 100.0, "%");
    let resident = Usage::of(proxy.process.id())?.resident as f64 * 1024.0 / 1e6;
    report.show("wharf, resident memory then", resident, "MB");
    Ok(())
}

struct Outcome {
    took: Sample,
    errors: usize,
    rate: f64,
    in_flight: f64,
}

async fn run(
    client: &Client,
    pods: &[Vec<String>],
    number: &mut i64,
    time: Duration,
) -> Result<Outcome> {
    let mut outcome = Outcome { took: Sample::default(), errors: 0, rate: 0.0, in_flight: 0.0 };
    let (mut answers, mut in_flight) = (JoinSet::new(), Vec::new());
    let mut clock = interval(TICK);
    let begun = Instant::now();
    let mut sent = 0_usize;
    for pod in pods.iter().cycle() {
        let due = clock.tick().await;
        if due > begun + time {
            break;
        }
        for id in pod {
            *number += 1;
            let message = framed(&calls::update_container(id, *number));
            let call = client.send(calls::UPDATE_CONTAINER, &message).await?;
            answers.spawn(async move { call.answer().await.map(|_| due.elapsed()) });
            sent += 1;
        }
        while let Some(answer) = answers.try_join_next() {
            outcome.count(answer?);
        }
        in_flight.push(answers.len() as f64);
    }
    outcome.rate = sent as f64 / begun.elapsed().as_secs_f64();
    outcome.in_flight = median(in_flight);
    while let Some(answer) = answers.join_next().await {
        outcome.count(answer.context("an answer")?);
    }
    Ok(outcome)
}

impl Outcome {
    fn count(&mut self, answer: Result<Duration>) {
        match answer {
            Ok(took) => self.took.add(took),
            Err(error) => {
                if self.errors == 0 {
                    eprintln!("the first error: {error:#}");
                }
                self.errors += 1;
            }
        }
    }
}
