//! Handlers that refuse, hang and panic, and what the plugin hears of it.

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
    support::{Bench, Log, soon},
};

#[tokio::test]
async fn a_refused_plugin_hears_the_kubelets_words() {
    let handlers = Handlers::new()
        .with(DEVICE_PLUGIN, std::sync::Arc::new(DeviceHandler::default()))
        .with(DRA_PLUGIN, std::sync::Arc::new(DraHandler::default()));
    let mut bench = Bench::start_with(handlers).await;
    bench.handler.treat("unloved", Treatment::Refuse(Validate, "no such driver here"));
    bench.handler.treat("too-late", Treatment::Refuse(Register, "the disk is full"));
    let (log, _guard) = Log::start();
    let socket = bench.path("x.sock").display().to_string();
    for (kind, name, versions, told) in [
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
        let plugin = bench.plugin("x.sock", PluginScript::of(kind, name, versions));
        assert_eq!(plugin.wait_for_verdict(false).await, told);
        bench.settled(|plugins| plugins[0].state == State::Failed).await;
        assert_eq!(bench.view("x.sock").unwrap().error.as_deref(), Some(told));
        let calls = plugin.calls();
        assert!(calls.verdicts.iter().all(|verdict| !verdict.plugin_registered));
        plugin.stop().await;
        bench.settled_with(&[]).await;
        assert!(log.text().contains(&format!("{told:?}")), "{}", log.text());
    }
    assert!(!bench.handler.calls().iter().any(|call| call.step == Deregister));
}

#[tokio::test]
async fn a_plugin_with_a_name_of_a_megabyte_is_refused_whatever_its_type() {
    let mut bench = Bench::start().await;
    let (log, _guard) = Log::start();
    let script = PluginScript::of("CSIPlugin", &"x".repeat(1 << 20), &["1.0.0"]);
    let plugin = bench.plugin("x.sock", script);
    let told = plugin.wait_for_verdict(false).await;
    assert!(told.contains("name of GetInfo has 1048576 bytes: expected at most 4096"), "{told}");
    bench.settled(|plugins| plugins[0].state == State::Failed).await;
    assert!(log.text().len() < 10_000, "{} bytes of log", log.text().len());
}

#[tokio::test]
async fn a_megabyte_of_versions_stays_out_of_log_and_verdict() {
    let handlers =
        Handlers::new().with(DEVICE_PLUGIN, std::sync::Arc::new(DeviceHandler::default()));
    let mut bench = Bench::start_with(handlers).await;
    let (log, _guard) = Log::start();
    let version = "v".repeat(1024);
    let versions = vec![version.as_str(); 1024];
    let plugin =
        bench.plugin("x.sock", PluginScript::of(DEVICE_PLUGIN, "example.com/gpu", &versions));
    let told = plugin.wait_for_verdict(false).await;
    assert!(told.starts_with("RegisterPlugin error -- plugin validation failed"), "{told}");
    assert!(told.len() < 1100, "{} bytes", told.len());
    bench.settled(|plugins| plugins[0].state == State::Failed).await;
    let longest = log.text().lines().map(str::len).max().unwrap();
    assert!((1000..2000).contains(&longest), "{longest} bytes in a line");
}

#[tokio::test]
async fn a_verdict_that_does_not_arrive_undoes_the_registration() {
    let mut bench = Bench::start().await;
    let refusing = Answer::Error(tonic::Status::internal("not listening"));
    for (answer, text) in [
        (refusing, "rpc error: code = Internal desc = not listening"),
        (Answer::Never, "rpc error: code = DeadlineExceeded"),
    ] {
        let script = PluginScript { notify: answer, ..PluginScript::csi("deaf") };
        let plugin = bench.plugin("deaf.sock", script);
        bench.settled(|plugins| plugins.iter().any(|it| it.state == State::Failed)).await;
        let error = bench.view("deaf.sock").unwrap().error.unwrap();
        assert!(
            error.contains("failed to send registration status") && error.contains(text),
            "{error}"
        );
        let steps = bench.handler.steps(plugin.path());
        assert_eq!(steps[steps.len() - 3..], [Validate, Register, Deregister]);
        // The next attempt comes by itself.
        plugin.change(|script| script.notify = Answer::AtOnce);
        bench.settled_with(&["deaf"]).await;
        plugin.stop().await;
        bench.settled_with(&[]).await;
    }
}

#[tokio::test]
async fn a_refusal_that_does_not_arrive_is_told_to_people() {
    let mut bench = Bench::start().await;
    bench.handler.treat("deaf", Treatment::Refuse(Validate, "no such driver here"));
    let notify = Answer::Error(tonic::Status::internal("not listening"));
    let _plugin = bench.plugin("x.sock", PluginScript { notify, ..PluginScript::csi("deaf") });
    bench.settled(|plugins| plugins.iter().any(|it| it.state == State::Failed)).await;
    let error = bench.view("x.sock").unwrap().error.unwrap();
    let socket = bench.path("x.sock");
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
    let mut bench = Bench::start().await;
    for (step, seen) in [
        (Validate, &[Validate, Validate, Register, Deregister] as &[_]),
        (Register, &[Validate, Register, Deregister, Validate, Register, Deregister]),
        // Taken out of use as far as the manager can tell: what is gone is not asked again.
        (Deregister, &[Validate, Register, Deregister]),
    ] {
        let socket = format!("{step:?}.sock");
        bench.handler.treat("cursed", Treatment::Panic(step));
        let plugin = bench.plugin(&socket, PluginScript::csi("cursed"));
        let path = plugin.path().to_owned();
        if step != Deregister {
            bench.settled(|plugins| plugins.iter().any(|it| it.state == State::Failed)).await;
            let error = bench.view(&socket).unwrap().error.unwrap();
            assert!(error.contains("handler panicked"), "{error}");
            bench.registered("other.sock", "other").await.stop().await;
            bench.handler.welcome("cursed");
        }
        bench.settled_with(&["cursed"]).await;
        plugin.stop().await;
        bench.handler.wait_for(&path, seen).await;
        bench.settled_with(&[]).await;
        assert_eq!(bench.handler.steps(&path), seen);
    }
}

#[tokio::test]
async fn a_socket_that_goes_while_its_handler_registers_is_deregistered() {
    let mut bench = Bench::start().await;
    bench.handler.treat("slow", Treatment::Hang(Register));
    let plugin = bench.plugin("slow.sock", PluginScript::csi("slow"));
    let path = plugin.path().to_owned();
    bench.handler.wait_for(&path, &[Validate, Register]).await;
    plugin.stop().await;
    bench.event(&path, &EventKind::Deregistered).await;
    bench.settled_with(&[]).await;
    assert_eq!(bench.handler.steps(&path), [Validate, Register, Deregister]);

    // Made again meanwhile: the same, and then the new one.
    let _first = bench.plugin("slow.sock", PluginScript::csi("slow"));
    let steps = [Validate, Register, Deregister, Validate, Register];
    bench.handler.wait_for(&path, &steps).await;
    let second = bench.registered("slow.sock", "new").await;
    assert_eq!(bench.handler.steps(second.path())[5..], [Deregister, Validate, Register]);
    bench.settled_with(&["new"]).await;
}

#[tokio::test]
async fn a_manager_stops_while_a_handler_hangs() {
    let bench = Bench::start().await;
    bench.handler.treat("slow", Treatment::Hang(Register));
    let plugin = bench.plugin("slow.sock", PluginScript::csi("slow"));
    bench.handler.wait_for(plugin.path(), &[Validate, Register]).await;
    soon(bench.manager.stop()).await;
}
