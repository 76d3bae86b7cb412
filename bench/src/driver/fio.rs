//! A file in a volume, compared with a file on the pool, by fio.

use std::{path::Path, process::Command, time::Duration};

use anyhow::{Context, Result};
use wharf_mount::programs::Programs;
use wharf_testkit::process;

use super::{client::Access, rig::Rig};
use crate::report::Report;

pub(super) const VOLUME: u64 = 1 << 30;
const FILE: &str = "512M";
const SHARE: f64 = 0.8;
const DEADLINE: Duration = Duration::from_secs(60);

/// Repetitions and duration.
#[derive(Clone, Copy)]
pub(super) struct Counts {
    pub(super) rounds: usize,
    pub(super) seconds: u64,
}

pub(super) struct Workload {
    pub(super) name: &'static str,
    flags: &'static [&'static str],
    /// The direction in fio's output that counts.
    pub(super) side: &'static str,
}

pub(super) const WORKLOADS: &[Workload] = &[
    Workload {
        name: "4k random read, 32 deep",
        flags: &["--rw=randread", "--bs=4k", "--iodepth=32"],
        side: "read",
    },
    Workload {
        name: "4k random write, 32 deep",
        flags: &["--rw=randwrite", "--bs=4k", "--iodepth=32"],
        side: "write",
    },
    Workload { name: "1M sequential read", flags: &["--rw=read", "--bs=1M"], side: "read" },
    Workload { name: "1M sequential write", flags: &["--rw=write", "--bs=1M"], side: "write" },
    Workload {
        name: "4k random write, fdatasync after each",
        flags: &["--rw=randwrite", "--bs=4k", "--fdatasync=1"],
        side: "write",
    },
];

/// Measures on a pool with reflinks, with an ext4 volume.
pub(super) async fn measure(rig: &Rig, counts: Counts, report: &mut Report) -> Result<()> {
    report.section(&format!(
        "fio in a volume beside fio on its pool, direct I/O, geometric mean of {} rounds",
        counts.rounds
    ));
    if !Programs::default().has("fio") {
        report.not_measured("shares of the pool's speed", "fio is not there: install it");
        return Ok(());
    }
    let (running, _) = rig.start().await?;
    let volume = running.client.publish(rig, "fio", VOLUME, Access::Mount).await?;
    let inside = volume.target.join("file");
    let beside = rig.images().join("fio-beside");
    for file in [&inside, &beside] {
        fill(file).await?;
    }
    let mut before = Vec::new();
    for workload in WORKLOADS {
        let mut pairs = Vec::new();
        for _ in 0..counts.rounds {
            let pool = workload.run(&beside, counts.seconds).await?;
            pairs.push((workload.run(&inside, counts.seconds).await?, pool));
        }
        let pool = mean(pairs.iter().map(|(_, pool)| *pool));
        let share = mean(pairs.iter().map(|(volume, pool)| volume / pool));
        report.show(&format!("{}, on the pool", workload.name), pool, "/s");
        report.at_least(
            &format!("{}, share of it in the volume", workload.name),
            share,
            SHARE,
            "x",
        );
        before.push(share * pool);
    }
    // Overwriting shared blocks is a different case: the first write to each takes a new block.
    let snapshot = running.client.snapshot(&volume.id, "fio").await?;
    for (workload, before) in WORKLOADS.iter().zip(before) {
        let after = workload.run(&inside, counts.seconds).await? / before;
        report.show(&format!("{}, after a snapshot beside before", workload.name), after, "x");
    }
    running.client.delete_snapshot(&snapshot).await?;
    std::fs::remove_file(beside)?;
    running.client.discard(volume).await?;
    running.stop().await
}

impl Workload {
    /// Operations per second.
    pub(super) async fn run(&self, file: &Path, seconds: u64) -> Result<f64> {
        let mut command = fio(file);
        command.args(self.flags).arg(format!("--runtime={seconds}")).arg("--time_based");
        let text = process::run(&command, DEADLINE).await?;
        let answer: serde_json::Value = serde_json::from_str(&text).context("fio's output")?;
        let figure = answer["jobs"][0][self.side]["iops"].as_f64();
        figure.with_context(|| format!("fio's output has no {} operations", self.side))
    }
}

/// Writes a whole file, so that all of its blocks are allocated.
pub(super) async fn fill(file: &Path) -> Result<()> {
    let mut command = fio(file);
    command.args(["--rw=write", "--bs=1M", "--iodepth=8", "--fallocate=posix", "--end_fsync=1"]);
    process::run(&command, DEADLINE).await.map(drop)
}

fn fio(file: &Path) -> Command {
    let mut command = Command::new("fio");
    command.args(["--name=wharf", "--ioengine=libaio", "--direct=1", "--output-format=json"]);
    command.arg(format!("--filename={}", file.display())).arg(format!("--size={FILE}"));
    command
}

/// The geometric mean, as is proper for ratios.
pub(super) fn mean(figures: impl Iterator<Item = f64>) -> f64 {
    let logs: Vec<f64> = figures.map(f64::ln).collect();
    (logs.iter().sum::<f64>() / logs.len() as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::mean;

    #[test]
    fn twice_and_half_are_even() {
        assert!((mean([2.0, 0.5].into_iter()) - 1.0).abs() < 1e-12);
        assert!((mean([1.0, 8.0, 8.0].into_iter()) - 4.0).abs() < 1e-12);
        assert!(mean(std::iter::empty()).is_nan());
    }
}
