//! The start of a driver on a pool with many volumes.

use anyhow::{Context, Result};
use tokio::task::JoinSet;

use super::{
    Counts,
    client::{Access, Client},
    rig::Rig,
};
use crate::{report::Report, sample::Sample, usage::Usage};

const CLIENTS: usize = 64;
const SIZE: u64 = 1 << 20;
const LIMIT: f64 = 1.0;

/// Measures starts after a stop and after a kill during creations.
pub(super) async fn measure(rig: &Rig, counts: &Counts, report: &mut Report) -> Result<()> {
    let Counts { present, starts, .. } = *counts;
    report.section(&format!("start with {present} volumes, median of {starts}"));
    let (mut running, _) = rig.start().await?;
    fill(rig.clients(CLIENTS), present).await?;
    let (mut stopped, mut killed) = (Sample::default(), Sample::default());
    for round in 0..starts {
        running.stop().await?;
        let (restarted, took) = rig.start().await?;
        stopped.add(took);
        let mut crowd = JoinSet::new();
        for (lane, client) in rig.clients(CLIENTS).into_iter().enumerate() {
            crowd.spawn(async move { endless(&client, &format!("late-{round}-{lane}")).await });
        }
        // When this one is created, the others are in progress.
        let _ =
            restarted.client.create(&format!("late-{round}"), SIZE, Access::Block, true).await?;
        restarted.kill().await?;
        crowd.shutdown().await;
        let (recovered, took) = rig.start().await?;
        killed.add(took);
        running = recovered;
    }
    report.at_most("after a stop: start to ready", stopped.p50() / 1e3, LIMIT, "s");
    report.at_most("after kill -9 amid creations: start to ready", killed.p50() / 1e3, LIMIT, "s");
    let resident = Usage::of(running.id())?.resident as f64 * 1024.0 / 1e6;
    report.show("resident memory then", resident, "MB");
    running.stop().await
}

async fn fill(clients: Vec<Client>, count: usize) -> Result<()> {
    let mut tasks = JoinSet::new();
    for (lane, client) in clients.into_iter().enumerate() {
        tasks.spawn(async move {
            for number in (lane..count).step_by(CLIENTS) {
                client.create(&format!("present-{number}"), SIZE, Access::Block, true).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(one) = tasks.join_next().await {
        one.context("a client")??;
    }
    Ok(())
}

/// Creates volumes until the driver is killed.
async fn endless(client: &Client, prefix: &str) {
    let mut number = 0;
    while client.create(&format!("{prefix}-{number}"), SIZE, Access::Block, true).await.is_ok() {
        number += 1;
    }
}
