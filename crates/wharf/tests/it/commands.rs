//! The binary's commands and personalities, run as processes.

use std::{
    os::unix::{fs::symlink, net::UnixListener},
    path::Path,
    process::Command,
};

use rustix::process::Signal;
use wharf_testkit::process::{Process, wait_for};

use crate::support::{Bench, PATIENCE, WHARF, exists, free_port, get, ok, wharf};

#[tokio::test]
async fn a_driver_is_registered_by_three_processes_and_survives_kills() {
    let bench = Bench::new();
    let (manager, address) = bench.manager().await;
    let _driver = bench.driver().await;
    let mut registrar = bench.registrar(&[]);
    registrar
        .line(PATIENCE, "verdict", |line| line.contains("driver is registered").then_some(()))
        .await
        .unwrap();

    let metrics = get(&format!("http://{address}/metrics")).1;
    for line in [
        "state=\"actual_state_of_world\"} 1",
        "state=\"desired_state_of_world\"} 1",
        "wharf_plugin_registrations_total{type=\"CSIPlugin\"} 1",
        "wharf_csi_driver_connected{driver_name=\"demo.csi.wharf.dev\"",
        "csi_sidecar_operations_seconds_count{",
    ] {
        assert!(metrics.contains(line), "{line} is not in\n{metrics}");
    }

    // The registrar dies without a word and leaves its socket; its successor takes it over.
    registrar.signal(Signal::KILL).unwrap();
    registrar.wait(PATIENCE).await.unwrap();
    assert!(bench.registration_socket().exists());
    let mut registrar = bench.registrar(&[]);
    wait_for(PATIENCE, "second registration", || {
        let metrics = get(&format!("http://{address}/metrics")).1;
        let twice = metrics.contains("wharf_plugin_registrations_total{type=\"CSIPlugin\"} 2");
        std::future::ready(twice.then_some(()))
    })
    .await
    .unwrap();

    // The manager dies; its successor finds the plugin again.
    manager.signal(Signal::KILL).unwrap();
    drop(manager);
    let (manager, address) = bench.manager().await;
    manager_registers_once(&address).await;
    assert_eq!(registrar.signal(Signal::TERM).map_err(|e| e.to_string()), Ok(()));
    assert_eq!(registrar.wait(PATIENCE).await.unwrap().code(), Some(0));
    assert!(!bench.registration_socket().exists(), "the registrar removes its socket");
    assert_eq!(manager.stop(PATIENCE).await.unwrap().code(), Some(0));
}

async fn manager_registers_once(address: &str) {
    wait_for(PATIENCE, "registration by the new manager", || {
        let metrics = get(&format!("http://{address}/metrics")).1;
        let once = metrics.contains("wharf_plugin_registrations_total{type=\"CSIPlugin\"} 1");
        std::future::ready(once.then_some(()))
    })
    .await
    .unwrap();
}

#[tokio::test]
async fn a_refused_registrar_exits_with_1_and_says_why() {
    let bench = Bench::new();
    let _driver = bench.driver().await;
    let (_manager, _) = bench.manager().await;
    // The same driver at the same endpoint from another folder: the version is not higher.
    let mut first = bench.registrar(&[]);
    first
        .line(PATIENCE, "verdict", |line| line.contains("driver is registered").then_some(()))
        .await
        .unwrap();
    std::fs::create_dir(bench.path("registry/second")).unwrap();
    let second_folder =
        format!("--plugin-registration-path={}", bench.path("registry/second").display());
    let mut second = bench.start(
        "second",
        &[
            "registrar",
            &format!("--csi-address={}", bench.path("csi.sock").display()),
            &format!("--kubelet-registration-path={}", bench.path("csi.sock").display()),
            &second_folder,
        ],
    );
    assert_eq!(second.wait(PATIENCE).await.unwrap().code(), Some(1), "{}", second.tail());
    assert!(
        second.tail().contains("already registered with a higher supported version"),
        "{}",
        second.tail()
    );
}

