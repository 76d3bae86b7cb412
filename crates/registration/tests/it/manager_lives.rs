//! Lives of well-behaved plugins, from the kubelet's own tests.

use std::{fs, os::unix::net::UnixListener};

use prometheus_client::{encoding::text::encode, registry::Registry};
use wharf_registration::manager::{Handlers, PluginView, State};
use wharf_testkit::plugin::{PluginScript, ScriptedPlugin};

use crate::{
    recording::{
        Step::{Deregister, Register, Validate},
        Treatment,
    },
    support::{Fixture, folder, soon},
};

#[tokio::test]
async fn an_empty_folder_is_made_and_left_alone() {
    let fixture = Fixture::start().await;
    assert!(fixture.root().is_dir());
    soon(fixture.manager.idle()).await;
    assert!(fixture.manager.plugins().is_empty() && fixture.handler.calls().is_empty());
    fixture.manager.stop().await;
}

#[tokio::test]
async fn ten_sockets_come_and_go_in_turn() {
    let mut fixture = Fixture::start().await;
    for number in 0..10 {
        let socket = format!("{number}.sock");
        let plugin = fixture.registered(&socket, "csi.example.com").await;
        fixture.settled_with(&["csi.example.com"]).await;
        plugin.stop().await;
        fixture.settled_with(&[]).await;
        assert_eq!(fixture.handler.steps(&fixture.path(&socket)), [Validate, Register, Deregister]);
    }
}

#[tokio::test]
async fn ten_sockets_of_one_name_are_ten_plugins() {
    let mut fixture = Fixture::start().await;
    let sockets: Vec<_> = (0..10).map(|number| format!("{number}.sock")).collect();
    let script = || PluginScript::csi("csi.example.com");
    let mut plugins: Vec<_> = sockets.iter().map(|it| fixture.plugin(it, script())).collect();
    fixture.settled_with(&["csi.example.com"; 10]).await;
    plugins.remove(3).stop().await;
    fixture.settled_with(&["csi.example.com"; 9]).await;
    assert!(fixture.view("3.sock").is_none(), "the others are not taken for it");
}

#[tokio::test]
async fn a_socket_made_again_ten_times_is_one_plugin_each_time_anew() {
    let mut fixture = Fixture::start().await;
    let mut steps = vec![Validate, Register];
    let mut plugin = fixture.registered("a.sock", "csi.example.com").await;
    for _ in 0..10 {
        // Served on the same path by a new plugin while the old one is still registered.
        let again = fixture.registered("a.sock", "csi.example.com").await;
        drop(std::mem::replace(&mut plugin, again));
        fixture.settled_with(&["csi.example.com"]).await;
        steps.extend([Deregister, Validate, Register]);
        assert_eq!(fixture.handler.steps(plugin.path()), steps);
    }
}

#[tokio::test]
async fn sockets_that_are_there_at_the_start_are_registered() {
    let folder = folder();
    let registry = folder.path().join("registry");
    fs::create_dir_all(registry.join("sub")).unwrap();
    let serve = |number: usize| {
        let name = if number < 5 { format!("{number}.sock") } else { format!("sub/{number}.sock") };
        ScriptedPlugin::serve(&registry.join(name), PluginScript::csi("csi.example.com"))
    };
    let plugins: Vec<_> = (0..10).map(serve).collect();
    let mut fixture = Fixture::start_on(folder, Handlers::new()).await;
    fixture.settled_with(&["csi.example.com"; 10]).await;
    for plugin in &plugins {
        assert_eq!(plugin.wait_for_verdict(true).await, "");
        assert_eq!(plugin.calls().get_info, 1);
    }
}

#[tokio::test]
async fn sub_folders_at_any_depth_are_watched() {
    let mut fixture = Fixture::start().await;
    for depth in 0..3 {
        let place = "sub/".repeat(depth);
        fs::create_dir_all(fixture.path(&place)).unwrap();
        let socket = format!("{place}csi.sock");
        let plugin = fixture.registered(&socket, "csi.example.com").await;
        fixture.settled_with(&["csi.example.com"]).await;
        plugin.stop().await;
        fixture.settled_with(&[]).await;
        assert_eq!(fixture.handler.steps(&fixture.path(&socket)), [Validate, Register, Deregister]);
    }
}

#[tokio::test]
async fn the_handler_learns_what_the_plugin_said() {
    let fixture = Fixture::start().await;
    let mut script = PluginScript::csi("csi.example.com");
    script.info.supported_versions = vec!["1.2.0".into(), "1.0.0".into()];
    let own = fixture.plugin("own.sock", script.clone());
    own.wait_for_verdict(true).await;
    script.info.endpoint = "/run/csi.sock".to_owned();
    fixture.plugin("other.sock", script).wait_for_verdict(true).await;
    for (call, endpoint) in fixture
        .handler
        .calls()
        .into_iter()
        .step_by(2)
        .zip([own.path().to_str().unwrap(), "/run/csi.sock"])
    {
        assert_eq!(call.plugin.kind, "CSIPlugin");
        assert_eq!(call.plugin.name, "csi.example.com");
        assert_eq!(call.plugin.versions, ["1.2.0", "1.0.0"]);
        assert_eq!(call.plugin.endpoint, endpoint, "no endpoint is the socket itself");
    }
}

