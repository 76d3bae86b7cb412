//! DRA drivers, with the registration socket as their endpoint: the tests look at connections only.

use std::sync::Arc;

use wharf_proto::{
    dra::{v1, v1beta1},
    pluginregistration::DRA_PLUGIN,
};
use wharf_registration::{
    dra::DraHandler,
    manager::{Handlers, State},
};
use wharf_testkit::plugin::{PluginScript, ScriptedPlugin};
use wharf_uds::{Channel, LinkState};

use crate::support::{Fixture, folder, soon};

const GPU: &str = "gpu.example.com";

#[tokio::test]
async fn the_first_service_of_the_plugins_list_that_is_known_counts() {
    let handler = DraHandler::default();
    let mut fixture = start(&handler).await;
    for (versions, service) in [
        (&[v1::SERVICE] as &[_], v1::SERVICE),
        (&[v1beta1::SERVICE], v1beta1::SERVICE),
        (&[v1beta1::SERVICE, v1::SERVICE], v1beta1::SERVICE),
        (&["v9.DRAPlugin", v1::SERVICE, v1beta1::SERVICE], v1::SERVICE),
    ] {
        let plugin = fixture.plugin("a.sock", PluginScript::of(DRA_PLUGIN, GPU, versions));
        plugin.wait_for_verdict(true).await;
        assert_eq!(handler.get(GPU).unwrap().1, service);
        plugin.stop().await;
        fixture.settled_with(&[]).await;
        assert!(handler.view().is_empty() && handler.get(GPU).is_none());
    }
}

#[tokio::test]
async fn a_plugin_without_a_known_service_is_refused() {
    let fixture = start(&DraHandler::default()).await;
    let socket = fixture.path("a.sock").display().to_string();
    let invalid = format!(
        "RegisterPlugin error -- plugin validation failed with err: \
         invalid supported gRPC versions of DRA driver plugin {GPU} at endpoint {socket}: "
    );
    for (versions, reason) in [
        (&[] as &[_], "empty list of supported gRPC services (aka supported versions)"),
        (
            &["v9.DRAPlugin", "1.0.0"],
            "none of services supported by the plugin ([\"v9.DRAPlugin\" \"1.0.0\"]) are supported by the kubelet \
             ([\"v1.DRAPlugin\" \"v1beta1.DRAPlugin\"])",
        ),
    ] {
        let plugin = fixture.plugin("a.sock", PluginScript::of(DRA_PLUGIN, GPU, versions));
        assert_eq!(plugin.wait_for_verdict(false).await, format!("{invalid}{reason}"));
    }
}

#[tokio::test]
async fn a_newer_endpoint_replaces_an_older_one_and_leaves_it_its_place() {
    let handler = DraHandler::default();
    let fixture = start(&handler).await;
    let serve = |socket| fixture.plugin(socket, PluginScript::of(DRA_PLUGIN, GPU, &[v1::SERVICE]));
    let old = serve("old.sock");
    old.wait_for_verdict(true).await;
    connected(&handler, &old).await;
    let new = serve("new.sock");
    new.wait_for_verdict(true).await;
    connected(&handler, &new).await;
    assert_eq!(handler.get(GPU).unwrap().0.path(), new.path(), "the most recent one");
    assert_eq!(handler.view().len(), 2);

    let path = new.path().to_owned();
    new.kill().await;
    lost(&channel(&handler, &path)).await;
    assert_eq!(handler.get(GPU).unwrap().0.path(), old.path(), "the most recent that is connected");
    let new = serve("new.sock");
    new.wait_for_verdict(true).await;
    connected(&handler, &new).await;
    assert_eq!(handler.get(GPU).unwrap().0.path(), new.path());
}

#[tokio::test]
async fn an_endpoint_is_registered_once() {
    let handler = DraHandler::default();
    let mut fixture = start(&handler).await;
    let mut script = PluginScript::of(DRA_PLUGIN, GPU, &[v1::SERVICE]);
    let first = fixture.plugin("first.sock", script.clone());
    first.wait_for_verdict(true).await;
    let endpoint = first.path().display().to_string();
    script.info.endpoint.clone_from(&endpoint);
    let notified = fixture.plugin("second.sock", script).wait_for_verdict(false).await;
    assert_eq!(
        notified,
        format!(
            "RegisterPlugin error -- plugin registration failed with err: \
             endpoint {endpoint} already registered for DRA driver plugin {GPU}"
        )
    );
    fixture.settled(|plugins| plugins[1].state == State::Failed).await;
    assert_eq!(handler.view().len(), 1);
}

#[tokio::test]
async fn the_connection_follows_the_driver_down_and_up() {
    let handler = DraHandler::default();
    let fixture = start(&handler).await;
    let elsewhere = folder();
    let script = PluginScript::of(DRA_PLUGIN, GPU, &[v1::SERVICE]);
    let driver = || ScriptedPlugin::serve(&elsewhere.path().join("dra.sock"), script.clone());
    let first = driver();
    let mut announcement = script.clone();
    announcement.info.endpoint = first.path().display().to_string();
    let plugin = fixture.plugin("a.sock", announcement);
    plugin.wait_for_verdict(true).await;
    connected(&handler, &first).await;
    let channel = channel(&handler, first.path());
    first.kill().await;
    lost(&channel).await;
    assert!(!handler.view()[0].connected);
    let second = driver();
    connected(&handler, &second).await;
    assert_eq!(plugin.calls().verdicts.len(), 1, "no registration of its own is needed for that");
}

async fn start(handler: &DraHandler) -> Fixture {
    Fixture::start_with(Handlers::new().with(DRA_PLUGIN, Arc::new(handler.clone()))).await
}

fn channel(handler: &DraHandler, endpoint: &std::path::Path) -> Channel {
    let chosen = handler.get(GPU).unwrap().0;
    assert_eq!(chosen.path(), endpoint);
    chosen
}

/// Waits until the handler is connected to the plugin. It has no event for that.
async fn connected(handler: &DraHandler, plugin: &ScriptedPlugin) {
    let endpoint = plugin.path().display().to_string();
    soon(async {
        while !handler.view().iter().any(|it| it.endpoint == endpoint && it.connected) {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

async fn lost(channel: &Channel) {
    let mut link = channel.link();
    soon(link.wait_for(|state| !matches!(state, LinkState::Connected { .. }))).await.unwrap();
}
