//! Handlers that refuse, hang and panic, and the notifications to the plugin.

use wharf_proto::pluginregistration::{DEVICE_PLUGIN, DRA_PLUGIN};
use wharf_registration::{
    device::DeviceHandler,
    dra::DraHandler,
    manager::{EventKind, Handlers, State},
};
use wharf_testkit::plugin::{Answer, PluginScript};

use crate::{
    recording::{
        Step::{Deregister, Register, Validate},
        Treatment,
    },
    support::{Fixture, Log, soon},
};

#[tokio::test]
async fn a_refused_plugin_hears_the_kubelets_words() {
    let handlers = Handlers::new()
        .with(DEVICE_PLUGIN, std::sync::Arc::new(DeviceHandler::default()))
        .with(DRA_PLUGIN, std::sync::Arc::new(DraHandler::default()));
    let mut fixture = Fixture::start_with(handlers).await;
    fixture.handler.treat("unloved", Treatment::Refuse(Validate, "no such driver here"));
    fixture.handler.treat("too-late", Treatment::Refuse(Register, "the disk is full"));
    let (log, _guard) = Log::start();
    let socket = fixture.path("x.sock").display().to_string();
    for (kind, name, versions, notified) in [
        (
            "FancyPlugin",
            "a",
            &["1.0.0"] as &[_],
            &*format!(
                "RegisterPlugin error -- no handler registered for plugin type: FancyPlugin at socket {socket}"
            ),
        ),
        (
            "",
            "a",
            &["1.0.0"],
            &format!(
                "RegisterPlugin error -- no handler registered for plugin type:  at socket {socket}"
            ),
        ),
        (
            "CSIPlugin",
            "unloved",
            &["1.0.0"],
            "RegisterPlugin error -- plugin validation failed with err: no such driver here",
        ),
        (
            "CSIPlugin",
            "too-late",
            &["1.0.0"],
            "RegisterPlugin error -- plugin registration failed with err: the disk is full",
        ),
        (
            DEVICE_PLUGIN,
            "",
            &["v1beta1"],
            "RegisterPlugin error -- plugin validation failed with err: \
             invalid name of device plugin socket: the ResourceName \"\" is invalid",
        ),
        (
            DEVICE_PLUGIN,
            "example.com/gpu",
            &[],
            "RegisterPlugin error -- plugin validation failed with err: \
             manager version, v1beta1, is not among plugin supported versions []",
        ),
        (
            DEVICE_PLUGIN,
            "example.com/gpu",
            &["v1alpha", "v9"],
            "RegisterPlugin error -- plugin validation failed with err: \
             manager version, v1beta1, is not among plugin supported versions [v1alpha v9]",
        ),
        (
            DRA_PLUGIN,
            "",
            &["v1.DRAPlugin"],
            "RegisterPlugin error -- plugin validation failed with err: \
             the DRA driver's name is empty: GetInfo must return it",
        ),
        (
            DRA_PLUGIN,
            "../evil\x1b[2J",
            &["v1.DRAPlugin"],
            "RegisterPlugin error -- plugin validation failed with err: \
             the DRA driver's name \"../evil\\\\u{1b}[2J\" is not domain-like: expected at most 63 lower-case letters, \
             digits, '-' and '.', each part between dots beginning and ending with a letter or digit",
        ),
    ] {
        let plugin = fixture.plugin("x.sock", PluginScript::of(kind, name, versions));
        assert_eq!(plugin.wait_for_verdict(false).await, notified);
        fixture.settled(|plugins| plugins[0].state == State::Failed).await;
        assert_eq!(fixture.view("x.sock").unwrap().error.as_deref(), Some(notified));
        let calls = plugin.calls();
        assert!(calls.verdicts.iter().all(|verdict| !verdict.plugin_registered));
        plugin.stop().await;
        fixture.settled_with(&[]).await;
        assert!(log.text().contains(&format!("{notified:?}")), "{}", log.text());
    }
    assert!(!fixture.handler.calls().iter().any(|call| call.step == Deregister));
}

#[tokio::test]
async fn a_plugin_with_a_name_of_a_megabyte_is_refused_whatever_its_type() {
    let mut fixture = Fixture::start().await;
    let (log, _guard) = Log::start();
    let script = PluginScript::of("CSIPlugin", &"x".repeat(1 << 20), &["1.0.0"]);
    let plugin = fixture.plugin("x.sock", script);
    let notified = plugin.wait_for_verdict(false).await;
    assert!(
        notified.contains("name of GetInfo has 1048576 bytes: expected at most 4096"),
        "{notified}"
    );
    fixture.settled(|plugins| plugins[0].state == State::Failed).await;
    assert!(log.text().len() < 10_000, "{} bytes of log", log.text().len());
}

#[tokio::test]
async fn a_megabyte_of_versions_stays_out_of_log_and_verdict() {
    let handlers =
        Handlers::new().with(DEVICE_PLUGIN, std::sync::Arc::new(DeviceHandler::default()));
    let mut fixture = Fixture::start_with(handlers).await;
    let (log, _guard) = Log::start();
    let version = "v".repeat(1024);
    let versions = vec![version.as_str(); 1024];
    let plugin =
        fixture.plugin("x.sock", PluginScript::of(DEVICE_PLUGIN, "example.com/gpu", &versions));
    let notified = plugin.wait_for_verdict(false).await;
    assert!(notified.starts_with("RegisterPlugin error -- plugin validation failed"), "{notified}");
    assert!(notified.len() < 1100, "{} bytes", notified.len());
    fixture.settled(|plugins| plugins[0].state == State::Failed).await;
    let longest = log.text().lines().map(str::len).max().unwrap();
    assert!((1000..2000).contains(&longest), "{longest} bytes in a line");
}

