use std::{
    path::Path,
    process::ExitCode,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, bail, ensure};
use tokio::sync::broadcast;
use tokio_util::sync::CancellationToken;
use wharf_proto::pluginregistration::CSI_PLUGIN;
use wharf_registration::{
    csi::{
        CsiHandler, CsiOptions, Drivers,
        node::{NoApi, NodeRecord, RecordOptions},
    },
    manager::{EventKind, Handlers, ManagerOptions, PluginEvent, PluginManager},
};

use super::{children::Children, driver::NAME, screen::Screen};

/// How long anything may take before the demo is considered failed.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs the demo in a temporary folder that is removed at the end, also after a failure.
pub(super) async fn tell(verbose: bool, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let screen = Screen::new();
    let folder = tempfile::Builder::new().prefix("wharf-demo-").tempdir()?;
    let outcome = tokio::select! {
        () = stop.cancelled() => Err(anyhow::anyhow!("stopped by a signal")),
        outcome = play(&screen, folder.path(), verbose) => outcome,
    };
    let path = folder.path().to_owned();
    folder.close().with_context(|| format!("removing {}", path.display()))?;
    match outcome {
        Ok(()) => {
            screen.step("done: every step was seen to happen, and nothing is left");
            Ok(ExitCode::SUCCESS)
        }
        Err(error) => {
            screen.failed(&format!("{error:#}"));
            Ok(ExitCode::FAILURE)
        }
    }
}

async fn play(screen: &Screen, folder: &Path, verbose: bool) -> anyhow::Result<()> {
    let registry = folder.join("plugins_registry");
    screen.step(&format!("plugin manager starts on {}", registry.display()));
    let record = NodeRecord::start(Arc::new(NoApi), RecordOptions::default());
    let csi = Arc::new(CsiHandler::new(record.clone(), CsiOptions::default()));
    let drivers = csi.drivers();
    let manager =
        PluginManager::start(ManagerOptions::new(&registry), Handlers::new().with(CSI_PLUGIN, csi));
    let mut scene = Scene { screen, events: manager.events(), acted: Instant::now() };
    manager.synced().wait_for(|synced| *synced).await?;

    scene.act("a CSI driver and its registrar start, each a process");
    let mut children = Children::start(folder, verbose)?;
    scene.expect(&[EventKind::Seen, EventKind::Validated, EventKind::Registered]).await?;
    let line = drivers.view().into_iter().next().context("the driver is not in the table")?;
    screen.step(&format!(
        "driver {} says: node {}, room for {} volumes, topology {:?}",
        line.name, line.node_id, line.max_volumes, line.topology
    ));

    scene.act("the driver is killed (SIGKILL); its socket file stays behind");
    children.kill_driver().await?;
    scene.connection(&drivers, false).await?;

    scene.act("the registrar is told to stop (SIGTERM)");
    children.stop().await?;
    scene.expect(&[EventKind::Gone, EventKind::Deregistered]).await?;

    scene.act("both come back");
    let children = Children::start(folder, verbose)?;
    scene.expect(&[EventKind::Seen, EventKind::Validated, EventKind::Registered]).await?;
    scene.connection(&drivers, true).await?;

    scene.act("the node is drained");
    children.stop().await?;
    scene.expect(&[EventKind::Gone, EventKind::Deregistered]).await?;
    manager.idle().await;
    ensure!(manager.plugins().is_empty(), "plugins are left: {:?}", manager.plugins());
    ensure!(drivers.view().is_empty(), "drivers are left: {drivers:?}");
    let left: Vec<_> = std::fs::read_dir(&registry)?.filter_map(Result::ok).collect();
    ensure!(left.is_empty(), "files are left in {}: {left:?}", registry.display());
    manager.stop().await;
    record.stop().await;
    Ok(())
}

/// What happens after an action, in order.
struct Scene<'a> {
    screen: &'a Screen,
    events: broadcast::Receiver<PluginEvent>,
    acted: Instant,
}

impl Scene<'_> {
    fn act(&mut self, text: &str) {
        self.screen.step(text);
        self.acted = Instant::now();
    }

    /// Waits for exactly these events of the demo's plugin, in this order.
    async fn expect(&mut self, kinds: &[EventKind]) -> anyhow::Result<()> {
        for kind in kinds {
            let event = tokio::time::timeout(PATIENCE, self.events.recv())
                .await
                .with_context(|| format!("{kind:?} was not seen within {PATIENCE:?}"))??;
            if event.kind != *kind {
                bail!("expected {kind:?}, but this happened: {:?}", event.kind);
            }
            let what = format!("{kind:?}").to_lowercase();
            let socket = event.socket.file_name().unwrap_or_default().to_string_lossy();
            self.screen.seen(&what, self.acted.elapsed(), &socket);
        }
        Ok(())
    }

    /// Waits until the driver's connection is up or down.
    async fn connection(&self, drivers: &Drivers, up: bool) -> anyhow::Result<()> {
        let driver = drivers.get(NAME).context("the driver is not registered")?;
        let mut link = driver.link();
        let reached = link.wait_for(|_| driver.is_connected() == up);
        tokio::time::timeout(PATIENCE, reached)
            .await
            .with_context(|| format!("the connection did not change within {PATIENCE:?}"))??;
        let what = if up { "connected" } else { "unreachable" };
        self.screen.seen(what, self.acted.elapsed(), NAME);
        Ok(())
    }
}
