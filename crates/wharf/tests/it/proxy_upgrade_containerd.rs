//! Upgrades of `wharf proxy` while containers come and go in containerd: no call fails.

use anyhow::{Result, ensure};
use tokio::{sync::watch, task::JoinSet};
use wharf_cri::ClientOptions;
use wharf_testkit::{
    cluster::Cluster,
    hook_server::{HookScript, HookServer},
    peers,
};

use crate::{
    proxy::{crictl, register},
    proxy_generations::{Generations, Successor},
    proxy_kill::{Worker, no_end_is_told_twice},
    support::PATIENCE,
};

const WORKERS: usize = 3;
const UPGRADES: usize = 3;

#[tokio::test]
async fn no_call_notices_an_upgrade() -> Result<()> {
    let Some(binary) = peers::binary("crictl") else { return Ok(()) };
    let Some(cluster) = Cluster::builder().containerd(true).start().await? else { return Ok(()) };
    let generations = Generations::new(&cluster.runtime_socket());
    let bench = &generations.bench;
    let hooks = HookServer::serve(&bench.path("hooks.sock"), HookScript::echo());
    register(bench, &hooks, &["PreCreateContainer", "PostStopContainer"]);
    let mut first = generations.start().await;
    let socket = generations.socket();

    let lives = watch::Sender::new(0);
    let (stop, stopped) = watch::channel(false);
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        let worker = Worker::begin(&cluster, &socket, number).await?;
        workers.spawn(worker.work(lives.clone(), stopped.clone()));
    }
    // A client in Go, on a connection of its own each time.
    let mut looking = JoinSet::new();
    let (crictl_socket, mut until) = (socket.clone(), stopped.clone());
    looking.spawn(async move {
        let mut failures = Vec::new();
        while !*until.borrow_and_update() {
            let output = crictl(&binary, &crictl_socket, &["pods", "-q"]).await;
            if !output.status.success() {
                failures.push(String::from_utf8_lossy(&output.stderr).into_owned());
            }
        }
        failures
    });

    let mut successors: Vec<Successor> = Vec::new();
    for _ in 0..UPGRADES {
        let before = *lives.borrow();
        ensure!(lives.subscribe().wait_for(|lives| *lives >= before + WORKERS).await.is_ok());
        successors.push(generations.upgrade().await);
    }
    let before = *lives.borrow();
    ensure!(lives.subscribe().wait_for(|lives| *lives >= before + WORKERS).await.is_ok());
    stop.send_replace(true);
    let workers = workers.join_all().await;
    let failed = looking.join_all().await.concat();
    ensure!(failed.is_empty(), "crictl: {failed:?}");
    for worker in &workers {
        ensure!(worker.failed.is_empty(), "calls failed: {:?}", worker.failed);
    }
    ensure!(first.wait(PATIENCE).await?.success());

    let direct = wharf_cri::Client::new(cluster.runtime_socket(), ClientOptions::default());
    let listed: Vec<_> = direct.containers().await?.collect();
    for worker in &workers {
        worker.compare(&listed)?;
    }
    for worker in workers {
        worker.end().await?;
    }
    no_end_is_told_twice(&hooks)?;
    if let Some(last) = successors.pop() {
        last.stop().await;
    }
    cluster.stop().await
}
