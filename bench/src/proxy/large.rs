//! Answers of the largest size that a kubelet accepts.

use std::{path::Path, time::Instant};

use anyhow::{Context, Result};
use tokio::process::Command;
use wharf_testkit::peers;

use super::{
    Counts,
    calls::{self, framed},
    client::Client,
    rig::Rig,
    runtime::LARGE,
};
use crate::{report::Report, sample::median};

const SHARE: f64 = 0.8;
const PEER: &str = "cri-client";
const OURS: &str = "wharf, share of it";

/// Measures with a kubelet's client and a Go server, like runtimes, both of which decode and encode
/// messages.
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
    let share = found.show(report);
    report.at_least(OURS, share, SHARE, "x");
    Ok(())
}

/// Megabytes per second, measured by the peer.
async fn fetch(peer: &Path, socket: &Path, calls: usize) -> Result<f64> {
    let mut command = Command::new(peer);
    command.arg("-socket").arg(socket).args(["-calls", &calls.to_string(), "fetch"]);
    let output = command.output().await.context(PEER)?;
    let rate = String::from_utf8_lossy(&output.stdout).trim().parse();
    rate.with_context(|| format!("{PEER} said {}", String::from_utf8_lossy(&output.stderr)))
}

/// Measures with a client and a server that only move bytes, so that the proxy's part dominates.
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
    let share = found.show(report);
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

/// The results of the rounds.
#[derive(Default)]
struct Rounds {
    direct: Vec<f64>,
    ours: Vec<f64>,
    copied: Vec<f64>,
}

impl Rounds {
    /// Adds the rates of a round: direct, through the proxy, and through a relay.
    fn add(&mut self, direct: f64, ours: f64, copied: f64) {
        self.direct.push(direct);
        self.ours.push(ours / direct);
        self.copied.push(copied / direct);
    }

    /// Prints the rates for comparison, and returns our share.
    fn show(self, report: &Report) -> f64 {
        report.show("direct", median(self.direct), "MB/s");
        report.show("a relay that only copies bytes, share of it", median(self.copied), "x");
        median(self.ours)
    }
}

/// Megabytes per second.
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
