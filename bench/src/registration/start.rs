//! The start of a manager on a node with running plugins.

use std::time::Instant;

use anyhow::Result;
use wharf_registration::manager::{ManagerOptions, PluginManager};

use super::{noop, plugin::Plugin};
use crate::report::Report;

const LIMIT: f64 = 2.0;

/// Measures a start with `count` sockets.
pub(super) async fn measure(count: usize, report: &mut Report) -> Result<()> {
    report.section(&format!("no-op handler, {count} sockets present at start"));
    let folder = tempfile::tempdir()?;
    let (handlers, _calls) = noop::handlers(noop::KIND);
    let mut plugins = Vec::new();
    for it in 0..count {
        let name = format!("plugin-{it}");
        plugins.push(Plugin::listen(&folder.path().join(&name), noop::info(&name))?);
    }
    let started = Instant::now();
    let manager = PluginManager::start(ManagerOptions::new(folder.path()), handlers);
    let mut last = started;
    for plugin in &mut plugins {
        last = last.max(plugin.registered().await?);
    }
    report.at_most("start to the last Notify(true)", (last - started).as_secs_f64(), LIMIT, "s");
    manager.stop().await;
    Ok(())
}
