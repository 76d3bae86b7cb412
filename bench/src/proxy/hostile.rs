//! Clients that attack: how long the calls of another client wait meanwhile, and what the proxy takes for it.
//!
//! The same attack on containerd itself says what the runtime makes of it. Both share the processors with the attacker.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::task::JoinSet;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use wharf_testkit::hostile::{Outcome, attack, bombs, resets};

use super::Counts;
use super::calls::{self, framed};
use super::client::Client;
use super::rig::{Rig, Served};
use crate::report::Report;
use crate::usage::Usage;

const RESETS: u32 = 200_000;
/// Calls that are under way when they are reset.
const BATCH: u32 = 500;
const BOMBS: u32 = 200;
const FIELDS: usize = 2000;
/// The other client's calls follow each other at this distance, before, during and after an attack.
const EVERY: Duration = Duration::from_millis(2);
const AROUND: Duration = Duration::from_millis(300);
/// The longest wait of a call that is nobody's concern, in milliseconds.
const WAIT: f64 = 100.0;
/// Memory that an attack may leave the proxy with, in MB.
const MEMORY: f64 = 64.0;

/// Measures each attack, on the runtime and on the proxy in turns.
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

/// The worst of all rounds.
#[derive(Default)]
struct Figures {
    /// The longest wait of the other client, in milliseconds.
    wait: f64,
    failed: f64,
    /// How much more memory the process has at the end, in MB.
    memory: f64,
    /// How many connections of the attacker were closed by the process.
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
    // A thread of its own: the attacker must not keep the caller waiting.
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
