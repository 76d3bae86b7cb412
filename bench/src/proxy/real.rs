//! The kubelet's own client and containerd, with proxies in between: the time that each adds to a
//! call, and its processor time. The other sections have a client and a runtime that do almost
//! nothing; on a node both are Go programs.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use tokio::process::Command;
use wharf_testkit::peers;

use super::{Counts, rig::Rig};
use crate::{
    report::Report,
    sample::{Sample, median},
    usage::Usage,
};

const PEER: &str = "cri-client";
const KOORD: &str = "koord-runtime-proxy";
/// Target for the added time, as a share of koord-runtime-proxy's.
const ADDED: f64 = 0.65;
/// Target for the processor time of a call, as a share of koord-runtime-proxy's.
const PROCESSOR: f64 = 0.5;
const RESIDENT: f64 = 12.0;
/// Calls per second, and their duration.
const RATES: [(u32, Duration); 3] =
    [(10, Duration::from_secs(20)), (100, Duration::from_secs(10)), (1000, Duration::from_secs(5))];

/// A connection to containerd.
struct Way {
    name: &'static str,
    socket: PathBuf,
    /// The process in between; `None` for the direct connection.
    process: Option<u32>,
    rounds: Vec<Sample>,
}

/// A figure of a round.
type Figure = fn(&Sample) -> f64;

/// The order in which connections are used.
#[derive(Clone, Copy)]
enum Order {
    /// Many calls on one connection, then on the next.
    Turns,
    /// One call on each connection, repeatedly.
    Interleaved,
}

/// Measures everything.
pub(super) async fn measure(binary: &Path, counts: &Counts, report: &mut Report) -> Result<()> {
    let Some(peer) = peers::binary(PEER) else {
        report.not_measured("calls to containerd", format!("needs the peer {PEER}"));
        return Ok(());
    };
    let rig = Rig::new(binary)?;
    let containerd = rig.containerd().await?;
    let relay = rig.relay().await?;
    let proxy = rig.proxy("proxy")?;
    drop(proxy.client().await?);
    let koord = rig.koord().await?;
    let way = |name, socket: &Path, process| Way {
        name,
        socket: socket.to_owned(),
        process,
        rounds: Vec::new(),
    };
    let mut ways = vec![
        way("direct", &containerd.socket, None),
        way("a relay that only copies bytes", &relay.socket, Some(relay.process.id())),
        way("wharf", &proxy.socket, Some(proxy.process.id())),
    ];
    match &koord {
        Some(koord) => ways.push(way(KOORD, &koord.socket, Some(koord.process.id()))),
        None => report.not_measured(KOORD, "needs root, and the peer"),
    }
    for order in [Order::Turns, Order::Interleaved] {
        for is_busy in [false, true] {
            let busy = is_busy.then(Spinners::start);
            call_all(&peer, &mut ways, order, counts).await?;
            drop(busy);
            report.section(&title(order, is_busy, counts));
            show_added(&ways, report);
        }
    }
    for (rate, time) in RATES {
        let calls = usize::try_from(rate)? * usize::try_from(time.as_secs())? / counts.divisor;
        measure_rate(&peer, &ways[1..], (rate, calls.max(1)), report).await?;
    }
    let resident = Usage::of(proxy.process.id())?.resident as f64 * 1024.0 / 1e6;
    report.at_most("wharf, resident memory then", resident, RESIDENT, "MB");
    Ok(())
}

fn title(order: Order, is_busy: bool, Counts { rounds, real, .. }: &Counts) -> String {
    let order = match order {
        Order::Turns => "each way in its turn",
        Order::Interleaved => "all ways interleaved",
    };
    let load = if is_busy { "both cores busy" } else { "at rest" };
    format!(
        "Version of containerd, by the kubelet's client, {order}, {load}: {real} calls, median of {rounds} rounds"
    )
}

async fn call_all(peer: &Path, ways: &mut [Way], order: Order, counts: &Counts) -> Result<()> {
    ways.iter_mut().for_each(|way| way.rounds.clear());
    for round in 0..counts.rounds {
        match order {
            Order::Turns => {
                let count = ways.len();
                for turn in 0..count {
                    let way = &mut ways[(round + turn) % count];
                    let mut samples = call(peer, &[&way.socket], counts.real, None).await?;
                    way.rounds.append(&mut samples);
                }
            }
            Order::Interleaved => {
                let sockets: Vec<_> = ways.iter().map(|way| way.socket.as_path()).collect();
                let samples = call(peer, &sockets, counts.real, None).await?;
                for (way, sample) in ways.iter_mut().zip(samples) {
                    way.rounds.push(sample);
                }
            }
        }
    }
    Ok(())
}

