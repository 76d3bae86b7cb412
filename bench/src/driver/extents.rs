//! Snapshots of images with many extents, small and large.

use std::{fs::File, os::unix::fs::FileExt};

use anyhow::{Context, Result};
use wharf_driver::pool::{Layout, Mark};

use super::{
    Counts,
    client::{Access, Client},
    rig::Rig,
    snapshot::snapshot,
};
use crate::{report::Report, sample::Sample};

const SIZES: [u64; 2] = [256 << 20, 1 << 30];
const STEP: u64 = 1 << 20;
const BLOCK: u64 = 4096;
const REPETITIONS: usize = 5;

const PER_EXTENT: f64 = 30.0;
const INDEPENDENT: f64 = 1.25;

/// The time of a snapshot, and the extents of the volume's image.
struct Cut {
    milliseconds: f64,
    pieces: f64,
}

/// Measures on a pool with reflinks.
pub(super) async fn measure(rig: &Rig, counts: &Counts, report: &mut Report) -> Result<()> {
    report.section(&format!("snapshot after scattered 4k overwrites, median of {REPETITIONS}"));
    let (running, _) = rig.start().await?;
    let mut cuts = Vec::new();
    for size in SIZES {
        cuts.push(cut(rig, &running.client, size, counts.overwrites).await?);
    }
    for (size, cut) in SIZES.iter().zip(&cuts) {
        let name = format!("{} MiB", size >> 20);
        report.show(&format!("extents of an image of {name}"), cut.pieces, "");
        report.show(&format!("CreateSnapshot of {name}"), cut.milliseconds, "ms");
        let each = cut.milliseconds * 1e3 / cut.pieces;
        report.at_most(&format!("CreateSnapshot of {name}, per extent"), each, PER_EXTENT, "us");
    }
    if let [small, large] = cuts.as_slice() {
        let ratio = (large.milliseconds / large.pieces) / (small.milliseconds / small.pieces);
        report.at_most("four times the bytes at equal extents", ratio, INDEPENDENT, "x");
    }
    running.stop().await
}

/// The number of extents of a volume's image.
pub(super) fn pieces(rig: &Rig, id: &str) -> Result<u32> {
    for entry in Layout::new(rig.images()).volumes().read_dir()? {
        let image = entry?.path();
        if matches!(Mark::read(&image)?, Some(Mark::Volume(volume)) if volume.id == id) {
            return Ok(wharf_mount::extents::count(&File::open(image)?)?);
        }
    }
    anyhow::bail!("no image is marked as that of volume {id}")
}

/// Writes a whole volume, takes a snapshot, and then overwrites single blocks that are apart: each
/// adds two extents.
async fn cut(rig: &Rig, client: &Client, size: u64, overwrites: u64) -> Result<Cut> {
    let volume = client.publish(rig, &format!("scattered-{size}"), size, Access::Block).await?;
    let device = File::options().write(true).open(&volume.target)?;
    for at in (0..size).step_by(STEP as usize) {
        device.write_all_at(&[5; STEP as usize], at).context("write to the volume")?;
    }
    device.sync_all()?;
    let base = client.snapshot(&volume.id, &format!("base-{size}")).await?;
    let stride = size / overwrites / BLOCK * BLOCK;
    for turn in 0..overwrites {
        // An order that no allocator can merge: a step without a common factor with the count
        // visits all blocks.
        let place = turn * 4999 % overwrites;
        device.write_all_at(&[6; BLOCK as usize], place * stride).context("overwrite a block")?;
        if turn % 64 == 63 {
            device.sync_data()?;
        }
    }
    device.sync_all()?;
    drop(device);
    let mut sample = Sample::default();
    for round in 0..REPETITIONS {
        sample.add(snapshot(client, &volume, &format!("scattered-{size}-{round}")).await?);
    }
    let pieces = f64::from(pieces(rig, &volume.id)?);
    client.delete_snapshot(&base).await?;
    client.discard(volume).await?;
    Ok(Cut { milliseconds: sample.p50(), pieces })
}
