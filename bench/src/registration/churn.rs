//! Drivers that register and leave repeatedly: the manager's memory and descriptors, and its
//! notifications.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context, Result};
use tokio::task::JoinSet;
use wharf_testkit::process::{Process, wait_for};

use super::{
    binary::Binary,
    plugin::{self, Plugin},
};
use crate::{report::Report, usage::Usage};

/// Sockets at a time, each made repeatedly.
const LANES: usize = 20;
/// One of this many sockets is removed before the manager can have answered.
const HASTE: usize = 4;
const GROWTH: f64 = 2.0;
/// How long the other side may take to close its ends of connections.
const QUIET: Duration = Duration::from_secs(10);

/// Makes and removes `count` sockets, and compares the manager after the first tenth with the
/// manager at the end.
pub(super) async fn measure(binary: &Binary, count: usize, report: &mut Report) -> Result<()> {
    report.section(&format!("{count} sockets made and removed, {LANES} at a time"));
    let folder = tempfile::tempdir()?;
    let driver = binary.driver().await?;
    let manager = binary.manager(folder.path(), &[])?;
    // After a first registration the manager is running; its descriptors are those for an empty
    // folder.
    lanes(folder.path(), &driver.socket, LANES).await?;
    let empty = descriptors_at_rest(&manager).await?;
    let early = lanes(folder.path(), &driver.socket, count / 10).await?;
    let before = at_rest(&manager, empty).await?;
    let late = lanes(folder.path(), &driver.socket, count - count / 10).await?;
    let after = at_rest(&manager, empty).await?;
    drop(manager);

    let growth = (after.resident as f64 - before.resident as f64) * 1024.0 / 1e6;
    let more = after.descriptors.abs_diff(before.descriptors);
    let total = early.add(&late);
    report.show("resident memory at the end", after.resident as f64 * 1024.0 / 1e6, "MB");
    report.at_most("growth of resident memory after the first tenth", growth, GROWTH, "MB");
    report.at_most("difference in open descriptors", more as f64, 0.0, "");
    report.show("sockets that stayed until Notify(true)", total.stayed as f64, "");
    report.at_most("of these told so more than once", total.repeated as f64, 0.0, "");
    Ok(())
}

/// The notifications of the plugins.
#[derive(Default)]
struct Notified {
    stayed: usize,
    repeated: usize,
}

impl Notified {
    fn add(&self, other: &Self) -> Self {
        let Self { stayed, repeated } = other;
        Self { stayed: self.stayed + stayed, repeated: self.repeated + repeated }
    }
}

async fn lanes(folder: &Path, driver: &Path, count: usize) -> Result<Notified> {
    let mut lanes = JoinSet::new();
    for number in 0..LANES {
        let name = format!("lane-{number}.csi.wharf.dev");
        let path = folder.join(format!("{name}-reg.sock"));
        lanes.spawn(lane(path, name, driver.to_owned(), count / LANES));
    }
    let mut notified = Notified::default();
    while let Some(lane) = lanes.join_next().await {
        notified = notified.add(&lane.context("a lane")??);
    }
    Ok(notified)
}

/// Makes one socket `count` times. Fails if a socket that stays does not get `Notify(true)`.
async fn lane(path: PathBuf, name: String, driver: PathBuf, count: usize) -> Result<Notified> {
    let mut notified = Notified::default();
    let mut previous: Option<Plugin> = None;
    for turn in 0..count {
        let mut plugin = Plugin::listen(&path, plugin::csi(&name, &driver))?;
        if turn % HASTE != HASTE - 1 {
            plugin.registered().await?;
            notified.stayed += 1;
            // By now every notification of the previous socket has been sent.
            notified.repeated += previous.take().map_or(0, Plugin::surplus);
            plugin.unlink()?;
            previous = Some(plugin);
        } else {
            plugin.unlink()?;
        }
    }
    notified.repeated += previous.map_or(0, Plugin::surplus);
    Ok(notified)
}

async fn descriptors_at_rest(manager: &Process) -> Result<usize> {
    let mut last = None;
    wait_for(QUIET, "the manager's descriptors to come to rest", || {
        let now = Usage::of(manager.id()).ok().map(|usage| usage.descriptors);
        let rests = now.is_some() && now == last;
        last = now;
        std::future::ready(now.filter(|_| rests))
    })
    .await
}

/// The usage once as many descriptors are open as with an empty folder, or the current usage if
/// that does not happen.
async fn at_rest(manager: &Process, empty: usize) -> Result<Usage> {
    let rest = wait_for(QUIET, "descriptors to be closed", || {
        let usage = Usage::of(manager.id()).ok();
        std::future::ready(usage.filter(|usage| usage.descriptors == empty))
    });
    match rest.await {
        Ok(usage) => Ok(usage),
        Err(_) => Usage::of(manager.id()),
    }
}
