//! Device plugins, registered through the plugin manager and the legacy service.

use std::{path::Path, sync::Arc, time::Duration};

use wharf_proto::{
    deviceplugin::{
        HEALTHY, RegisterRequest, UNHEALTHY, VERSION, registration_client::RegistrationClient,
    },
    pluginregistration::DEVICE_PLUGIN,
};
use wharf_registration::{
    device::{DeviceHandler, Inventory, LegacyServer},
    manager::{Handlers, State},
};
use wharf_testkit::{
    device_plugin::ScriptedDevicePlugin,
    plugin::{PluginScript, ScriptedPlugin},
};
use wharf_uds::{Channel, ChannelOptions};

use crate::support::{Fixture, folder, soon};

const GPU: &str = "example.com/gpu";
/// Long enough that no grace period ends in a test.
const LONG: Duration = Duration::from_hours(1);

#[tokio::test]
async fn a_plugin_registers_through_its_socket_and_its_list_is_followed() {
    let handler = DeviceHandler::new(LONG);
    let inventory = handler.inventory();
    let mut fixture = Fixture::start_with(handlers(&handler)).await;
    let devices = ScriptedDevicePlugin::serve(
        &fixture.root().with_file_name("gpu.sock"),
        &[("a", HEALTHY), ("b", UNHEALTHY)],
    );
    let plugin = announced(&fixture, "gpu-reg.sock", &devices);
    plugin.wait_for_verdict(true).await;
    shows(&inventory, &[("a", true), ("b", false)]).await;
    assert!(inventory.options(GPU).unwrap().pre_start_required);

    devices.send(&[("b", HEALTHY), ("c", HEALTHY)]);
    shows(&inventory, &[("b", true), ("c", true)]).await;

    plugin.stop().await;
    fixture.settled_with(&[]).await;
    shows(&inventory, &[("b", false), ("c", false)]).await;
    assert_eq!(inventory.view()[0].endpoint, None, "kept for the grace period");
}

#[tokio::test]
async fn a_stream_that_ends_leaves_its_devices_unusable() {
    let handler = DeviceHandler::new(LONG);
    let inventory = handler.inventory();
    let mut fixture = Fixture::start_with(handlers(&handler)).await;
    let socket = fixture.root().with_file_name("gpu.sock");
    for killed in [false, true] {
        let devices = ScriptedDevicePlugin::serve(&socket, &[("a", HEALTHY)]);
        let plugin = announced(&fixture, "gpu-reg.sock", &devices);
        plugin.wait_for_verdict(true).await;
        shows(&inventory, &[("a", true)]).await;
        if killed {
            devices.kill().await;
        } else {
            devices.end_streams();
        }
        shows(&inventory, &[("a", false)]).await;
        plugin.stop().await;
        fixture.settled_with(&[]).await;
    }
}

#[tokio::test]
async fn a_resource_whose_plugin_stays_away_is_dropped() {
    let handler = DeviceHandler::new(Duration::from_millis(20));
    let inventory = handler.inventory();
    let fixture = Fixture::start_with(handlers(&handler)).await;
    let devices =
        ScriptedDevicePlugin::serve(&fixture.root().with_file_name("gpu.sock"), &[("a", HEALTHY)]);
    let plugin = announced(&fixture, "gpu-reg.sock", &devices);
    plugin.wait_for_verdict(true).await;
    shows(&inventory, &[("a", true)]).await;
    plugin.stop().await;
    let mut changes = inventory.changes();
    soon(changes.wait_for(|_| inventory.view().is_empty())).await.unwrap();
}

#[tokio::test]
async fn the_newest_endpoint_serves_and_the_older_one_takes_over() {
    let handler = DeviceHandler::new(LONG);
    let inventory = handler.inventory();
    let fixture = Fixture::start_with(handlers(&handler)).await;
    let serve = |name: &str, device: &str| {
        ScriptedDevicePlugin::serve(&fixture.root().with_file_name(name), &[(device, HEALTHY)])
    };
    let (old, new) = (serve("old.sock", "old"), serve("new.sock", "new"));
    announced(&fixture, "old-reg.sock", &old).wait_for_verdict(true).await;
    shows(&inventory, &[("old", true)]).await;
    let upgrade = announced(&fixture, "new-reg.sock", &new);
    upgrade.wait_for_verdict(true).await;
    shows(&inventory, &[("new", true)]).await;
    upgrade.stop().await;
    shows(&inventory, &[("old", true)]).await;
    assert_eq!(inventory.view()[0].endpoint.as_deref(), old.path().to_str());
}

#[tokio::test]
async fn an_endpoint_is_registered_once() {
    let handler = DeviceHandler::new(LONG);
    let mut fixture = Fixture::start_with(handlers(&handler)).await;
    let devices =
        ScriptedDevicePlugin::serve(&fixture.root().with_file_name("gpu.sock"), &[("a", HEALTHY)]);
    let first = announced(&fixture, "first.sock", &devices);
    first.wait_for_verdict(true).await;
    let notified = announced(&fixture, "second.sock", &devices).wait_for_verdict(false).await;
    let endpoint = devices.path().display();
    assert_eq!(
        notified,
        format!(
            "RegisterPlugin error -- plugin registration failed with err: device plugin already connected: {endpoint}"
        )
    );
    fixture.settled(|plugins| plugins[1].state == State::Failed).await;
    shows(&handler.inventory(), &[("a", true)]).await;
}

