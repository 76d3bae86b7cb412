//! Attacking clients: how long calls of another client wait meanwhile, and the proxy's memory
//! afterwards.
//!
//! The same attack on containerd shows the runtime's own behaviour. Both share the processors with
//! the attacker. Each attacker is a process of its own, since the proxy counts cancelled calls per
//! process.

use std::{path::Path, time::Duration};

use anyhow::{Context, Result};
use clap::ValueEnum;
use tokio::time::{Instant, MissedTickBehavior, interval};
use wharf_testkit::{
    hostile::{self, Outcome, bombs, resets},
    process::Process,
};

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
/// Processes that close connections with running calls, the number of these calls, and the duration
/// of such an attack.
const LEAVERS: usize = 3;
const LEFT: u32 = 900;
const LEAVING: Duration = Duration::from_secs(5);
/// Time between two calls of the other client, before, during and after an attack.
const EVERY: Duration = Duration::from_millis(2);
const AROUND: Duration = Duration::from_millis(300);
/// Limit for the duration of an attack.
const END: Duration = Duration::from_secs(60);
/// Target for the longest wait of the other client's calls, in milliseconds.
const WAIT: f64 = 100.0;
/// Target for the memory that the proxy gains during an attack, in MB.
const MEMORY: f64 = 64.0;

/// A kind of attack.
#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum Attack {
    /// Resets, one by one
    Resets,
    /// Resets of many calls at a time
    Batches,
    /// Small header blocks that decode to large header lists
    Bombs,
    /// Connections that are closed with running calls, one after the other
    Leave,
}

impl Attack {
    /// Attacks, and prints the result.
    pub(super) async fn run(self, socket: &Path) {
        let frames = match self {
            Self::Resets => resets(calls::VERSION, RESETS, 1),
            Self::Batches => resets(calls::VERSION, RESETS, BATCH),
            Self::Bombs => bombs(calls::VERSION, BOMBS, FIELDS),
            Self::Leave => {
                let calls = hostile::calls(calls::LIST_CONTAINERS, LEFT, b"");
                hostile::leave(socket, &calls, LEAVING).await;
                return;
            }
        };
        if hostile::attack(socket, &frames).await != Outcome::Served {
            println!("{CLOSED}");
        }
    }

    fn argument(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    fn title(self) -> String {
        match self {
            Self::Resets => format!("{RESETS} resets, one by one"),
            Self::Batches => format!("{RESETS} resets, {BATCH} at a time"),
            Self::Bombs => format!("{BOMBS} HPACK bombs"),
            Self::Leave => format!("{LEAVERS} clients that leave {LEFT} calls, again and again"),
        }
    }

    fn attackers(self) -> usize {
        if matches!(self, Self::Leave) { LEAVERS } else { 1 }
    }
}

/// Printed by an attacker whose connection was closed.
const CLOSED: &str = "closed";

/// Measures each attack, on the runtime and on the proxy alternately.
pub(super) async fn measure(binary: &Path, counts: &Counts, report: &mut Report) -> Result<()> {
    report.section("a client that attacks, beside one that calls every 2 ms");
    let rig = Rig::new(binary)?;
    let runtime = rig.containerd().await?;
    let proxy = rig.proxy("proxy")?;
    drop(proxy.client().await?);
    for attack in Attack::value_variants() {
        let (mut direct, mut ours) = (Figures::default(), Figures::default());
        for _ in 0..counts.rounds {
            let round = run(&rig, &runtime, &runtime, *attack);
            direct.add(&round.await.context("the runtime")?);
            ours.add(&run(&rig, &proxy, &runtime, *attack).await.context("the proxy")?);
        }
        let name = attack.title();
        report.show(&format!("{name}: longest wait, direct"), direct.wait, "ms");
        let limit = WAIT.max(2.0 * direct.wait);
        report.at_most(&format!("{name}: longest wait, wharf"), ours.wait, limit, "ms");
        report.at_most(&format!("{name}: failed calls, wharf"), ours.failed, 0.0, "");
        report.show(&format!("{name}: the runtime's memory, direct"), direct.behind, "MB");
        report.show(&format!("{name}: the runtime's memory, wharf"), ours.behind, "MB");
        report.at_most(&format!("{name}: memory, wharf"), ours.memory, MEMORY, "MB");
        if !matches!(attack, Attack::Leave) {
            report.show(&format!("{name}: connections that were closed, wharf"), ours.closed, "");
        }
    }
    Ok(())
}

/// The worst figures of all rounds.
#[derive(Default)]
struct Figures {
    /// The longest wait of the other client, in milliseconds.
    wait: f64,
    failed: f64,
    /// Memory that the process gains at most, in MB.
    memory: f64,
    /// Memory that the runtime gains at most, in MB.
    behind: f64,
    /// Number of the attacker's connections that the process closed.
    closed: f64,
}

impl Figures {
    fn add(&mut self, round: &Self) {
        self.wait = self.wait.max(round.wait);
        self.memory = self.memory.max(round.memory);
        self.behind = self.behind.max(round.behind);
        self.failed += round.failed;
        self.closed += round.closed;
    }
}

async fn run(rig: &Rig, attacked: &Served, runtime: &Served, attack: Attack) -> Result<Figures> {
    let (pid, behind) = (attacked.process.id(), runtime.process.id());
    let client = attacked.client().await?;
    let before = (Usage::of(pid)?.resident, Usage::of(behind)?.resident);
    let mut figures = Figures::default();
    figures.watch(&client, AROUND).await;
    let start = |number| {
        let name = format!("attacker-{number}");
        rig.attacker(&name, &attacked.socket, &attack.argument())
    };
    let mut attackers = (0..attack.attackers()).map(start).collect::<Result<Vec<_>>>()?;
    let ends = Instant::now() + END;
    while !attackers.is_empty() && Instant::now() < ends {
        figures.watch(&client, EVERY * 10).await;
        let more = |pid, before: u64| -> Result<f64> {
            Ok(Usage::of(pid)?.resident.saturating_sub(before) as f64 * 1024.0 / 1e6)
        };
        figures.memory = figures.memory.max(more(pid, before.0)?);
        figures.behind = figures.behind.max(more(behind, before.1)?);
        let mut left = Vec::new();
        for mut attacker in attackers {
            match attacker.wait(Duration::ZERO).await {
                Ok(_) => figures.closed += f64::from(u8::from(was_closed(&attacker)?)),
                Err(_) => left.push(attacker),
            }
        }
        attackers = left;
    }
    figures.watch(&client, AROUND).await;
    Ok(figures)
}

fn was_closed(attacker: &Process) -> Result<bool> {
    let log = std::fs::read_to_string(attacker.log())?;
    Ok(log.lines().any(|line| line == CLOSED))
}

impl Figures {
    /// Has the other client call for so long.
    async fn watch(&mut self, client: &Client, time: Duration) {
        let mut clock = interval(EVERY);
        clock.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let ends = Instant::now() + time;
        while Instant::now() < ends {
            clock.tick().await;
            self.count(client).await;
        }
    }

    async fn count(&mut self, client: &Client) {
        let begun = Instant::now();
        if let Err(error) = client.call(calls::VERSION, &framed(&calls::version())).await {
            eprintln!("a call of the other client failed: {error:#}");
            self.failed += 1.0;
        }
        self.wait = self.wait.max(begun.elapsed().as_secs_f64() * 1e3);
    }
}