#[tokio::test]
async fn a_verdict_that_does_not_arrive_undoes_the_registration() {
    let mut fixture = Fixture::start().await;
    let refusing = Answer::Error(tonic::Status::internal("not listening"));
    for (answer, text) in [
        (refusing, "rpc error: code = Internal desc = not listening"),
        (Answer::Never, "rpc error: code = DeadlineExceeded"),
    ] {
        let script = PluginScript { notify: answer, ..PluginScript::csi("deaf") };
        let plugin = fixture.plugin("deaf.sock", script);
        fixture.settled(|plugins| plugins.iter().any(|it| it.state == State::Failed)).await;
        let error = fixture.view("deaf.sock").unwrap().error.unwrap();
        assert!(
            error.contains("failed to send registration status") && error.contains(text),
            "{error}"
        );
        let steps = fixture.handler.steps(plugin.path());
        assert_eq!(steps[steps.len() - 3..], [Validate, Register, Deregister]);
        // The next attempt needs no event.
        plugin.change(|script| script.notify = Answer::AtOnce);
        fixture.settled_with(&["deaf"]).await;
        plugin.stop().await;
        fixture.settled_with(&[]).await;
    }
}

#[tokio::test]
async fn a_refusal_that_does_not_arrive_is_told_to_people() {
    let mut fixture = Fixture::start().await;
    fixture.handler.treat("deaf", Treatment::Refuse(Validate, "no such driver here"));
    let notify = Answer::Error(tonic::Status::internal("not listening"));
    let _plugin = fixture.plugin("x.sock", PluginScript { notify, ..PluginScript::csi("deaf") });
    fixture.settled(|plugins| plugins.iter().any(|it| it.state == State::Failed)).await;
    let error = fixture.view("x.sock").unwrap().error.unwrap();
    let socket = fixture.path("x.sock");
    assert_eq!(
        error,
        format!(
            "RegisterPlugin error -- failed to send error at socket {}, err: RegisterPlugin error -- plugin \
             validation failed with err: no such driver here: rpc error: code = Internal desc = not listening",
            socket.display()
        )
    );
}

#[tokio::test]
async fn a_handler_that_panics_harms_only_its_plugin() {
    let mut fixture = Fixture::start().await;
    for (step, seen) in [
        (Validate, &[Validate, Validate, Register, Deregister] as &[_]),
        (Register, &[Validate, Register, Deregister, Validate, Register, Deregister]),
        // Deregistered as far as the manager can tell, so it is not deregistered again.
        (Deregister, &[Validate, Register, Deregister]),
    ] {
        let socket = format!("{step:?}.sock");
        fixture.handler.treat("cursed", Treatment::Panic(step));
        let plugin = fixture.plugin(&socket, PluginScript::csi("cursed"));
        let path = plugin.path().to_owned();
        if step != Deregister {
            fixture.settled(|plugins| plugins.iter().any(|it| it.state == State::Failed)).await;
            let error = fixture.view(&socket).unwrap().error.unwrap();
            assert!(error.contains("handler panicked"), "{error}");
            fixture.registered("other.sock", "other").await.stop().await;
            fixture.handler.welcome("cursed");
        }
        fixture.settled_with(&["cursed"]).await;
        plugin.stop().await;
        fixture.handler.wait_for(&path, seen).await;
        fixture.settled_with(&[]).await;
        assert_eq!(fixture.handler.steps(&path), seen);
    }
}

#[tokio::test]
async fn a_socket_that_goes_while_its_handler_registers_is_deregistered() {
    let mut fixture = Fixture::start().await;
    fixture.handler.treat("slow", Treatment::Hang(Register));
    let plugin = fixture.plugin("slow.sock", PluginScript::csi("slow"));
    let path = plugin.path().to_owned();
    fixture.handler.wait_for(&path, &[Validate, Register]).await;
    plugin.stop().await;
    fixture.event(&path, &EventKind::Deregistered).await;
    fixture.settled_with(&[]).await;
    assert_eq!(fixture.handler.steps(&path), [Validate, Register, Deregister]);

    // Made again meanwhile: the same for the old one, and then the new one is registered.
    let _first = fixture.plugin("slow.sock", PluginScript::csi("slow"));
    let steps = [Validate, Register, Deregister, Validate, Register];
    fixture.handler.wait_for(&path, &steps).await;
    let second = fixture.registered("slow.sock", "new").await;
    assert_eq!(fixture.handler.steps(second.path())[5..], [Deregister, Validate, Register]);
    fixture.settled_with(&["new"]).await;
}

#[tokio::test]
async fn a_manager_stops_while_a_handler_hangs() {
    let fixture = Fixture::start().await;
    fixture.handler.treat("slow", Treatment::Hang(Register));
    let plugin = fixture.plugin("slow.sock", PluginScript::csi("slow"));
    fixture.handler.wait_for(plugin.path(), &[Validate, Register]).await;
    soon(fixture.manager.stop()).await;
}
