//! Writes to a thick volume after its snapshot was unshared, by fio.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use tokio::time::interval;
use wharf_driver::pool::Layout;
use wharf_mount::programs::Programs;

use super::{
    client::Access,
    fio::{Counts, VOLUME, WORKLOADS, fill, mean},
    rig::Rig,
};
use crate::report::Report;

/// Target, as a share of the speed of a volume without a snapshot.
const SHARE: f64 = 0.9;
const DEADLINE: Duration = Duration::from_secs(120);
/// Time between two looks whether a snapshot is unshared.
const LOOK: Duration = Duration::from_millis(20);

/// Measures on a pool with reflinks that allows thin volumes. Two volumes are written alternately;
/// one of them has a snapshot.
pub(super) async fn measure(rig: &Rig, counts: Counts, report: &mut Report) -> Result<()> {
    report.section(&format!(
        "fio in a volume whose snapshot is unshared beside one without, geometric mean of {} rounds",
        counts.rounds
    ));
    if !Programs::default().has("fio") {
        report
            .not_measured("shares of the speed without a snapshot", "fio is not there: install it");
        return Ok(());
    }
    let (running, _) = rig.start().await?;
    let client = &running.client;
    let alone = client.publish(rig, "alone", VOLUME, Access::Mount).await?;
    let copied = client.publish(rig, "copied", VOLUME, Access::Mount).await?;
    let files = [alone.target.join("file"), copied.target.join("file")];
    for file in &files {
        fill(file).await?;
    }
    let begun = Instant::now();
    let snapshot = client.snapshot(&copied.id, "unshared").await?;
    report.show("CreateSnapshot", begun.elapsed().as_secs_f64() * 1e3, "ms");
    unshared(rig).await?;
    report.show("until its 512 MiB are unshared", begun.elapsed().as_secs_f64(), "s");
    for workload in WORKLOADS.iter().filter(|workload| workload.side == "write") {
        let mut shares = Vec::new();
        for _ in 0..counts.rounds {
            let without = workload.run(&files[0], counts.seconds).await?;
            shares.push(workload.run(&files[1], counts.seconds).await? / without);
        }
        let name = format!("{}, beside one without", workload.name);
        report.at_least(&name, mean(shares.into_iter()), SHARE, "x");
    }
    client.delete_snapshot(&snapshot).await?;
    for volume in [alone, copied] {
        client.discard(volume).await?;
    }
    running.stop().await
}

/// Waits until no copy has a reserve.
async fn unshared(rig: &Rig) -> Result<()> {
    let (folder, begun) = (Layout::new(rig.images()).reserves(), Instant::now());
    let mut look = interval(LOOK);
    while folder.read_dir()?.next().is_some() {
        ensure!(begun.elapsed() < DEADLINE, "the snapshot is not unshared after {DEADLINE:?}");
        look.tick().await;
    }
    Ok(())
}