#[tokio::test]
async fn the_registrars_health_follows_its_socket() {
    let bench = Bench::new();
    let _driver = bench.driver().await;
    let port = free_port();
    let mut registrar = bench.registrar(&[&format!("--http-endpoint=127.0.0.1:{port}")]);
    let url = format!("http://127.0.0.1:{port}/healthz");
    registrar.ready(PATIENCE, "healthz", || ok(url.clone())).await.unwrap();
    assert_eq!(get(&url), (200, "ok".to_owned()));
    let metrics = get(&format!("http://127.0.0.1:{port}/metrics")).1;
    assert!(metrics.contains("process_resident_memory_bytes"), "{metrics}");
    std::fs::remove_file(bench.registration_socket()).unwrap();
    assert_eq!(get(&url).0, 404);
    // The driver still answers: the socket comes back by itself.
    registrar.ready(PATIENCE, "healthz again", || ok(url.clone())).await.unwrap();
}

#[tokio::test]
async fn the_liveness_probe_opens_its_port_with_the_driver() {
    let bench = Bench::new();
    let port = free_port();
    let url = format!("http://127.0.0.1:{port}/healthz");
    let name = bench.path("livenessprobe");
    symlink(WHARF, &name).unwrap();
    let mut command = Command::new(&name);
    command.args([
        format!("-csi-address={}", bench.path("csi.sock").display()),
        format!("--http-endpoint=127.0.0.1:{port}"),
        "--probe-timeout=2s".to_owned(),
    ]);
    let mut probe = Process::start("probe", &command, bench.folder.path()).unwrap();
    probe
        .line(PATIENCE, "waiting", |line| line.contains("waiting for the CSI driver").then_some(()))
        .await
        .unwrap();
    assert_eq!(get(&url).0, 0, "the port is closed before the driver answered once");
    let driver = bench.driver().await;
    probe.ready(PATIENCE, "healthz", || ok(url.clone())).await.unwrap();
    driver.stop(PATIENCE).await.unwrap();
    let (code, text) = get(&url);
    assert_eq!(code, 500);
    assert!(text.contains("Unavailable"), "{text}");
    assert!(
        get(&format!("http://127.0.0.1:{port}/metrics"))
            .1
            .contains("csi_sidecar_operations_seconds")
    );
    let _driver = bench.driver().await;
    probe.ready(PATIENCE, "healthz again", || ok(url.clone())).await.unwrap();
    assert_eq!(probe.stop(PATIENCE).await.unwrap().code(), Some(0));
}

#[tokio::test]
async fn a_hung_driver_is_not_alive() {
    let bench = Bench::new();
    let driver = bench.driver().await;
    let port = free_port();
    let mut probe = bench.start(
        "probe",
        &[
            "liveness",
            &format!("--csi-address={}", bench.path("csi.sock").display()),
            &format!("--http-endpoint=127.0.0.1:{port}"),
            "--probe-timeout=300ms",
        ],
    );
    let url = format!("http://127.0.0.1:{port}/healthz");
    probe.ready(PATIENCE, "healthz", || ok(url.clone())).await.unwrap();
    driver.signal(Signal::STOP).unwrap();
    let (code, text) = get(&url);
    assert_eq!(code, 500);
    assert!(text.contains("DeadlineExceeded") || text.contains("Unavailable"), "{text}");
    driver.signal(Signal::CONT).unwrap();
    probe.ready(PATIENCE, "healthz again", || ok(url.clone())).await.unwrap();
}

#[tokio::test]
async fn ls_tells_plugins_from_what_only_looks_like_one() {
    let bench = Bench::new();
    assert!(bench.ls(&[]).contains("No plugin sockets"));
    let _driver = bench.driver().await;
    let mut registrar = bench.registrar(&[]);
    let socket = bench.registration_socket();
    registrar.ready(PATIENCE, "socket", || exists(&socket)).await.unwrap();
    drop(UnixListener::bind(bench.path("registry/dead.sock")).unwrap());
    let _silent = UnixListener::bind(bench.path("registry/silent.sock")).unwrap();
    std::fs::write(bench.path("registry/file"), "no socket").unwrap();

    let lines: serde_json::Value = serde_json::from_str(&bench.ls(&["-o", "json"])).unwrap();
    let states: Vec<(&str, &str)> = lines
        .as_array()
        .unwrap()
        .iter()
        .map(|line| {
            let name = Path::new(line["socket"].as_str().unwrap()).file_name().unwrap();
            (name.to_str().unwrap(), line["state"].as_str().unwrap())
        })
        .collect();
    assert_eq!(states.len(), 3, "{states:?}");
    assert!(states.contains(&("dead.sock", "dead")), "{states:?}");
    assert!(states.contains(&("demo.csi.wharf.dev-reg.sock", "answers")), "{states:?}");
    assert!(!states.contains(&("silent.sock", "answers")), "{states:?}");
    let table = bench.ls(&[]);
    assert!(table.contains("demo.csi.wharf.dev  ") && table.contains("CSIPlugin"), "{table}");
    assert!(!registrar.tail().contains("NotifyRegistrationStatus"), "ls tells plugins nothing");
}