#[tokio::test]
async fn an_endpoint_that_cannot_be_used_is_refused() {
    let fixture = Fixture::start_with(handlers(&DeviceHandler::new(LONG))).await;
    let mut script = PluginScript::of(DEVICE_PLUGIN, GPU, &[VERSION]);
    // It serves Registration, but no devices.
    let notified = fixture.plugin("a.sock", script.clone()).wait_for_verdict(false).await;
    assert!(
        notified.contains("failed to get device plugin options: rpc error: code = Unimplemented"),
        "{notified}"
    );
    script.info.endpoint = "gpu.sock".to_owned();
    let notified = fixture.plugin("b.sock", script).wait_for_verdict(false).await;
    assert!(notified.ends_with("expected an absolute path of a unix socket"), "{notified}");
}

#[tokio::test]
async fn a_plugin_registers_in_the_old_way() {
    let folder = folder();
    std::os::unix::net::UnixListener::bind(folder.path().join("stale.sock")).unwrap();
    std::fs::write(folder.path().join("kubelet_internal_checkpoint"), "{}").unwrap();
    let handler = DeviceHandler::new(LONG);
    let legacy = LegacyServer::start(folder.path(), handler.clone()).unwrap();
    assert!(!folder.path().join("stale.sock").exists(), "plugins notice that and come again");
    assert!(folder.path().join("kubelet_internal_checkpoint").exists());

    let devices = ScriptedDevicePlugin::serve(&folder.path().join("gpu.sock"), &[("a", HEALTHY)]);
    register(folder.path(), VERSION, "gpu.sock", GPU).await.unwrap();
    shows(&handler.inventory(), &[("a", true)]).await;
    let twice = register(folder.path(), VERSION, "gpu.sock", GPU).await;
    assert_eq!(
        twice,
        Err(format!("device plugin already connected: {}", devices.path().display()))
    );
    // After a restart its old stream ends, and it may register again.
    devices.kill().await;
    shows(&handler.inventory(), &[("a", false)]).await;
    let _devices = ScriptedDevicePlugin::serve(&folder.path().join("gpu.sock"), &[("a", HEALTHY)]);
    register(folder.path(), VERSION, "gpu.sock", GPU).await.unwrap();
    shows(&handler.inventory(), &[("a", true)]).await;
    legacy.stop().await;
    assert!(!folder.path().join("kubelet.sock").exists());
}

#[tokio::test]
async fn what_is_wrong_with_a_request_is_said_in_the_kubelets_words() {
    let folder = folder();
    let _legacy = LegacyServer::start(folder.path(), DeviceHandler::new(LONG)).unwrap();
    let shown = folder.path().display();
    for (version, endpoint, resource, notified) in [
        (
            "v1alpha",
            "gpu.sock",
            GPU,
            "requested API version \"v1alpha\" is not supported by kubelet. Supported version is [\"v1beta1\"]",
        ),
        (VERSION, "gpu.sock", "gpu", "the ResourceName \"gpu\" is invalid"),
        (VERSION, "gpu.sock", "", "the ResourceName \"\" is invalid"),
        (VERSION, "", GPU, &*format!("endpoint \"\" is not the name of a socket in {shown}")),
        (
            VERSION,
            "../gpu.sock",
            GPU,
            &format!("endpoint \"../gpu.sock\" is not the name of a socket in {shown}"),
        ),
    ] {
        let answer = register(folder.path(), version, endpoint, resource).await;
        assert_eq!(answer, Err(notified.to_owned()));
    }
}

fn handlers(handler: &DeviceHandler) -> Handlers {
    Handlers::new().with(DEVICE_PLUGIN, Arc::new(handler.clone()))
}

/// Announces the endpoint of a device plugin in the manager's folder.
fn announced(fixture: &Fixture, socket: &str, devices: &ScriptedDevicePlugin) -> ScriptedPlugin {
    let mut script = PluginScript::of(DEVICE_PLUGIN, GPU, &[VERSION]);
    script.info.endpoint = devices.path().display().to_string();
    fixture.plugin(socket, script)
}

/// Waits until the inventory has exactly these devices, with their health.
async fn shows(inventory: &Inventory, wanted: &[(&str, bool)]) {
    let devices = || -> Vec<(String, bool)> {
        let view = inventory.view();
        let devices = view.into_iter().flat_map(|resource| resource.devices);
        devices.map(|(id, device)| (id, device.healthy)).collect()
    };
    let wanted: Vec<_> = wanted.iter().map(|(id, healthy)| ((*id).to_owned(), *healthy)).collect();
    let mut changes = inventory.changes();
    soon(changes.wait_for(|_| devices() == wanted)).await.unwrap();
}

async fn register(
    folder: &Path,
    version: &str,
    endpoint: &str,
    resource: &str,
) -> Result<(), String> {
    let channel = Channel::new(folder.join("kubelet.sock"), ChannelOptions::default());
    let request = RegisterRequest {
        version: version.to_owned(),
        endpoint: endpoint.to_owned(),
        resource_name: resource.to_owned(),
        options: None,
    };
    let answer = soon(RegistrationClient::new(channel).register(request)).await;
    answer.map(drop).map_err(|status| status.message().to_owned())
}