#[tokio::test]
async fn plugins_do_not_wait_for_each_other() {
    let mut fixture = Fixture::start().await;
    fixture.handler.treat("slow", Treatment::Hang(Register));
    let slow: Vec<_> = (0..8)
        .map(|number| fixture.plugin(&format!("{number}.sock"), PluginScript::csi("slow")))
        .collect();
    fixture.handler.wait_for_count(Register, 8).await;
    let quick = fixture.registered("quick.sock", "quick").await;
    assert_eq!(fixture.view("0.sock").unwrap().state, State::Registering);
    for plugin in slow {
        plugin.stop().await;
    }
    fixture.settled_with(&["quick"]).await;
    quick.stop().await;
    fixture.settled_with(&[]).await;
}

#[tokio::test]
async fn a_new_manager_on_the_folder_of_a_killed_one_registers_all_again() {
    let mut fixture = Fixture::start().await;
    let (a, b) = (fixture.registered("a.sock", "a").await, fixture.registered("b.sock", "b").await);
    for lives in 2..4 {
        fixture = fixture.killed_and_started_again().await;
        fixture.settled_with(&["a", "b"]).await;
        for plugin in [&a, &b] {
            plugin.wait_for(|calls| calls.verdicts.len() == lives).await;
        }
    }
    assert!(!fixture.handler.calls().iter().any(|call| call.step == Deregister));
}

#[tokio::test]
async fn desired_and_actual_are_counted_as_the_kubelet_counts_them() {
    let mut fixture = Fixture::start().await;
    let _a = fixture.registered("a.sock", "a").await;
    let b = fixture.registered("b.sock", "b").await;
    fixture.settled_with(&["a", "b"]).await;
    b.stop().await;
    fixture.settled_with(&["a"]).await;
    let stranger = fixture.plugin("c.sock", PluginScript::of("Strange", "c", &["1.0.0"]));
    stranger.wait_for_verdict(false).await;
    fixture.settled(|plugins| plugins[1].state == State::Failed).await;
    let mut registry = Registry::default();
    fixture.manager.register_metrics(&mut registry);
    let mut text = String::new();
    encode(&mut text, &registry).unwrap();
    let total = |socket: &str, state: &str| {
        let path = fixture.path(socket);
        format!("plugin_manager_total_plugins{{socket_path={path:?},state=\"{state}\"}} 1")
    };
    for (line, there) in [
        (total("a.sock", "desired_state_of_world"), true),
        (total("a.sock", "actual_state_of_world"), true),
        (total("b.sock", "desired_state_of_world"), false),
        (total("c.sock", "desired_state_of_world"), true),
        (total("c.sock", "actual_state_of_world"), false),
        ("wharf_plugin_registrations_total{type=\"CSIPlugin\"} 2".to_owned(), true),
        ("wharf_plugin_deregistrations_total{type=\"CSIPlugin\"} 1".to_owned(), true),
        ("wharf_plugin_registration_failures_total 1".to_owned(), true),
        ("wharf_plugin_registration_seconds_count 2".to_owned(), true),
    ] {
        assert_eq!(text.lines().any(|found| found == line), there, "{line} in\n{text}");
    }
}

#[tokio::test]
async fn a_stopped_manager_leaves_plugins_registered() {
    let fixture = Fixture::start().await;
    let plugin = fixture.registered("a.sock", "a").await;
    let handler = fixture.handler.clone();
    soon(fixture.manager.stop()).await;
    assert_eq!(handler.steps(plugin.path()), [Validate, Register]);
}

/// Sockets that accept and never answer are each asked for 10 s. They must not take all operations.
#[tokio::test(flavor = "multi_thread")]
async fn hundreds_of_silent_sockets_do_not_keep_a_plugin_waiting() {
    let mut fixture = Fixture::start().await;
    let silent: Vec<_> = (0..600)
        .map(|number| UnixListener::bind(fixture.path(&format!("silent-{number}.sock"))).unwrap())
        .collect();
    fixture.settled(|plugins| plugins.len() == silent.len()).await;
    fixture.registered("good.sock", "good").await;
    let waited_out = |view: &PluginView| {
        view.error.as_deref().is_some_and(|error| error.contains("dial failed"))
    };
    let plugins = fixture.manager.plugins();
    let waited_out: Vec<_> = plugins.iter().filter(|view| waited_out(view)).collect();
    assert!(waited_out.is_empty(), "registered after {} greetings of 10 s", waited_out.len());
}
