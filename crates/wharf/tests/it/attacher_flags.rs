//! csi-attacher's name and flags, its driver, its HTTP endpoint and its election.

use std::{process::Command, time::Duration};

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tokio::time::Instant;
use wharf_proto::csi::{
    GetPluginCapabilitiesResponse, PluginCapability,
    plugin_capability::{self, Service, service},
};
use wharf_testkit::{
    cluster::Cluster,
    csi_driver::{DriverScript, ScriptedDriver},
    process::{Process, wait_for},
};

use crate::support::{Bench, PATIENCE, free_port, get, ok, run_as};

#[test]
fn mistakes_are_named() {
    for (args, wanted) in [
        (&["--feature-gates=Topologie=true"][..], "unrecognized feature gate: Topologie"),
        (&["--worker-threads=0"], "--worker-threads must be greater than 0"),
        (&["--timeout=0"], "--timeout must be longer than 0s"),
        (&["--max-entries=-1"], "--max-entries must be between 0 and"),
        (&["--http-endpoint=:1", "--metrics-address=:2"], "only one of `--metrics-address`"),
        (&["--csi-address=tcp://10.0.0.1:5"], "--csi-address: endpoint"),
        (&["--leader-election", "--leader-election-retry-period=9s"], "1.2 times the retry period"),
        (&["--node-deployment"], "NODE_NAME"),
        (&["--kube-api-burst=0"], "--kube-api-burst=0"),
        (&["--worker-thread=5"], "worker-threads"),
        (&["-timeout", "15"], "-timeout"),
    ] {
        let (output, said) = run_as("csi-attacher", args, &[]);
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains(wanted), "{args:?}: {said}");
    }
    let (output, _) = run_as("csi-attacher", &["-version"], &[]);
    let version = format!("csi-attacher v{}\n", env!("CARGO_PKG_VERSION"));
    assert_eq!(String::from_utf8(output.stdout).unwrap(), version);
}

#[test]
fn what_charts_still_pass_is_accepted_with_a_word_about_it() {
    let (output, said) = run_as(
        "csi-attacher",
        &[
            "--connection-timeout=15s",
            "-leader-election-type=leases",
            "--leader-election-identity=pod-1",
            "-dummy",
            "--automaxprocs=true",
            "--max-grpc-log-length=100",
            "--feature-gates=MutableCSINodeAllocatableCount=false,ReleaseLeaderElectionOnExit=true",
            "--kubeconfig=/nonexistent/kubeconfig",
            "-logtostderr",
            "-v=5",
        ],
        &[],
    );
    for flag in [
        "connection-timeout",
        "leader-election-type",
        "leader-election-identity",
        "dummy",
        "automaxprocs",
        "logtostderr",
    ] {
        let lines = said.lines().filter(|line| line.contains(&format!("--{flag} "))).count();
        assert_eq!(lines, 1, "{flag}: {said}");
    }
    assert!(said.contains("MutableCSINodeAllocatableCount=false is not served: "), "{said}");
    assert!(!said.contains("max-grpc-log-length"), "it is obeyed: {said}");
    // They are all read; what ends it is what comes next.
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("kubeconfig /nonexistent/kubeconfig: cannot be used"), "{said}");
}

/// An attacher on a host of its own name: the identity of a replica is its host's.
fn attacher(bench: &Bench, cluster: &Cluster, host: &str, more: &[&str]) -> Process {
    let mut command = Command::new("unshare");
    command.args(["--uts", "sh", "-c", "hostname $0 && exec \"$@\"", host]);
    command.arg(bench.called("csi-attacher")).args(more);
    command.arg("--kubeconfig").arg(cluster.kubeconfig());
    command.arg("--csi-address").arg(bench.path("csi.sock"));
    Process::start(host, &command, bench.folder.path()).unwrap()
}

async fn says(process: &mut Process, text: &str) -> Result<()> {
    process.line(PATIENCE, text, |line| line.contains(text).then_some(())).await
}

/// Waits until a line was said so many times.
async fn says_times(process: &mut Process, text: &str, times: usize) -> Result<()> {
    let log = process.log().to_owned();
    let count = move || {
        let said = std::fs::read_to_string(&log).unwrap_or_default();
        std::future::ready((said.matches(text).count() >= times).then_some(()))
    };
    process.ready(PATIENCE, text, count).await
}

