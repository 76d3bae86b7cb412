//! The example registers with a real plugin manager, which lists its devices.

#![allow(clippy::unwrap_used, missing_docs)]

use std::{process::Command, sync::Arc, time::Duration};

use wharf_proto::pluginregistration::DEVICE_PLUGIN;
use wharf_registration::{
    device::DeviceHandler,
    manager::{Handlers, ManagerOptions, PluginManager},
};
use wharf_testkit::process::Process;

const PATIENCE: Duration = Duration::from_secs(20);

#[tokio::test]
async fn its_widgets_are_listed_and_go_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let registry = folder.path().join("registry");
    let devices = DeviceHandler::default();
    let inventory = devices.inventory();
    let handlers = Handlers::new().with(DEVICE_PLUGIN, Arc::new(devices));
    let manager = PluginManager::start(ManagerOptions::new(&registry), handlers);
    manager.synced().wait_for(|synced| *synced).await.unwrap();

    let mut command = Command::new(env!("CARGO_BIN_EXE_example-plugin"));
    command.arg(&registry);
    let mut plugin = Process::start("plugin", &command, folder.path()).unwrap();
    let mut changes = inventory.changes();
    let healthy = || {
        let resources = inventory.view();
        resources.iter().flat_map(|it| it.devices.values()).filter(|device| device.healthy).count()
    };
    let listed = changes.wait_for(|_| healthy() == 2);
    tokio::time::timeout(PATIENCE, listed).await.unwrap().unwrap();
    plugin
        .line(PATIENCE, "its own word", |line| line.starts_with("registered at").then_some(()))
        .await
        .unwrap();

    assert!(plugin.stop(PATIENCE).await.unwrap().success());
    let gone = changes.wait_for(|_| healthy() == 0);
    tokio::time::timeout(PATIENCE, gone).await.unwrap().unwrap();
    manager.stop().await;
}
