//! Real Go programs on the other side of the socket.

use std::{
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use anyhow::Result;
use tempfile::TempDir;
use wharf_registration::{
    csi::{
        CsiHandler, CsiOptions,
        node::{NoApi, NodeRecord, RecordOptions},
    },
    manager::{Handlers, ManagerOptions, PluginManager, State},
    plugin::liveness,
};
use wharf_testkit::{
    peers,
    process::{Process, wait_for},
};

use crate::csi_support::{DEADLINE, eventually, holds};

const NAME: &str = "go.example.com";

/// A folder with the Go mock driver, and our manager on the registry next to it.
struct Fixture {
    folder: TempDir,
    driver: Process,
    manager: PluginManager,
    handler: Arc<CsiHandler>,
}

impl Fixture {
    async fn start(mock: &Path) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let socket = folder.path().join("csi.sock");
        let mut command = Command::new(mock);
        command.arg("--endpoint").arg(&socket);
        command.args(["--driver-name", NAME, "--node-id", "go-node", "--max-volumes", "4"]);
        command.args(["--topology", "zone.go.example.com=here"]);
        let mut driver = Process::start("driver", &command, folder.path())?;
        driver
            .ready(DEADLINE, "the driver's socket", || {
                std::future::ready(socket.exists().then_some(()))
            })
            .await?;
        let record = NodeRecord::start(Arc::new(NoApi), RecordOptions::default());
        let handler = Arc::new(CsiHandler::new(record, CsiOptions::default()));
        let handlers = Handlers::new().with("CSIPlugin", handler.clone());
        let options = ManagerOptions::new(folder.path().join("registry"));
        let manager = PluginManager::start(options, handlers);
        manager.synced().wait_for(|synced| *synced).await?;
        Ok(Self { folder, driver, manager, handler })
    }

    fn csi_socket(&self) -> PathBuf {
        self.folder.path().join("csi.sock")
    }

    fn registry(&self) -> PathBuf {
        self.folder.path().join("registry")
    }

    async fn registered(&self) {
        eventually("our manager to register the plugin", || async {
            self.manager.plugins().iter().any(|line| line.state == State::Registered)
        })
        .await;
        let drivers = self.handler.drivers().view();
        assert_eq!(drivers.len(), 1);
        assert_eq!((drivers[0].name.as_str(), drivers[0].node_id.as_str()), (NAME, "go-node"));
        assert_eq!(drivers[0].max_volumes, 4);
        assert_eq!(drivers[0].topology["zone.go.example.com"], "here");
    }
}

#[tokio::test]
async fn our_manager_registers_kubelets_example_plugin_and_a_go_driver() -> Result<()> {
    let names = ["example-plugin", "mock-csi-driver"];
    let [Some(example), Some(mock)] = names.map(peers::binary) else { return Ok(()) };
    let fixture = Fixture::start(&mock).await?;
    let mut command = Command::new(example);
    command.arg("--socket").arg(fixture.registry().join("example-reg.sock"));
    command.args(["--name", NAME, "--endpoint"]).arg(fixture.csi_socket());
    let mut plugin = Process::start("example", &command, fixture.folder.path())?;
    let notified = plugin
        .line(DEADLINE, "NotifyRegistrationStatus", |line| {
            line.contains("\"NotifyRegistrationStatus\"").then(|| line.to_owned())
        })
        .await?;
    assert!(
        notified.contains(r#""plugin_registered":true"#) && notified.contains(r#""error":"""#),
        "{notified}"
    );
    fixture.registered().await;

    plugin.stop(DEADLINE).await?;
    eventually("the plugin to be deregistered", || async { fixture.manager.plugins().is_empty() })
        .await;
    assert_eq!(fixture.handler.drivers().view(), []);
    fixture.manager.stop().await;
    Ok(())
}

#[tokio::test]
async fn a_go_plugin_with_versions_of_the_future_hears_why_it_is_refused() -> Result<()> {
    let names = ["example-plugin", "mock-csi-driver"];
    let [Some(example), Some(mock)] = names.map(peers::binary) else { return Ok(()) };
    let fixture = Fixture::start(&mock).await?;
    let mut command = Command::new(example);
    command.arg("--socket").arg(fixture.registry().join("example-reg.sock"));
    command.args(["--name", NAME, "--versions", "2.0.0"]);
    let mut plugin = Process::start("example", &command, fixture.folder.path())?;
    let notified = plugin
        .line(DEADLINE, "NotifyRegistrationStatus", |line| {
            line.contains("\"NotifyRegistrationStatus\"").then(|| line.to_owned())
        })
        .await?;
    assert!(notified.contains(r#""plugin_registered":false"#), "{notified}");
    assert!(notified.contains("None of the versions specified"), "{notified}");
    fixture.manager.stop().await;
    Ok(())
}

#[tokio::test]
async fn our_manager_registers_the_go_registrar() -> Result<()> {
    let names = ["csi-node-driver-registrar", "mock-csi-driver"];
    let [Some(registrar), Some(mock)] = names.map(peers::binary) else { return Ok(()) };
    let fixture = Fixture::start(&mock).await?;
    let mut command = Command::new(registrar);
    command.arg(format!("--csi-address={}", fixture.csi_socket().display()));
    command.arg(format!("--kubelet-registration-path={}", fixture.csi_socket().display()));
    command.arg(format!("--plugin-registration-path={}", fixture.registry().display()));
    command.arg("--v=5");
    let registrar = Process::start("registrar", &command, fixture.folder.path())?;
    fixture.registered().await;
    let log = registrar.log().to_owned();
    wait_for(DEADLINE, "the registrar to be notified", || {
        std::future::ready(holds(&log, "NotifyRegistrationStatus").then_some(()))
    })
    .await?;
    fixture.manager.stop().await;
    Ok(())
}

#[tokio::test]
async fn our_liveness_probe_and_gos_give_the_same_answers() -> Result<()> {
    let names = ["livenessprobe", "mock-csi-driver"];
    let [Some(probe), Some(mock)] = names.map(peers::binary) else { return Ok(()) };
    let fixture = Fixture::start(&mock).await?;
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let mut command = Command::new(probe);
    command.arg(format!("--csi-address={}", fixture.csi_socket().display()));
    command.arg(format!("--http-endpoint=127.0.0.1:{port}"));
    command.arg("--probe-timeout=2s");
    let _probe = Process::start("probe", &command, fixture.folder.path())?;
    let goes = |expected: &'static str| {
        let what = format!("Go's probe to answer {expected}");
        async move {
            eventually(&what, || async {
                status_of(port).await.is_some_and(|line| line.contains(expected))
            })
            .await;
        }
    };
    let socket = fixture.csi_socket();
    goes("200").await;
    assert_eq!(liveness::check(&socket, Duration::from_secs(2), None).await, Ok(()));
    drop(fixture.driver);
    goes("500").await;
    assert!(liveness::check(&socket, Duration::from_secs(2), None).await.is_err());
    fixture.manager.stop().await;
    Ok(())
}

/// The status line of `/healthz`.
async fn status_of(port: u16) -> Option<String> {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let mut stream = tokio::net::TcpStream::connect(("127.0.0.1", port)).await.ok()?;
    let request = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.ok()?;
    answer.lines().next().map(str::to_owned)
}
