//! An idle node.
//!
//! Managers idle in parallel, each with its own plugins: three with the shipped settings, of which
//! the median counts, since the kernel accounts its housekeeping to the running process; and one
//! with a rescan period of an hour, in which no thread may wake up. So every wake-up of the others
//! belongs to the rescan.

use std::{path::Path, time::Duration};

use anyhow::Result;
use tempfile::TempDir;
use wharf_testkit::process::Process;

use super::{
    binary::Binary,
    plugin::{self, Plugin},
};
use crate::{report::Report, usage::Usage};

const PLUGINS: usize = 20;
/// The default rescan period.
const RESCAN: u64 = 10;
const PROCESSOR: f64 = 10.0;
/// Wake-ups of one thread for a rescan: tokio's timer wakes up twice before a distant time, and
/// then at that time.
const WAKEUPS: f64 = 3.0;
/// After this time, work of the start is done.
const SETTLED: Duration = Duration::from_secs(5);

/// Managers with the shipped settings.
const SHIPPED: usize = 3;

/// Measures the managers' work during `seconds`.
pub(super) async fn measure(binary: &Binary, seconds: u64, report: &mut Report) -> Result<()> {
    report.section(&format!("idle for {seconds} s with {PLUGINS} registered plugins"));
    let driver = binary.driver().await?;
    let mut shipped = Vec::new();
    for _ in 0..SHIPPED {
        shipped.push(Manager::start(binary, &driver.socket, &[]).await?);
    }
    let silent = Manager::start(binary, &driver.socket, &["--rescan", "1h"]).await?;
    tokio::time::sleep(SETTLED).await;
    let usage = |manager: &Manager| Usage::of(manager.process.id());
    let before: Vec<Usage> = shipped.iter().map(usage).collect::<Result<_>>()?;
    let silent_before = usage(&silent)?;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    let silent_work = usage(&silent)?.since(&silent_before);
    let mut works = Vec::new();
    for (manager, before) in shipped.iter().zip(&before) {
        works.push(usage(manager)?.since(before));
    }
    works.sort_by_key(|work| work.processor);
    let shipped_work = &works[SHIPPED / 2];

    let rescans = (seconds / RESCAN).max(1) as f64;
    let processor = shipped_work.processor.as_secs_f64() * 1e3;
    let wakeups = shipped_work.wakeups as f64 / rescans / shipped_work.threads.max(1) as f64;
    report.at_most("processor time", processor, PROCESSOR, "ms");
    report.show("threads that woke up", shipped_work.threads as f64, "");
    report.at_most("wake-ups for each of them and each rescan", wakeups, WAKEUPS, "");
    report.at_most("wake-ups without the rescan", silent_work.wakeups as f64, 0.0, "");
    report.show("resident memory", before[0].resident as f64 * 1024.0 / 1e6, "MB");
    Ok(())
}

/// A manager and its plugins.
struct Manager {
    process: Process,
    _plugins: Vec<Plugin>,
    _folder: TempDir,
}

impl Manager {
    async fn start(binary: &Binary, driver: &Path, flags: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        // A short grace period: at its end the manager looks for entries of a former manager.
        let process =
            binary.manager(folder.path(), &[&["--csinode-grace", "1s"], flags].concat())?;
        let mut plugins = Vec::new();
        for number in 0..PLUGINS {
            let name = format!("idle-{number}.csi.wharf.dev");
            let path = folder.path().join(format!("{name}-reg.sock"));
            plugins.push(Plugin::listen(&path, plugin::csi(&name, driver))?);
        }
        for plugin in &mut plugins {
            plugin.registered().await?;
        }
        Ok(Self { process, _plugins: plugins, _folder: folder })
    }
}
