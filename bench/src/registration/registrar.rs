//! The registrar, of which every driver of every node has one.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::{Duration, Instant},
};

use anyhow::Result;
use wharf_proto::pluginregistration::CSI_PLUGIN;
use wharf_registration::manager::{EventKind, ManagerOptions, PluginManager};
use wharf_testkit::process::Process;

use super::{
    binary::Binary,
    noop::{self, Call},
};
use crate::{report::Report, sample::Sample, usage::Usage};

const MEMORY: f64 = 8.0;
const START: f64 = 20.0;
const STOP: Duration = Duration::from_secs(10);
/// The name of the Go program in its image.
const OPPONENT: &str = "csi-node-driver-registrar";

/// Starts the registrar `count` times, and the Go program if the folder `peers` has it.
pub(super) async fn measure(
    binary: &Binary,
    peers: Option<&Path>,
    count: usize,
    report: &mut Report,
) -> Result<()> {
    report.section(&format!("registrar, {count} starts, p50"));
    let driver = binary.driver().await?;
    let ours = Program { path: binary.path().to_owned(), first: Some("registrar") };
    let figures = ours.figures(&driver.socket, count).await?;
    report.at_most("start to GetInfo answered", figures.start.p50(), START, "ms");
    report.at_most("resident memory once registered", figures.resident, MEMORY, "MB");
    report.show("of this not backed by a file", figures.anonymous, "MB");

    let what = format!("{OPPONENT}: start and memory");
    match peers.map(|folder| folder.join(OPPONENT)).filter(|path| path.is_file()) {
        None => report.not_measured(&what, "give it with --peers DIR"),
        Some(path) => {
            let theirs = Program { path, first: None }.figures(&driver.socket, count).await?;
            report.show(&format!("{OPPONENT}: start to GetInfo"), theirs.start.p50(), "ms");
            report.show(&format!("{OPPONENT}: resident memory"), theirs.resident, "MB");
        }
    }
    Ok(())
}

/// A program with node-driver-registrar's flags.
struct Program {
    path: PathBuf,
    first: Option<&'static str>,
}

/// Memory is that of the last start, in megabytes.
struct Figures {
    start: Sample,
    resident: f64,
    anonymous: f64,
}

impl Program {
    async fn figures(&self, driver: &Path, count: usize) -> Result<Figures> {
        let mut figures = Figures { start: Sample::default(), resident: 0.0, anonymous: 0.0 };
        for _ in 0..count {
            self.once(driver, &mut figures).await?;
        }
        Ok(figures)
    }

    /// Measures one start, in a folder that a manager watches.
    async fn once(&self, driver: &Path, figures: &mut Figures) -> Result<()> {
        let folder = tempfile::tempdir()?;
        let (handlers, mut calls) = noop::handlers(CSI_PLUGIN);
        let registry = folder.path().join("registry");
        let manager = PluginManager::start(ManagerOptions::new(&registry), handlers);
        manager.synced().wait_for(|synced| *synced).await?;
        let mut events = manager.events();

        let mut command = Command::new(&self.path);
        command.args(self.first).arg("--csi-address").arg(driver);
        command.arg("--kubelet-registration-path").arg(driver);
        command.arg("--plugin-registration-path").arg(&registry);
        let started = Instant::now();
        let registrar = Process::start("registrar", &command, folder.path())?;
        // Validation follows immediately on the answer to GetInfo.
        for (_, at) in calls.next(Call::Validate, 1).await? {
            figures.start.add(at - started);
        }
        while !matches!(events.recv().await?.kind, EventKind::Registered) {}
        let usage = Usage::of(registrar.id())?;
        figures.resident = usage.resident as f64 * 1024.0 / 1e6;
        figures.anonymous = usage.anonymous as f64 * 1024.0 / 1e6;
        registrar.stop(STOP).await?;
        manager.stop().await;
        Ok(())
    }
}
