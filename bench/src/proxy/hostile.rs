//! Attacking clients: how long calls of another client wait meanwhile, and the proxy's memory
//! afterwards.
//!
//! The same attack on containerd shows the runtime's own behaviour. Both share the processors with
//! the attacker.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use tokio::{
    task::JoinSet,
    time::{Instant, MissedTickBehavior, interval, sleep},
};
use wharf_testkit::hostile::{Outcome, attack, bombs, resets};

use super::{
    Counts,
    calls::{self, framed},
    client::Client,
    rig::{Rig, Served},
};
use crate::{report::Report, usage::Usage};

const RESETS: u32 = 200_000;
/// Running calls at the time of their reset.
const BATCH: u32 = 500;
const BOMBS: u32 = 200;
const FIELDS: usize = 2000;
/// Time between two calls of the other client, before, during and after an attack.
const EVERY: Duration = Duration::from_millis(2);
const AROUND: Duration = Duration::from_millis(300);
/// Target for the longest wait of the other client's calls, in milliseconds.
const WAIT: f64 = 100.0;
/// Target for the memory that the proxy has gained after an attack, in MB.
const MEMORY: f64 = 64.0;

/// Measures each attack, on the runtime and on the proxy alternately.
pub(super) async fn measure(binary: &Path, counts: &Counts, report: &mut Report) -> Result<()> {
    report.section("a client that attacks, beside one that calls every 2 ms");
    let attacks = [
        (format!("{RESETS} resets, one by one"), resets(calls::VERSION, RESETS, 1)),
        (format!("{RESETS} resets, {BATCH} at a time"), resets(calls::VERSION, RESETS, BATCH)),
        (format!("{BOMBS} HPACK bombs"), bombs(calls::VERSION, BOMBS, FIELDS)),
    ];
    let rig = Rig::new(binary)?;
    let runtime = rig.containerd().await?;
    let proxy = rig.proxy("proxy")?;
    drop(proxy.client().await?);
    for (name, frames) in attacks {
        let (mut direct, mut ours) = (Figures::default(), Figures::default());
        for _ in 0..counts.rounds {
            direct.add(&run(&runtime, &frames).await.context("the runtime")?);
            ours.add(&run(&proxy, &frames).await.context("the proxy")?);
        }
        report.show(&format!("{name}: longest wait, direct"), direct.wait, "ms");
        let limit = WAIT.max(2.0 * direct.wait);
        report.at_most(&format!("{name}: longest wait, wharf"), ours.wait, limit, "ms");
        report.at_most(&format!("{name}: failed calls, wharf"), ours.failed, 0.0, "");
        report.show(&format!("{name}: memory, direct"), direct.memory, "MB");
        report.at_most(&format!("{name}: memory, wharf"), ours.memory, MEMORY, "MB");
        report.show(&format!("{name}: connections that were closed, wharf"), ours.closed, "");
    }
    Ok(())
}

/// The worst figures of all rounds.
#[derive(Default)]
struct Figures {
    /// The longest wait of the other client, in milliseconds.
    wait: f64,
    failed: f64,
    /// Memory that the process has gained, in MB.
    memory: f64,
    /// Number of the attacker's connections that the process closed.
    closed: f64,
}

impl Figures {
    fn add(&mut self, round: &Self) {
        self.wait = self.wait.max(round.wait);
        self.memory = self.memory.max(round.memory);
        self.failed += round.failed;
        self.closed += round.closed;
    }
}

async fn run(attacked: &Served, frames: &[u8]) -> Result<Figures> {
    let pid = attacked.process.id();
    let client = attacked.client().await?;
    let before = Usage::of(pid)?;
    let mut attacker = JoinSet::new();
    // On a thread of its own, so that the attacker does not delay the client.
    let (socket, frames) = (attacked.socket.clone(), frames.to_vec());
    attacker.spawn_blocking(move || -> Result<Outcome> {
        super::tokio()?.block_on(async {
            sleep(AROUND).await;
            Ok(attack(&socket, &frames).await)
        })
    });
    let mut figures = Figures::default();
    let mut clock = interval(EVERY);
    clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut ends = None;
    while ends.is_none_or(|ends| Instant::now() < ends) {
        clock.tick().await;
        figures.count(&client).await;
        if let Some(outcome) = attacker.try_join_next() {
            figures.closed = f64::from(u8::from(outcome?? != Outcome::Served));
            ends = Some(Instant::now() + AROUND);
        }
    }
    let more = Usage::of(pid)?.resident.saturating_sub(before.resident);
    figures.memory = more as f64 * 1024.0 / 1e6;
    Ok(figures)
}

impl Figures {
    async fn count(&mut self, client: &Client) {
        let begun = Instant::now();
        if let Err(error) = client.call(calls::VERSION, &framed(&calls::version())).await {
            eprintln!("a call of the other client failed: {error:#}");
            self.failed += 1.0;
        }
        self.wait = self.wait.max(begun.elapsed().as_secs_f64() * 1e3);
    }
}
