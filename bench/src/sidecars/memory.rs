//! Memory with an empty and with a large cluster.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use serde_json::json;
use wharf_testkit::process::Process;

use super::{
    api::{Api, Patch, each},
    objects::{self, ATTACHMENTS, NODE, PODS},
    operation,
    rig::Rig,
    side::{Programs, Side},
};
use crate::{report::Report, usage::Usage};

const BINARY: f64 = 25.0;
const IDLE: f64 = 16.0;
const LOADED: f64 = 50.0;
const WITH_PODS: f64 = 60.0;
/// A process whose memory has not changed for this long has read everything and freed temporary
/// memory.
const STEADY: Duration = Duration::from_secs(12);
/// A smaller relative difference is not a change.
const CHANGE: f64 = 0.01;
const DEADLINE: Duration = Duration::from_mins(2);
pub(super) const AT_A_TIME: usize = 32;

/// Measures the binary, and the sidecars in a cluster without work.
pub(super) async fn measure_idle(programs: &Programs, report: &mut Report) -> Result<()> {
    report.section("nothing to do");
    let size = std::fs::metadata(&programs.wharf)?.len() as f64 / 1e6;
    report.at_most("the binary", size, BINARY, "MB");
    let Some(rig) = Rig::start(programs, &[Side::Ours], false).await? else {
        report.not_measured("resident memory, all controllers in one process", "no kube-apiserver");
        return Ok(());
    };
    let running = Running::start(programs, &rig)?;
    running.settle().await?;
    running.show(IDLE, report)?;
    drop(running);
    rig.stop().await
}

/// Measures `count` claims with their volumes and attachments, then as many pods.
pub(super) async fn measure_loaded(
    programs: &Programs,
    count: usize,
    report: &mut Report,
) -> Result<()> {
    report.section(&format!("{count} PersistentVolumes, claims and VolumeAttachments"));
    let Some(rig) = Rig::start(programs, &[Side::Ours], false).await? else {
        report.not_measured("resident memory, all controllers in one process", "no kube-apiserver");
        return Ok(());
    };
    let api = rig.api.clone();
    each(count, AT_A_TIME, move |number| attached(api.clone(), number)).await?;
    let running = Running::start(programs, &rig)?;
    running.settle().await?;
    running.show(LOADED, report)?;

    report.section(&format!("and {count} pods that use the claims"));
    let api = rig.api.clone();
    each(count, AT_A_TIME, move |number| pod(api.clone(), number)).await?;
    running.settle().await?;
    running.show(WITH_PODS, report)?;
    drop(running);
    rig.stop().await
}

/// All sidecars, ours and the available Go programs. They have no work, so they do not disturb each
/// other.
struct Running {
    ours: Process,
    go: Vec<Process>,
}

impl Running {
    fn start(programs: &Programs, rig: &Rig) -> Result<Self> {
        let around = rig.surroundings(Side::Ours);
        let go = programs.go().into_iter().map(|name| programs.start_go(name, &around, &[]));
        Ok(Self { ours: programs.start_ours(&around, &[])?, go: go.collect::<Result<_>>()? })
    }

    /// Waits until the memory of ours is steady; that of Go never is.
    async fn settle(&self) -> Result<()> {
        settle(self.ours.id()).await.map(drop)
    }

    fn show(&self, limit: f64, report: &mut Report) -> Result<()> {
        let usage = Usage::of(self.ours.id()).with_context(|| self.ours.tail())?;
        let ours = megabytes(usage.resident);
        report.at_most("resident memory, all controllers in one process", ours, limit, "MB");
        report.show("of this not backed by a file", megabytes(usage.anonymous), "MB");
        if self.go.is_empty() {
            report.not_measured("resident memory of Go's sidecars", "none was built or given");
            return Ok(());
        }
        let mut theirs = 0.0;
        for process in &self.go {
            theirs += megabytes(Usage::of(process.id()).with_context(|| process.tail())?.resident);
        }
        let what = format!("resident memory of {} of Go's sidecars", self.go.len());
        report.show(&what, theirs, "MB");
        report.show("ours beside them", ours / theirs, "x");
        Ok(())
    }
}

/// Waits until the memory of a process is steady, and returns it in megabytes.
pub(super) async fn settle(process: u32) -> Result<f64> {
    let (mut last, mut since) = (0.0, Instant::now());
    let end = Instant::now() + DEADLINE;
    while since.elapsed() < STEADY && Instant::now() < end {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let now = megabytes(Usage::of(process)?.resident);
        if (now - last).abs() > last * CHANGE {
            (last, since) = (now, Instant::now());
        }
    }
    Ok(last)
}

/// Makes a claim with its volume and attachment.
pub(super) async fn attached(api: Api, number: usize) -> Result<()> {
    let (name, driver) = (format!("object-{number}"), Side::Ours.driver());
    operation::bound(&api, &name, driver).await?;
    let mut attachment = objects::attachment(&name, driver);
    attachment["metadata"]["finalizers"] =
        json!([format!("external-attacher/{}", driver.replace('.', "-"))]);
    attachment["metadata"]["annotations"] = json!({ "csi.alpha.kubernetes.io/node-id": NODE });
    api.post(ATTACHMENTS, &attachment).await?;
    let status = json!({ "status": { "attached": true } });
    api.patch(&format!("{ATTACHMENTS}/{name}/status"), Patch::Merge, &status).await.map(drop)
}

async fn pod(api: Api, number: usize) -> Result<()> {
    let name = format!("object-{number}");
    api.post(PODS, &objects::pod(&name)).await?;
    let status = json!({ "status": { "phase": "Running" } });
    api.patch(&format!("{PODS}/{name}/status"), Patch::Merge, &status).await.map(drop)
}

pub(super) fn megabytes(kilobytes: u64) -> f64 {
    kilobytes as f64 * 1024.0 / 1e6
}
