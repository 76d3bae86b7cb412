//! The time from a change of a socket to the notification of the plugin or the call of its handler.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::{Context, Result};
use wharf_registration::manager::{ManagerOptions, PluginManager};

use super::{
    noop::{self, Call, Calls},
    plugin::Plugin,
};
use crate::{
    report::Report,
    sample::{Sample, median},
};

/// Number of plugins in a crowd.
const CROWD: usize = 100;
/// Sockets are made in memory: ext4 avoids recently deleted inodes, and its search for others takes
/// longer than a registration. No real node makes and removes sockets at this rate.
const FOLDER: &str = "/dev/shm";
const LIMIT: f64 = 20.0;
/// A deregistration and a registration.
const LIMIT_AGAIN: f64 = 2.0 * LIMIT;

/// Measures plugins one by one, and in crowds.
pub(super) async fn measure(single: usize, crowds: usize, report: &mut Report) -> Result<()> {
    for (rounds, count, title) in [
        (1, single, format!("no-op handler, {single} plugins one by one, p99")),
        (crowds, CROWD, format!("no-op handler, {CROWD} plugins at once, p99, median of {crowds}")),
    ] {
        report.section(&title);
        let at_once = if rounds == 1 { 1 } else { count };
        let folder = tempfile::tempdir_in(FOLDER)?;
        let (handlers, mut calls) = noop::handlers(noop::KIND);
        let manager = PluginManager::start(ManagerOptions::new(folder.path()), handlers);
        manager.synced().wait_for(|synced| *synced).await.context("the manager")?;
        // The first round warms the machine up.
        live(folder.path(), at_once, &mut calls, &mut Lives::default()).await?;
        let mut all = Vec::new();
        for _ in 0..rounds {
            let mut lives = Lives::default();
            for _ in 0..count / at_once {
                live(folder.path(), at_once, &mut calls, &mut lives).await?;
            }
            all.push(lives);
        }
        manager.stop().await;
        let p99 = |of: fn(&Lives) -> &Sample| median(all.iter().map(|lives| of(lives).p99()));
        report.at_most("listen() to Notify(true)", p99(|it| &it.comes), LIMIT, "ms");
        report.at_most("unlink to DeRegister", p99(|it| &it.goes), LIMIT, "ms");
        let again = p99(|it| &it.comes_again);
        report.at_most("unlink and listen() to Notify(true)", again, LIMIT_AGAIN, "ms");
    }
    Ok(())
}

#[derive(Default)]
struct Lives {
    comes: Sample,
    comes_again: Sample,
    goes: Sample,
}

/// `count` plugins appear, are made again, and vanish.
async fn live(folder: &Path, count: usize, calls: &mut Calls, lives: &mut Lives) -> Result<()> {
    let paths: Vec<PathBuf> = (0..count).map(|it| folder.join(format!("{it}.sock"))).collect();
    let listen = |path: &PathBuf| Plugin::listen(path, noop::info(&path.display().to_string()));
    let mut plugins: Vec<_> = paths.iter().map(listen).collect::<Result<_>>()?;
    for plugin in &mut plugins {
        lives.comes.add(plugin.registered().await? - plugin.listening);
    }

    let mut renewed = Vec::new();
    for (plugin, path) in plugins.iter().zip(&paths) {
        let started = Instant::now();
        plugin.unlink()?;
        renewed.push((started, listen(path)?));
    }
    for (started, plugin) in &mut renewed {
        lives.comes_again.add(plugin.registered().await? - *started);
    }
    calls.next(Call::Deregister, count).await?;

    let mut gone = Vec::new();
    for (_, plugin) in &renewed {
        gone.push(Instant::now());
        plugin.unlink()?;
    }
    let left = calls.next(Call::Deregister, count).await?;
    for (path, started) in paths.iter().zip(gone) {
        let at = left.get(path).with_context(|| path.display().to_string())?;
        lives.goes.add(*at - started);
    }
    Ok(())
}
