//! Our registrar with a real kubelet, and our manager in place of a kubelet, with a Go driver.

use std::{path::PathBuf, process::Command, time::Duration};

use anyhow::{Context, Result};
use rustix::process::Signal;
use serde_json::{Value, json};
use wharf_testkit::{
    cluster::Cluster,
    peers,
    process::{Process, run, wait_for},
};

const WHARF: &str = env!("CARGO_BIN_EXE_wharf");
const DRIVER: &str = "go.example.com";
/// Kubelet looks once a second, and its own start is slow.
const DEADLINE: Duration = Duration::from_secs(60);

/// A whole node; its drivers live below the kubelet's root, as on a real one.
struct Bench {
    cluster: Cluster,
    registrars: u32,
}

impl Bench {
    fn plugin_folder(&self) -> PathBuf {
        self.cluster.kubelet_root().join("plugins").join(DRIVER)
    }

    fn registration_socket(&self) -> PathBuf {
        self.cluster.plugins_registry().join(format!("{DRIVER}-reg.sock"))
    }

    fn driver(&self, binary: PathBuf) -> Result<Process> {
        std::fs::create_dir_all(self.plugin_folder())?;
        let mut command = Command::new(binary);
        command.arg("--endpoint").arg(self.plugin_folder().join("csi.sock"));
        command.args(["--driver-name", DRIVER, "--node-id", "go-node", "--max-volumes", "6"]);
        Process::start("driver", &command, self.cluster.folder())
    }

    /// The registrar, waiting for its driver if need be, until the kubelet has told it how it went.
    async fn registrar(&mut self) -> Result<Process> {
        self.registrars += 1;
        let socket = self.plugin_folder().join("csi.sock");
        let mut command = Command::new(WHARF);
        command.arg("registrar");
        command.arg(format!("--csi-address={}", socket.display()));
        command.arg(format!("--kubelet-registration-path={}", socket.display()));
        command.arg(format!(
            "--plugin-registration-path={}",
            self.cluster.plugins_registry().display()
        ));
        let name = format!("registrar-{}", self.registrars);
        let mut registrar = Process::start(&name, &command, self.cluster.folder())?;
        registrar
            .line(DEADLINE, "the kubelet to register the driver", |line| {
                line.contains("driver is registered").then_some(())
            })
            .await?;
        Ok(registrar)
    }

    /// The driver's entry in the kubelet's CSINode.
    async fn entry(&self) -> Option<Value> {
        let object = self.cluster.get(&["csinode", self.cluster.node()]).await.ok()??;
        let drivers = object["spec"]["drivers"].as_array().cloned().unwrap_or_default();
        drivers.into_iter().find(|entry| entry["name"] == DRIVER)
    }

    async fn listed(&self) -> Result<Value> {
        wait_for(DEADLINE, "the driver to appear in the CSINode", || self.entry()).await
    }

    async fn unlisted(&self) -> Result<()> {
        wait_for(DEADLINE, "the driver to leave the CSINode", || async {
            self.entry().await.is_none().then_some(())
        })
        .await
    }

    async fn plugins(&self) -> Result<Value> {
        let mut command = Command::new(WHARF);
        command.args(["plugins", "ls", "--output", "json", "--root"]);
        command.arg(self.cluster.plugins_registry());
        Ok(serde_json::from_str(&run(&command, DEADLINE).await?)?)
    }
}

/// A kubelet dials the bare path of a socket and sends it as `:authority`, which most Rust servers
/// refuse: that it registers the driver shows that ours does not.
#[tokio::test]
async fn a_kubelet_and_its_grpc_go_dial_our_registrar() -> Result<()> {
    let Some(mock) = peers::binary("mock-csi-driver") else { return Ok(()) };
    let Some(cluster) = Cluster::builder().kubelet(true).start().await? else { return Ok(()) };
    let mut bench = Bench { cluster, registrars: 0 };
    let driver = bench.driver(mock)?;
    let registrar = bench.registrar().await?;
    let entry = bench.listed().await?;
    assert_eq!(entry["nodeID"], "go-node");
    assert_eq!(entry["allocatable"]["count"], 6);

    // A look at the folder disturbs nobody: the registrar would end if it were told anything else.
    let plugins = bench.plugins().await?;
    let line = &plugins.as_array().context("a list")?[0];
    assert_eq!(line["name"], DRIVER);
    assert_eq!(line["state"], "answers");
    assert_eq!(line["socket"], json!(bench.registration_socket()));
    assert_eq!(bench.entry().await, Some(entry));

    let status = registrar.stop(DEADLINE).await?;
    assert_eq!(status.code(), Some(0));
    assert!(!bench.registration_socket().exists());
    bench.unlisted().await?;

    // A registrar that is killed leaves its socket; the next one takes its place and is found.
    let mut registrar = bench.registrar().await?;
    bench.listed().await?;
    registrar.signal(Signal::KILL)?;
    registrar.wait(DEADLINE).await?;
    assert!(bench.registration_socket().exists());
    let registrar = bench.registrar().await?;
    bench.listed().await?;
    registrar.stop(DEADLINE).await?;
    bench.unlisted().await?;
    driver.stop(DEADLINE).await?;
    bench.cluster.stop().await
}

#[tokio::test]
async fn our_manager_in_a_kubelets_place_writes_the_csinode_with_a_nodes_rights() -> Result<()> {
    let Some(mock) = peers::binary("mock-csi-driver") else { return Ok(()) };
    let Some(cluster) = Cluster::builder().start().await? else { return Ok(()) };
    cluster.create_node(cluster.node()).await?;
    let mut bench = Bench { cluster, registrars: 0 };
    let mut command = Command::new(WHARF);
    command.args(["plugins", "run", "--csinode-grace=500ms", "--root"]);
    command.arg(bench.cluster.plugins_registry());
    command.arg("--kubeconfig").arg(bench.cluster.node_kubeconfig());
    command.args(["--node", bench.cluster.node()]);
    let manager = Process::start("manager", &command, bench.cluster.folder())?;
    let registry = bench.cluster.plugins_registry();
    wait_for(DEADLINE, "the manager to make its folder", || {
        std::future::ready(registry.is_dir().then_some(()))
    })
    .await?;

    let driver = bench.driver(mock)?;
    let registrar = bench.registrar().await?;
    let entry = bench.entry().await.context("written before the registrar is told")?;
    assert_eq!(entry["nodeID"], "go-node");
    registrar.stop(DEADLINE).await?;
    bench.unlisted().await?;

    // A manager that ends leaves the entries: the drivers are still there.
    let registrar = bench.registrar().await?;
    assert_eq!(manager.stop(DEADLINE).await?.code(), Some(0));
    assert_eq!(bench.entry().await, Some(entry));
    registrar.stop(DEADLINE).await?;
    driver.stop(DEADLINE).await?;
    bench.cluster.stop().await
}