/// Has the peer call `calls` times at each socket: one after the other, or at a fixed rate.
async fn call(
    peer: &Path,
    sockets: &[&Path],
    calls: usize,
    every: Option<Duration>,
) -> Result<Vec<Sample>> {
    let mut command = Command::new(peer);
    command.args(["-calls", &calls.to_string()]);
    match every {
        Some(every) => command.args(["-every", &format!("{}ns", every.as_nanos())]),
        None => command.args(["-untimed", &calls.div_ceil(5).to_string()]),
    };
    let output = command.arg("call").args(sockets).output().await.context(PEER)?;
    ensure!(output.status.success(), "{PEER}: {}", String::from_utf8_lossy(&output.stderr));
    let lines = String::from_utf8(output.stdout)?;
    let samples: Vec<_> = lines.lines().map(sample).collect::<Result<_>>()?;
    ensure!(samples.len() == sockets.len(), "{PEER} printed {} lines", samples.len());
    Ok(samples)
}

fn sample(line: &str) -> Result<Sample> {
    let mut sample = Sample::default();
    for took in line.split(' ') {
        sample.add(Duration::from_nanos(took.parse().context(PEER)?));
    }
    Ok(sample)
}

fn show_added(ways: &[Way], report: &mut Report) {
    let [direct, others @ ..] = ways else { return };
    let figures: [(&str, Figure); 2] = [("p50", Sample::p50), ("p99", Sample::p99)];
    for (figure, of) in figures {
        let value = median(direct.rounds.iter().map(of)) * 1e3;
        report.show(&format!("direct, {figure}"), value, "us");
        let added: Vec<f64> = others.iter().map(|way| way.added(direct, of)).collect();
        for (way, added) in others.iter().zip(&added) {
            report.show(&format!("{}, added {figure}", way.name), *added, "us");
        }
        if let [_, ours, koord] = added[..] {
            let beside = format!("wharf's added {figure} beside that of {KOORD}");
            // A share of zero has no meaning.
            match koord > 0.0 {
                true => report.at_most(&beside, ours.max(0.0) / koord, ADDED, "x"),
                false => report.not_measured(&beside, format!("{KOORD} added nothing")),
            }
        }
    }
}

impl Way {
    /// The difference between a figure of this connection and of the other, in the same round, in
    /// microseconds.
    fn added(&self, other: &Self, of: Figure) -> f64 {
        let rounds = self.rounds.iter().zip(&other.rounds);
        median(rounds.map(|(own, other)| (of(own) - of(other)) * 1e3))
    }
}

/// Measures the processor time of a call on each connection, at a fixed rate.
async fn measure_rate(
    peer: &Path,
    ways: &[Way],
    (rate, calls): (u32, usize),
    report: &mut Report,
) -> Result<()> {
    report.section(&format!("{rate} calls a second to containerd, by the kubelet's client"));
    let mut takes = Vec::new();
    for way in ways {
        let process = way.process.context("a proxy has a process")?;
        let before = Usage::of(process)?;
        let samples =
            call(peer, &[&way.socket], calls, Some(Duration::from_secs(1) / rate)).await?;
        let work = Usage::of(process)?.since(&before);
        // The peer makes one call when it connects, and one that is not timed.
        let took = work.processor.as_secs_f64() * 1e6 / (calls + 2) as f64;
        report.show(&format!("{}, p50 of a call", way.name), samples[0].p50() * 1e3, "us");
        report.show(&format!("{}, p99 of a call", way.name), samples[0].p99() * 1e3, "us");
        report.show(&format!("{}, processor time of a call", way.name), took, "us");
        takes.push(took);
    }
    if let [_, ours, koord] = takes[..] {
        let beside = format!("wharf's processor time beside that of {KOORD}");
        report.at_most(&beside, ours / koord, PROCESSOR, "x");
    }
    Ok(())
}

/// A busy thread per core. They end when this is dropped.
struct Spinners {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Spinners {
    fn start() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let cores = thread::available_parallelism().map_or(1, usize::from);
        let spin =
            |stop: Arc<AtomicBool>| thread::spawn(move || while !stop.load(Ordering::Relaxed) {});
        let threads = (0..cores).map(|_| spin(stop.clone())).collect();
        Self { stop, threads }
    }
}

impl Drop for Spinners {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        // A spinner cannot panic.
        self.threads.drain(..).for_each(|thread| drop(thread.join()));
    }
}
