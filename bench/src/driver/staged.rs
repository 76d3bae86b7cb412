//! The cost of node calls while many volumes are staged.

use std::time::Instant;

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use super::{
    Counts,
    client::{Access, Client, Published},
    rig::Rig,
};
use crate::{report::Report, sample::Sample};

const VOLUME: u64 = 8 << 20;
/// Parallel calls while volumes are made.
const LANES: usize = 8;
/// Limit for a call with many volumes staged, as a multiple of the same call with one.
const MOST: f64 = 1.5;

/// Publishes one volume and gets its stats, with it alone staged and with many.
pub(super) async fn measure(rig: &Rig, counts: &Counts, report: &mut Report) -> Result<()> {
    let (running, _) = rig.start().await?;
    let client = &running.client;
    let one = client.publish(rig, "one", VOLUME, Access::Mount).await?;
    let alone = Calls::of(client, &one, counts.calls).await?;
    let others = publish_many(rig, counts.staged - 1).await?;
    let among = Calls::of(client, &one, counts.calls).await?;
    report.section(&format!(
        "one volume with {} staged, median of {} calls",
        counts.staged, counts.calls
    ));
    for (name, alone, among) in [
        ("NodePublishVolume", &alone.publish, &among.publish),
        ("NodeGetVolumeStats", &alone.stats, &among.stats),
    ] {
        report.show(&format!("{name}, alone"), alone.p50(), "ms");
        report.show(&format!("{name}, among {}", counts.staged), among.p50(), "ms");
        report.at_most(&format!("{name}, beside alone"), among.p50() / alone.p50(), MOST, "x");
    }
    for volume in others.into_iter().chain([one]) {
        client.discard(volume).await?;
    }
    running.stop().await
}

struct Calls {
    publish: Sample,
    stats: Sample,
}

impl Calls {
    async fn of(client: &Client, volume: &Published, count: usize) -> Result<Self> {
        let (mut publish, mut stats) = (Sample::default(), Sample::default());
        for _ in 0..count {
            client.unpublish(volume).await?;
            let begun = Instant::now();
            client.publish_again(volume, Access::Mount).await?;
            publish.add(begun.elapsed());
            let begun = Instant::now();
            client.stats(volume).await?;
            stats.add(begun.elapsed());
        }
        Ok(Self { publish, stats })
    }
}

async fn publish_many(rig: &Rig, count: usize) -> Result<Vec<Published>> {
    let mut made = Vec::new();
    for (first, lanes) in (0..count).step_by(LANES).map(|first| (first, LANES.min(count - first))) {
        let mut tasks = JoinSet::new();
        for (number, client) in rig.clients(lanes).into_iter().enumerate() {
            let (stage, pods) = (rig.path("stage"), rig.path("pods"));
            let name = format!("other-{}", first + number);
            tasks.spawn(async move {
                client.publish_in(&stage, &pods, &name, VOLUME, Access::Mount).await
            });
        }
        while let Some(volume) = tasks.join_next().await {
            made.push(volume?.context("one of many")?);
        }
    }
    Ok(made)
}
