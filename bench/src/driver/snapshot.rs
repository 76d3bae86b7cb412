//! Snapshots of a mounted volume, with much dirty data and with none.

use std::{
    fs::File,
    io::{Seek, Write},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::fs::syncfs;

use super::{
    Counts,
    client::{Access, Client, Published},
    extents::pieces,
    rig::Rig,
};
use crate::{report::Report, sample::Sample};

const VOLUME: u64 = 1 << 30;
const DIRTY: usize = 256 << 20;
const STEP: usize = 1 << 20;
/// Pause between two snapshots without dirty data.
const APART: Duration = Duration::from_millis(100);

const FLUSH: f64 = 1.2;
const CLEAN: f64 = 5.0;
const FEW: f64 = 100.0;

/// Measures on a pool with reflinks.
pub(super) async fn measure(rig: &Rig, counts: &Counts, report: &mut Report) -> Result<()> {
    let (running, _) = rig.start().await?;
    let client = &running.client;
    let volume = client.publish(rig, "flushed", VOLUME, Access::Mount).await?;
    let mut file = File::create_new(volume.target.join("data"))?;
    // Allocates the blocks: later writes only overwrite, so a flush writes data only.
    dirty(&mut file)?;
    syncfs(&file)?;

    report.section(&format!("snapshot with 256 MiB of dirty data, median of {}", counts.flushes));
    let (mut flush, mut cut) = (Sample::default(), Sample::default());
    for round in 0..counts.flushes {
        dirty(&mut file)?;
        flush.add(flushed(&file)?);
        dirty(&mut file)?;
        cut.add(snapshot(client, &volume, &format!("dirty-{round}")).await?);
    }
    report.show("flush of the same data by syncfs", flush.p50(), "ms");
    report.show("CreateSnapshot", cut.p50(), "ms");
    report.at_most("CreateSnapshot beside the flush", cut.p50() / flush.p50(), FLUSH, "x");

    report.section(&format!("snapshot with nothing dirty, median of {}", counts.cuts));
    let mut cut = Sample::default();
    syncfs(&file)?;
    for round in 0..counts.cuts {
        // A filesystem frozen a moment ago freezes faster, and snapshots are usually further apart.
        tokio::time::sleep(APART).await;
        cut.add(snapshot(client, &volume, &format!("clean-{round}")).await?);
    }
    report.at_most("extents of the image", f64::from(pieces(rig, &volume.id)?), FEW, "");
    report.at_most("CreateSnapshot", cut.p50(), CLEAN, "ms");
    drop(file);
    client.discard(volume).await?;
    running.stop().await
}

/// The time of a snapshot, which is deleted afterwards.
pub(super) async fn snapshot(client: &Client, volume: &Published, name: &str) -> Result<Duration> {
    let begun = Instant::now();
    let id = client.snapshot(&volume.id, name).await?;
    let took = begun.elapsed();
    client.delete_snapshot(&id).await?;
    Ok(took)
}

fn dirty(file: &mut File) -> Result<()> {
    let block = vec![7; STEP];
    file.rewind()?;
    for _ in 0..DIRTY / STEP {
        file.write_all(&block).context("write to the volume")?;
    }
    Ok(())
}

fn flushed(file: &File) -> Result<Duration> {
    let begun = Instant::now();
    syncfs(file)?;
    Ok(begun.elapsed())
}
