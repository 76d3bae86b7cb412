//! `wharf proxy` as a service: the service manager's sockets and notifications.

use std::{fs, os::unix::fs::MetadataExt, path::Path, process::Command};

use rustix::process::Signal;
use wharf_testkit::{
    client::Client,
    process::{Process, output},
    skip,
};

use crate::{
    proxy::recording,
    proxy_generations::{Generations, version},
    support::{Bench, PATIENCE},
};

/// A program of Debian's package systemd; without it the test is skipped.
fn program(name: &str) -> Option<String> {
    let path = format!("/usr/bin/{name}");
    if !Path::new(&path).is_file() {
        skip::record(None, &format!("no {name}: install Debian's package systemd"));
        return None;
    }
    Some(path)
}

fn activated(program: &str, generations: &Generations, bound: &Path) -> Process {
    let mut command = Command::new(program);
    command.arg("--listen").arg(bound).arg(generations.program()).args(generations.args());
    Process::start("activated", &command, generations.bench.folder.path()).unwrap()
}

#[tokio::test]
async fn a_socket_of_the_service_manager_is_served_and_stays() {
    let Some(program) = program("systemd-socket-activate") else { return };
    let bench = Bench::new();
    let runtime = recording(&bench);
    let generations = Generations::before(bench, &runtime);
    let socket = generations.socket();
    let mut proxy = activated(&program, &generations, &socket);
    proxy
        .ready(PATIENCE, "the socket", || std::future::ready(socket.exists().then_some(())))
        .await
        .unwrap();
    let file = fs::metadata(&socket).unwrap().ino();
    generations.call().await.unwrap();
    assert!(proxy.stop(PATIENCE).await.unwrap().success());
    assert_eq!(fs::metadata(&socket).unwrap().ino(), file, "the service manager's file");
}

#[tokio::test]
async fn a_socket_at_another_path_is_refused_by_name() {
    let Some(program) = program("systemd-socket-activate") else { return };
    let bench = Bench::new();
    let runtime = recording(&bench);
    let generations = Generations::before(bench, &runtime);
    let other = generations.bench.path("other.sock");
    let mut proxy = activated(&program, &generations, &other);
    let connected = || std::future::ready(std::os::unix::net::UnixStream::connect(&other).ok());
    let _connection = proxy.ready(PATIENCE, "the socket", connected).await.unwrap();
    assert!(!proxy.wait(PATIENCE).await.unwrap().success());
    let said = proxy.tail();
    assert!(said.contains("proxy.sock") && said.contains("other.sock"), "{said}");
    assert!(said.contains("socket unit"), "what to do: {said}");
}

#[tokio::test]
async fn the_service_manager_is_told_of_start_and_end() {
    let bench = Bench::new();
    let runtime = recording(&bench);
    let generations = Generations::before(bench, &runtime);
    let proxy = generations.launch("proxy", &[], &[]);
    let state = generations.notified.next().await;
    assert!(state.starts_with("READY=1\nSTATUS="), "{state}");
    generations.call().await.unwrap();
    proxy.signal(Signal::TERM).unwrap();
    let state = generations.notified.next().await;
    assert!(state.starts_with("STOPPING=1"), "{state}");
    assert!(proxy.stop(PATIENCE).await.unwrap().success());
}

#[tokio::test]
async fn the_watchdog_is_fed_only_while_clients_are_served() {
    let bench = Bench::new();
    let runtime = recording(&bench);
    let generations = Generations::before(bench, &runtime);
    let variables = [("WATCHDOG_USEC", "200000")];
    let mut proxy = generations.launch("proxy", &[], &variables);
    for _ in 0..3 {
        generations.notified.until("WATCHDOG=1").await;
    }
    // Whoever wants to connect finds nobody.
    fs::remove_file(generations.socket()).unwrap();
    let starved = |line: &str| line.contains("watchdog not fed").then_some(());
    proxy.line(PATIENCE, "a watchdog that is not fed", starved).await.unwrap();
    while !generations.notified.is_silent() {}
    let log = || fs::read_to_string(proxy.log()).unwrap().matches("not fed").count();
    let before = log();
    let again = || std::future::ready((log() >= before + 3).then_some(()));
    wharf_testkit::process::wait_for(PATIENCE, "three more times", again).await.unwrap();
    assert!(generations.notified.is_silent(), "told that it lives, and nobody can connect");
}

#[tokio::test]
async fn a_watchdog_for_another_process_is_left_alone() {
    let bench = Bench::new();
    let runtime = recording(&bench);
    let generations = Generations::before(bench, &runtime);
    let variables = [("WATCHDOG_USEC", "20000"), ("WATCHDOG_PID", "1")];
    let proxy = generations.launch("proxy", &[], &variables);
    generations.notified.until("READY=1").await;
    let client = Client::dial(&generations.socket()).await;
    for _ in 0..100 {
        version(&client).await.unwrap();
    }
    proxy.signal(Signal::TERM).unwrap();
    let state = generations.notified.next().await;
    assert!(state.starts_with("STOPPING=1"), "{state}");
}

#[tokio::test]
async fn the_units_are_as_systemd_wants_them() {
    let Some(program) = program("systemd-analyze") else { return };
    let folder = Bench::new();
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/systemd");
    let mut units = Vec::new();
    for entry in fs::read_dir(&deploy).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            // The program need not be installed where the unit wants it.
            let text = fs::read_to_string(&path).unwrap();
            let text = text.replace("/usr/local/bin/wharf", crate::support::WHARF);
            let unit = folder.path(path.file_name().unwrap().to_str().unwrap());
            fs::write(&unit, text).unwrap();
            units.push(unit);
        }
    }
    assert!(units.len() >= 2, "{units:?}");
    let mut command = Command::new(program);
    command.args(["verify", "--man=no", "--recursive-errors=no"]).args(&units);
    let output = output(&command, PATIENCE).await.unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && !said.contains("wharf-proxy"), "{said}");
}
