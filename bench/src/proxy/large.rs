//! Answers of the size that a kubelet just takes.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};
use tokio::process::Command;
use wharf_testkit::peers;

use super::Counts;
use super::calls::{self, framed};
use super::client::Client;
use super::rig::Rig;
use super::runtime::LARGE;
use crate::report::Report;
use crate::sample::median;

const SHARE: f64 = 0.8;
const PEER: &str = "cri-client";
const OURS: &str = "wharf, share of it";

/// Between a kubelet's own client and a server of gRPC for Go, as runtimes are, which decode and encode what they send.
pub(super) async fn measure_decoded(
    binary: &Path,
    counts: &Counts,
    report: &mut Report,
) -> Result<()> {
    let Counts { rounds, large, .. } = *counts;
    report.section(&format!(
        "answers of 16 MiB to a kubelet's client, {large} one by one, median of {rounds} rounds"
    ));
    let Some(peer) = peers::binary(PEER) else {
        report.not_measured(OURS, format!("needs the peer {PEER}"));
        return Ok(());
    };
    let rig = Rig::new(binary)?;
    let runtime = rig.lists(&peer).await?;
    let proxy = rig.proxy("proxy")?;
    drop(proxy.client().await?);
    let relay = rig.relay().await?;
    let fetch = async |socket: &Path| fetch(&peer, socket, large).await;
    let mut found = Rounds::default();
    for _ in 0..rounds {
        let direct = fetch(&runtime.socket).await?;
        found.add(direct, fetch(&proxy.socket).await?, fetch(&relay.socket).await?);
    }
    let share = found.tell(report);
    report.at_least(OURS, share, SHARE, "x");
    Ok(())
}

/// Megabytes in a second, as the peer measures them.
async fn fetch(peer: &Path, socket: &Path, calls: usize) -> Result<f64> {
    let mut command = Command::new(peer);
    command.arg("-socket").arg(socket).args(["-calls", &calls.to_string(), "fetch"]);
    let output = command.output().await.context(PEER)?;
    let rate = String::from_utf8_lossy(&output.stdout).trim().parse();
    rate.with_context(|| format!("{PEER} said {}", String::from_utf8_lossy(&output.stderr)))
}

/// Between a client and a server that only move bytes: what is left is the way.
pub(super) async fn measure_bytes(
    binary: &Path,
    counts: &Counts,
    report: &mut Report,
) -> Result<()> {
    let Counts { rounds, large, .. } = *counts;
    report.section(&format!(
        "answers of 16 MiB that nobody decodes, {large} one by one, median of {rounds} rounds"
    ));
    let rig = Rig::new(binary)?;
    let runtime = rig.runtime(0).await?;
    let direct = runtime.client().await?;
    let proxy = rig.proxy("proxy")?;
    let ours = proxy.client().await?;
    let relay = rig.relay().await?;
    let copied = relay.client().await?;
    for client in [&direct, &ours, &copied] {
        rate(client, 1).await?;
    }
    let mut found = Rounds::default();
    for _ in 0..rounds {
        let rate_of_direct = rate(&direct, large).await?;
        found.add(rate_of_direct, rate(&ours, large).await?, rate(&copied, large).await?);
    }
    let share = found.tell(report);
    report.show(OURS, share, "x");

    let what = "koord-runtime-proxy";
    match rig.koord().await? {
        None => report.not_measured(what, "needs root, and the peer"),
        Some(koord) => match rate(&Client::dial(&koord.socket).await?, large).await {
            Ok(theirs) => report.show(what, theirs, "MB/s"),
            Err(error) => report.not_measured(what, error),
        },
    }
    Ok(())
}

/// What came of each round.
#[derive(Default)]
struct Rounds {
    direct: Vec<f64>,
    ours: Vec<f64>,
    copied: Vec<f64>,
}

impl Rounds {
    /// Adds the rates of one: without anyone in between, through ours, and through a relay.
    fn add(&mut self, direct: f64, ours: f64, copied: f64) {
        self.direct.push(direct);
        self.ours.push(ours / direct);
        self.copied.push(copied / direct);
    }

    /// Tells what to read our share by, and gives that.
    fn tell(self, report: &Report) -> f64 {
        report.show("direct", median(self.direct), "MB/s");
        report.show("a relay that only copies bytes, share of it", median(self.copied), "x");
        median(self.ours)
    }
}

/// Megabytes in a second.
async fn rate(client: &Client, calls: usize) -> Result<f64> {
    let question = framed(&wharf_proto::cri::ListImagesRequest::default());
    let begun = Instant::now();
    let mut bytes = 0;
    for _ in 0..calls {
        bytes += client.call(calls::LIST_IMAGES, &question).await?.len();
    }
    anyhow::ensure!(bytes > calls * (LARGE - 1024), "{bytes} bytes in {calls} answers");
    Ok(bytes as f64 / 1e6 / begun.elapsed().as_secs_f64())
}