#[tokio::test]
async fn watch_streams_what_comes_and_goes() {
    let bench = Bench::new();
    let registry = bench.path("registry");
    let mut watch = bench
        .start("watch", &["plugins", "watch", "--root", registry.to_str().unwrap(), "-o", "json"]);
    let _driver = bench.driver().await;
    let registrar = bench.registrar(&[]);
    for event in ["seen", "answered"] {
        let wanted = format!("\"event\":\"{event}\"");
        watch.line(PATIENCE, event, |line| line.contains(&wanted).then_some(())).await.unwrap();
    }
    registrar.stop(PATIENCE).await.unwrap();
    watch
        .line(PATIENCE, "gone", |line| line.contains("\"event\":\"gone\"").then_some(()))
        .await
        .unwrap();
    assert_eq!(watch.stop(PATIENCE).await.unwrap().code(), Some(0));
}

#[test]
fn mistakes_in_flags_name_the_flag_and_exit_with_2() {
    for (args, expected) in [
        (&["registrar"][..], "--kubelet-registration-path is a required parameter"),
        (&["registrar", "--tiemout=1s"], "flag provided but not defined: -tiemout"),
        (&["registrar", "-timeout", "soon"], "invalid value \"soon\" for flag -timeout"),
        (
            &[
                "registrar",
                "--kubelet-registration-path=/x",
                "--health-port=1",
                "--http-endpoint=:1",
            ],
            "only one of",
        ),
        (&["registrar", "--kubelet-registration-path=/x", "--mode=x"], "--mode: unknown mode"),
        (
            &["registrar", "--kubelet-registration-path=/x", "--csi-address=tcp://x"],
            "--csi-address",
        ),
        (&["liveness", "--http-endpoint=:1", "--metrics-address=:2"], "only one of"),
        (&["liveness", "--metrics-path=metrics"], "--metrics-path"),
        (&["plugins", "run"], "--root"),
        (&["plugins", "run", "--root", "/x", "--kubeconfig", "/k"], "--node"),
        (&["plugins", "run", "--root", "/x", "--rescan", "fast"], "--rescan"),
    ] {
        let output = wharf(args);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {text}");
        assert!(text.contains(expected), "{args:?}: {text}");
    }
}

#[test]
fn a_missing_kubeconfig_or_folder_is_named() {
    let output = wharf(&[
        "plugins",
        "run",
        "--root",
        "/nonexistent/x",
        "--kubeconfig",
        "/nonexistent/k",
        "--node",
        "n",
    ]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("/nonexistent/k"), "{text}");
    let output = wharf(&["plugins", "ls", "--root", "/nonexistent/x"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.contains("/nonexistent/x"), "{text}");
}

#[test]
fn help_and_version_go_to_standard_output() {
    let bench = Bench::new();
    let name = bench.path("csi-node-driver-registrar");
    symlink(WHARF, &name).unwrap();
    let version = Command::new(&name).arg("-version").output().unwrap();
    assert!(version.status.success());
    let text = String::from_utf8(version.stdout).unwrap();
    assert_eq!(text.trim(), format!("csi-node-driver-registrar v{}", env!("CARGO_PKG_VERSION")));
    let help = Command::new(&name).arg("--help").output().unwrap();
    assert!(help.status.success());
    let text = String::from_utf8(help.stdout).unwrap();
    for flag in [
        "csi-address",
        "kubelet-registration-path",
        "plugin-registration-path",
        "timeout",
        "http-endpoint",
        "health-port",
        "mode",
        "connection-timeout",
        "enable-pprof",
        "version",
        "logging-format",
    ] {
        assert!(text.contains(flag), "{flag} is not in\n{text}");
    }
    let probe = Command::new(&name).arg("--mode=kubelet-registration-probe").output().unwrap();
    assert!(probe.status.success());
}
