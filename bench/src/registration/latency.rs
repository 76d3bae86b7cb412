//! From a socket that changes to the plugin, or its handler, that is told.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result};
use wharf_registration::manager::{ManagerOptions, PluginManager};

use super::noop::{self, Call, Calls};
use super::plugin::Plugin;
use crate::report::Report;
use crate::sample::Sample;

/// How many sockets a crowd is.
const CROWD: usize = 100;
const LIMIT: f64 = 20.0;
/// Taking out and taking in.
const LIMIT_AGAIN: f64 = 2.0 * LIMIT;

/// Plugins one by one, and in crowds.
pub(super) async fn measure(single: usize, crowds: usize, report: &mut Report) -> Result<()> {
    for (rounds, count, title) in [
        (single, 1, format!("no-op handler, {single} plugins one by one, p99")),
        (crowds, CROWD, format!("no-op handler, {CROWD} plugins at once, {crowds} times, p99")),
    ] {
        report.section(&title);
        let folder = tempfile::tempdir()?;
        let (handlers, mut calls) = noop::handlers(noop::KIND);
        let manager = PluginManager::start(ManagerOptions::new(folder.path()), handlers);
        manager.synced().wait_for(|synced| *synced).await.context("the manager")?;
        let mut lives = Lives::default();
        // The first life warms the machine up.
        live(folder.path(), count, &mut calls, &mut Lives::default()).await?;
        for _ in 0..rounds {
            live(folder.path(), count, &mut calls, &mut lives).await?;
        }
        manager.stop().await;
        report.at_most("listen() to Notify(true)", lives.comes.p99(), LIMIT, "ms");
        report.at_most("unlink to DeRegister", lives.goes.p99(), LIMIT, "ms");
        report.at_most(
            "unlink and listen() to Notify(true)",
            lives.comes_again.p99(),
            LIMIT_AGAIN,
            "ms",
        );
    }
    Ok(())
}

#[derive(Default)]
struct Lives {
    comes: Sample,
    comes_again: Sample,
    goes: Sample,
}

/// `count` plugins come, are made anew, and go.
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
