use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use anyhow::{Context, ensure};
use wharf_proto::pluginregistration::CSI_PLUGIN;
use wharf_registration::{
    csi::{
        CsiHandler, CsiOptions, Drivers,
        node::{NoApi, NodeRecord, RecordOptions},
    },
    manager::{Handlers, ManagerOptions, PluginManager},
};
use wharf_uds::LinkState;

use super::{
    scene::{PATIENCE, Scene},
    screen::Screen,
};

/// The kubelet's role: a plugin manager on a folder, and the drivers that it has registered.
pub(super) struct Node {
    registry: PathBuf,
    record: NodeRecord,
    manager: PluginManager,
    pub(super) drivers: Drivers,
}

impl Node {
    pub(super) async fn start(registry: &Path) -> anyhow::Result<Self> {
        let record = NodeRecord::start(Arc::new(NoApi), RecordOptions::default());
        let csi = Arc::new(CsiHandler::new(record.clone(), CsiOptions::default()));
        let drivers = csi.drivers();
        let handlers = Handlers::new().with(CSI_PLUGIN, csi);
        let manager = PluginManager::start(ManagerOptions::new(registry), handlers);
        manager.synced().wait_for(|synced| *synced).await?;
        Ok(Self { registry: registry.to_owned(), record, manager, drivers })
    }

    pub(super) fn scene<'a>(&self, screen: &'a Screen) -> Scene<'a> {
        Scene::new(screen, self.manager.events())
    }

    /// Waits until a driver's connection is up or down.
    pub(super) async fn connection(
        &self,
        scene: &Scene<'_>,
        name: &str,
        up: bool,
    ) -> anyhow::Result<()> {
        let driver = self.drivers.get(name).context("the driver is not registered")?;
        let mut link = driver.link();
        let reached = link.wait_for(|state| matches!(state, LinkState::Connected { .. }) == up);
        tokio::time::timeout(PATIENCE, reached)
            .await
            .with_context(|| format!("the connection did not change within {PATIENCE:?}"))??;
        scene.seen(if up { "connected" } else { "unreachable" }, name);
        Ok(())
    }

    /// Waits until the plugin manager is idle, and checks that no plugin, driver or file is left.
    pub(super) async fn drained(&self) -> anyhow::Result<()> {
        self.manager.idle().await;
        let plugins = self.manager.plugins();
        ensure!(plugins.is_empty(), "plugins are left: {plugins:?}");
        ensure!(self.drivers.view().is_empty(), "drivers are left: {:?}", self.drivers);
        let left: Vec<_> = std::fs::read_dir(&self.registry)?.filter_map(Result::ok).collect();
        ensure!(left.is_empty(), "files are left in {}: {left:?}", self.registry.display());
        Ok(())
    }

    pub(super) async fn stop(self) {
        self.manager.stop().await;
        self.record.stop().await;
    }
}
