//! Volumes created one by one and in parallel, and the cost of a thousand of them.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use tokio::task::{JoinSet, spawn_blocking};

use super::{
    Counts,
    client::Access,
    raw::RawPool,
    rig::{Rig, Running},
};
use crate::{report::Report, sample::Sample, usage::Usage};

const SIZE: u64 = 16 << 20;
const CLIENTS: usize = 32;
/// Disk space to leave free for other processes, in bytes.
const SPARE: u64 = 2 << 30;

/// After this time, the runtime has ended its idle threads.
const REST: Duration = Duration::from_secs(12);

const BEYOND: f64 = 5.0;
const RATE: f64 = 0.8;
const MEMORY: f64 = 15.0;

/// Measures on a pool in a plain folder.
pub(super) async fn measure(rig: &Rig, counts: &Counts, report: &mut Report) -> Result<()> {
    let (running, _) = rig.start().await?;
    let raw = Arc::new(RawPool::new(&rig.path("raw"))?);
    one_by_one(&running, &raw, counts.single, report).await?;
    let needed = counts.crowd as u64 * SIZE + SPARE;
    if rig.room()? < needed {
        let reason = format!("{} GiB of room needed in TMPDIR", needed.div_ceil(1 << 30));
        report.section(&format!("{} volumes of 16 MiB by {CLIENTS} clients", counts.crowd));
        report.not_measured("rate and memory", reason);
    } else {
        crowds(rig, &running, &raw, counts, report).await?;
    }
    running.stop().await
}

/// Alternates between both, so that both meet the same state of the disk.
async fn one_by_one(
    running: &Running,
    raw: &Arc<RawPool>,
    count: usize,
    report: &mut Report,
) -> Result<()> {
    report.section(&format!("CreateVolume, {count} volumes of 16 MiB one by one, p50"));
    let (mut by_hand, mut by_driver) = (Sample::default(), Sample::default());
    let mut ids = Vec::new();
    for number in 0..count {
        let name = format!("single-{number}");
        let begun = Instant::now();
        raw.create(&name, SIZE)?;
        by_hand.add(begun.elapsed());
        raw.delete(&name)?;
        let begun = Instant::now();
        ids.push(running.client.create(&name, SIZE, Access::Mount, false).await?);
        by_driver.add(begun.elapsed());
    }
    for id in ids {
        running.client.delete(&id).await?;
    }
    report.show("the same files and fsyncs by hand", by_hand.p50(), "ms");
    report.show("CreateVolume", by_driver.p50(), "ms");
    let beyond = by_driver.p50() - by_hand.p50();
    report.at_most("CreateVolume, beyond its durable commits", beyond, BEYOND, "ms");
    Ok(())
}

async fn crowds(
    rig: &Rig,
    running: &Running,
    raw: &Arc<RawPool>,
    counts: &Counts,
    report: &mut Report,
) -> Result<()> {
    let (count, rounds) = (counts.crowd, counts.crowds);
    report.section(&format!("{count} volumes of 16 MiB by {CLIENTS} clients, median of {rounds}"));
    let (mut by_hand, mut by_driver) = (Sample::default(), Sample::default());
    for round in 0..rounds {
        by_hand.add(raw_crowd(raw, round, count).await?);
        let (took, ids) = crowd(rig, round, count).await?;
        by_driver.add(took);
        if round + 1 < rounds {
            delete(rig, ids).await?;
        }
    }
    let rate = |sample: &Sample| count as f64 / (sample.p50() / 1e3);
    report.show("the same files and fsyncs by as many threads", rate(&by_hand), "/s");
    report.show("CreateVolume", rate(&by_driver), "/s");
    let share = rate(&by_driver) / rate(&by_hand);
    report.at_least("CreateVolume, share of the threads' rate", share, RATE, "x");
    let megabytes = |kilobytes: u64| kilobytes as f64 * 1024.0 / 1e6;
    let usage = Usage::of(running.id())?;
    report.show("resident memory right after", megabytes(usage.resident), "MB");
    tokio::time::sleep(REST).await;
    let usage = Usage::of(running.id())?;
    let what = format!("resident memory with {count} volumes, at rest");
    report.at_most(&what, megabytes(usage.resident), MEMORY, "MB");
    report.show("of this not backed by a file", megabytes(usage.anonymous), "MB");
    Ok(())
}

async fn raw_crowd(raw: &Arc<RawPool>, round: usize, count: usize) -> Result<Duration> {
    let begun = Instant::now();
    let mut threads = JoinSet::new();
    for lane in 0..CLIENTS {
        let raw = raw.clone();
        threads.spawn_blocking(move || {
            (lane..count)
                .step_by(CLIENTS)
                .try_for_each(|number| raw.create(&name(round, number), SIZE))
        });
    }
    joined(threads).await?;
    let took = begun.elapsed();
    let raw = raw.clone();
    spawn_blocking(move || (0..count).try_for_each(|number| raw.delete(&name(round, number))))
        .await??;
    Ok(took)
}

async fn crowd(rig: &Rig, round: usize, count: usize) -> Result<(Duration, Vec<String>)> {
    let clients = rig.clients(CLIENTS);
    for client in &clients {
        ensure!(client.ready().await, "the driver is not ready");
    }
    let begun = Instant::now();
    let mut tasks = JoinSet::new();
    for (lane, client) in clients.into_iter().enumerate() {
        tasks.spawn(async move {
            let mut ids = Vec::new();
            for number in (lane..count).step_by(CLIENTS) {
                ids.push(client.create(&name(round, number), SIZE, Access::Mount, false).await?);
            }
            anyhow::Ok(ids)
        });
    }
    let ids = joined(tasks).await?.concat();
    Ok((begun.elapsed(), ids))
}

async fn delete(rig: &Rig, ids: Vec<String>) -> Result<()> {
    let mut tasks = JoinSet::new();
    for (client, ids) in
        rig.clients(CLIENTS).into_iter().zip(ids.chunks(ids.len().div_ceil(CLIENTS)))
    {
        let ids = ids.to_vec();
        tasks.spawn(async move {
            for id in ids {
                client.delete(&id).await?;
            }
            anyhow::Ok(())
        });
    }
    joined(tasks).await.map(drop)
}

async fn joined<T: 'static>(mut tasks: JoinSet<Result<T>>) -> Result<Vec<T>> {
    let mut all = Vec::new();
    while let Some(one) = tasks.join_next().await {
        all.push(one.context("a client")??);
    }
    Ok(all)
}

fn name(round: usize, number: usize) -> String {
    format!("crowd-{round}-{number}")
}
