//! Sidecars started with the command lines of charts, manifests and operators in
//! `charts/charts.txt`.

use std::{path::Path, process::Command};

use wharf_testkit::{
    csi_driver::{DriverScript, ScriptedDriver},
    process::Process,
};

use crate::{
    chart_lines::{Line, lines},
    support::{Bench, DRIVER, PATIENCE, exists, run_as},
};

/// The lines of these programs.
fn of(programs: &[&str]) -> Vec<Line> {
    let found: Vec<Line> =
        lines().into_iter().filter(|line| programs.contains(&line.program)).collect();
    assert!(found.len() >= programs.len());
    found
}

#[test]
fn every_chart_is_there() {
    let lines = lines();
    for chart in [
        "aws-ebs-csi-driver",
        "csi-driver-nfs",
        "ceph-csi rbd",
        "ceph-csi cephfs",
        "democratic-csi",
        "Longhorn",
        "Rook",
    ] {
        for program in ["csi-provisioner", "csi-snapshotter", "csi-resizer"] {
            let found = lines.iter().any(|it| it.chart.starts_with(chart) && it.program == program);
            assert!(found, "{chart} has no {program}");
        }
    }
}

#[test]
fn controllers_start_with_the_arguments_of_charts() {
    for line in of(&[
        "csi-attacher",
        "csi-provisioner",
        "csi-resizer",
        "csi-snapshotter",
        "snapshot-controller",
    ]) {
        let Line { chart, program, args, variables } = line;
        let args = [&args[..], &["--kubeconfig=/nonexistent/kubeconfig"]].concat();
        let (output, said) = run_as(program, &args, &variables);
        // All is read; the kubeconfig comes next.
        assert_eq!(output.status.code(), Some(1), "{chart}: {program} {args:?}: {said}");
        let wanted = "kubeconfig /nonexistent/kubeconfig: cannot be used";
        assert!(said.contains(wanted), "{chart}: {program}: {said}");
    }
}

#[tokio::test]
async fn registrars_register_with_the_arguments_of_charts() {
    for Line { chart, program, args, .. } in of(&["csi-node-driver-registrar"]) {
        let bench = Bench::new();
        let socket = bench.path("csi.sock");
        let _driver = ScriptedDriver::serve(&socket, DriverScript::new(DRIVER));
        let folder = format!("--plugin-registration-path={}", bench.path("registry").display());
        let args = args.iter().map(|arg| here(arg, &socket)).chain([folder]);
        let mut command = Command::new(bench.called(program));
        command.args(args);
        let mut registrar = Process::start(program, &command, bench.folder.path()).unwrap();
        let registration = bench.registration_socket();
        registrar.ready(PATIENCE, chart, || exists(&registration)).await.unwrap();
    }
}

#[tokio::test]
async fn probes_look_for_their_driver_with_the_arguments_of_charts() {
    let mut started = Vec::new();
    for Line { chart, program, args, .. } in of(&["livenessprobe"]) {
        let bench = Bench::new();
        let nowhere = bench.path("csi.sock");
        let mut command = Command::new(bench.called(program));
        command.args(args.iter().map(|arg| here(arg, &nowhere)));
        let probe = Process::start(program, &command, bench.folder.path()).unwrap();
        started.push((chart, bench, probe));
    }
    for (chart, _bench, mut probe) in started {
        let wanted = "waiting for the CSI driver";
        let waits = probe.line(PATIENCE, chart, |line| line.contains(wanted).then_some(()));
        waits.await.unwrap();
    }
}

/// An argument with the socket of this test, and with any free port in place of its own.
fn here(arg: &str, socket: &Path) -> String {
    match arg.split_once('=') {
        Some(("--csi-address", _)) => format!("--csi-address={}", socket.display()),
        Some(("--http-endpoint", address)) => {
            let (host, _) = address.rsplit_once(':').unwrap();
            format!("--http-endpoint={host}:0")
        }
        _ => arg.to_owned(),
    }
}