async fn attachment(cluster: &Cluster, driver: &str, name: &str) -> Result<()> {
    let spec = json!({
        "attacher": driver,
        "nodeName": "node-a",
        "source": { "persistentVolumeName": "no-such-volume" },
    });
    let object = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": { "name": name },
        "spec": spec,
    });
    cluster.apply(&object).await
}

/// The status of an attachment once it has one with `field`.
async fn status(cluster: &Cluster, name: &str, field: &str) -> Result<Value> {
    wait_for(PATIENCE, &format!("{field} of {name}"), || async {
        let object = cluster.get(&["volumeattachment", name]).await.ok()??;
        let value = object["status"][field].clone();
        (!value.is_null() && value != json!(false)).then_some(value)
    })
    .await
}

/// A driver with a controller service that publishes nothing.
fn with_controller(mut script: DriverScript) -> DriverScript {
    let controller = Service { r#type: service::Type::ControllerService.into() };
    let capability =
        PluginCapability { r#type: Some(plugin_capability::Type::Service(controller)) };
    script.plugin_capabilities = GetPluginCapabilitiesResponse { capabilities: vec![capability] };
    script
}

async fn lease(cluster: &Cluster, namespace: &str, name: &str) -> Result<Value> {
    cluster.get(&["lease", name, "--namespace", namespace]).await?.context("no Lease")
}

#[tokio::test]
async fn it_waits_for_the_driver_leads_serves_and_outlives_the_driver() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let (bench, name) = (Bench::new(), "shell.csi.example.com");
    let address = format!("127.0.0.1:{}", free_port());
    let flags = [
        "-leader-election",
        "--leader-election-namespace=kube-system",
        "--leader-election-labels=team:storage",
        "--http-endpoint",
        &address,
    ];
    let mut process = attacher(&bench, cluster, "one", &flags);
    // Neither there nor ready: it waits for both.
    let mut script = DriverScript::new(name);
    script.ready = Some(false);
    let driver = ScriptedDriver::serve(&bench.path("csi.sock"), script.clone());
    driver.wait_for_calls("Probe", 2).await;
    assert_eq!(driver.calls("GetPluginInfo"), 0, "asked before it is ready");
    driver.change(|script| script.ready = None);
    says(&mut process, "became leader, starting").await?;

    let held =
        lease(cluster, "kube-system", "external-attacher-leader-shell-csi-example-com").await?;
    assert_eq!(host_of(&held), Some("one"));
    assert_eq!(held["spec"]["leaseDurationSeconds"], 15);
    assert_eq!(held["metadata"]["labels"]["team"], "storage");

    assert_eq!(get(&format!("http://{address}/healthz/leader-election")), (200, "ok".to_owned()));
    let (code, metrics) = get(&format!("http://{address}/metrics"));
    assert_eq!(code, 200);
    for line in [
        "leader_election_master_status{name=\"external-attacher-leader-shell-csi-example-com\"} 1",
        "csi_sidecar_operations_seconds_count{driver_name=\"shell.csi.example.com\",\
         method_name=\"/csi.v1.Identity/GetPluginCapabilities\",grpc_status_code=\"OK\"} 1",
    ] {
        assert!(metrics.contains(line), "no {line} in\n{metrics}");
    }
    assert!(metrics.contains("process_start_time_seconds"), "{metrics}");

    // A driver that attaches nothing.
    attachment(cluster, name, "shell-1").await?;
    assert_eq!(status(cluster, "shell-1", "attached").await?, json!(true));

    // It goes and comes back as it was: work goes on in the same process and under the same Lease.
    driver.kill().await;
    says(&mut process, "lost connection to CSI driver").await?;
    script.ready = Some(true);
    let driver = ScriptedDriver::serve(&bench.path("csi.sock"), script.clone());
    says(&mut process, "CSI driver is back, unchanged").await?;
    attachment(cluster, name, "shell-2").await?;
    assert_eq!(status(cluster, "shell-2", "attached").await?, json!(true));

    // It comes back with more: what it can do is read again, and work begins anew.
    driver.kill().await;
    says_times(&mut process, "lost connection to CSI driver", 2).await?;
    let driver = ScriptedDriver::serve(&bench.path("csi.sock"), with_controller(script.clone()));
    says(&mut process, "CSI driver changed, restarting all controllers").await?;
    assert_eq!(driver.calls("ControllerGetCapabilities"), 1);
    attachment(cluster, name, "shell-3").await?;
    assert_eq!(status(cluster, "shell-3", "attached").await?, json!(true));
    let first =
        lease(cluster, "kube-system", "external-attacher-leader-shell-csi-example-com").await?;
    assert_eq!(first["spec"]["acquireTime"], held["spec"]["acquireTime"], "the term ended");

    // Under another name it is another driver, with another Lease.
    driver.kill().await;
    says_times(&mut process, "lost connection to CSI driver", 3).await?;
    let _driver =
        ScriptedDriver::serve(&bench.path("csi.sock"), DriverScript::new("other.example.com"));
    // Once at the start, once after each of the two changes.
    says_times(&mut process, "became leader, starting", 3).await?;
    let other = lease(cluster, "kube-system", "external-attacher-leader-other-example-com").await?;
    assert_eq!(host_of(&other), Some("one"));
    attachment(cluster, "other.example.com", "shell-4").await?;
    assert_eq!(status(cluster, "shell-4", "attached").await?, json!(true));

    let ended = process.stop(PATIENCE).await?;
    assert!(ended.success(), "{ended}");
    Ok(())
}

#[tokio::test]
async fn a_replica_stands_by_until_the_leader_ends_or_dies() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let (bench, name) = (Bench::new(), "pair.csi.example.com");
    let _driver = ScriptedDriver::serve(&bench.path("csi.sock"), DriverScript::new(name));
    let flags = [
        "--leader-election",
        "--leader-election-lease-duration=4s",
        "--leader-election-renew-deadline=3s",
        "--leader-election-retry-period=1s",
        "--feature-gates=ReleaseLeaderElectionOnExit=true",
        "--http-endpoint",
    ];
    let start = |host: &str| {
        let address = format!("127.0.0.1:{}", free_port());
        (attacher(&bench, cluster, host, &[&flags[..], &[&address]].concat()), address)
    };
    let leads = "became leader, starting";
    let (mut first, _) = start("first");
    says(&mut first, leads).await?;
    let (mut second, address) = start("second");
    says(&mut second, "new leader detected").await?;
    // Those that stand by serve, too.
    let health = format!("http://{address}/healthz/leader-election");
    second.ready(PATIENCE, "health", || ok(health.clone())).await?;
    let (_, metrics) = get(&format!("http://{address}/metrics"));
    assert!(
        metrics.contains("{name=\"external-attacher-leader-pair-csi-example-com\"} 0"),
        "{metrics}"
    );

    let told = Instant::now();
    assert!(first.stop(PATIENCE).await?.success());
    says(&mut second, leads).await?;
    assert!(told.elapsed() < Duration::from_secs(2), "{:?}", told.elapsed());

    let (mut third, _) = start("third");
    says(&mut third, "new leader detected").await?;
    let killed = Instant::now();
    drop(second);
    says(&mut third, leads).await?;
    assert!(killed.elapsed() < Duration::from_secs(5), "{:?}", killed.elapsed());
    let held = lease(cluster, "default", "external-attacher-leader-pair-csi-example-com").await?;
    assert_eq!(host_of(&held), Some("third"));
    Ok(())
}

#[tokio::test]
async fn without_an_election_it_works_at_once_and_writes_no_lease() -> Result<()> {
    let Some(cluster) = Cluster::shared().await? else { return Ok(()) };
    let (bench, name) = (Bench::new(), "alone.csi.example.com");
    let _driver = ScriptedDriver::serve(&bench.path("csi.sock"), DriverScript::new(name));
    let flags = ["--kube-api-qps=50", "--kube-api-burst=100", "--logging-format=json"];
    let mut process = attacher(&bench, cluster, "alone", &flags);
    attachment(cluster, name, "alone-1").await?;
    assert_eq!(status(cluster, "alone-1", "attached").await?, json!(true));
    let lease = ["lease", "external-attacher-leader-alone-csi-example-com"];
    assert_eq!(cluster.get(&lease).await?, None);
    process
        .line(PATIENCE, "a line of JSON", |line| {
            let line: Value = serde_json::from_str(line).ok()?;
            (line["driver"] == name).then_some(())
        })
        .await?;
    assert!(process.stop(PATIENCE).await?.success());
    Ok(())
}

/// The host of the replica that holds a Lease.
fn host_of(lease: &Value) -> Option<&str> {
    lease["spec"]["holderIdentity"].as_str()?.split('_').next()
}
