//! Answers of the size that a kubelet just takes.

use std::path::Path;
use std::time::Instant;

use anyhow::Result;

use super::Counts;
use super::calls::{self, framed};
use super::client::Client;
use super::rig::Rig;
use super::runtime::LARGE;
use crate::report::Report;
use crate::sample::median;

const SHARE: f64 = 0.8;

/// Bytes in a second, on the way without a proxy and through each.
pub(super) async fn measure(binary: &Path, counts: &Counts, report: &mut Report) -> Result<()> {
    let Counts { rounds, large, .. } = *counts;
    report.section(&format!("answers of 16 MiB, {large} one by one, median of {rounds} rounds"));
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
    let (mut directs, mut shares, mut copied_shares) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..rounds {
        let rate_of_direct = rate(&direct, large).await?;
        shares.push(rate(&ours, large).await? / rate_of_direct);
        copied_shares.push(rate(&copied, large).await? / rate_of_direct);
        directs.push(rate_of_direct);
    }
    report.show("direct", median(directs), "MB/s");
    let copied = median(copied_shares);
    report.show("a relay that only copies bytes, share of it", copied, "x");
    report.at_least("wharf, share of it", median(shares), SHARE, "x");

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
