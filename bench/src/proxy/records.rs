//! The proxy's records of a node's containers: their memory, and how fast they are rebuilt.

use std::{
    path::Path,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use prost::Message;
use rustix::process::Signal;
use tokio::time::{interval, timeout};
use wharf_proto::cri;

use super::{
    Counts,
    calls::{self, framed},
    client::Client,
    rig::{Rig, Served},
};
use crate::{report::Report, sample::Sample, usage::Usage};

/// Containers of a pod.
const MEMBERS: usize = 2;
const MEMORY: [f64; 2] = [12.0, 40.0];
const SERVING: f64 = 200.0;
const COMPLETE: f64 = 1000.0;
/// After this time, work that calls caused is done.
const SETTLED: Duration = Duration::from_secs(2);
const PATIENCE: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(1);
/// The proxy's log line when its records are complete.
const KNOWN: &str = "records are as the runtime tells";

/// Measures memory with many and with very many records, and starts with many.
pub(super) async fn measure(binary: &Path, counts: &Counts, report: &mut Report) -> Result<()> {
    for (containers, limit) in counts.containers.into_iter().zip(MEMORY) {
        let many = containers == counts.containers[0];
        let restarts = if many { counts.rounds } else { 1 };
        report.section(&format!(
            "{containers} containers with 20 variables and 15 annotations each, in {} pods",
            containers / MEMBERS
        ));
        let rig = Rig::new(binary)?;
        let _runtime = rig.runtime(0).await?;
        let mut proxy = rig.proxy("proxy")?;
        fill(&proxy.client().await?, containers).await?;
        report.at_most("resident memory", resident(&proxy).await?, limit, "MB");
        report.show("of this not backed by a file", anonymous(&proxy)?, "MB");
        let (mut serving, mut complete) = (Sample::default(), Sample::default());
        for number in 0..restarts {
            proxy.process.signal(Signal::KILL)?;
            proxy.process.wait(PATIENCE).await?;
            let begun = Instant::now();
            proxy = rig.proxy(&format!("proxy-{number}"))?;
            answered(&proxy).await?;
            serving.add(begun.elapsed());
            known(&proxy, containers).await?;
            complete.add(begun.elapsed());
        }
        report.show("resident memory after a restart", resident(&proxy).await?, "MB");
        if many {
            report.at_most("kill -9 and start to Version, p50", serving.p50(), SERVING, "ms");
            report.at_most("kill -9 and start to all records, p50", complete.p50(), COMPLETE, "ms");
            koord(&rig, containers, report).await?;
        } else {
            report.show("kill -9 and start to Version", serving.p50(), "ms");
            report.show("kill -9 and start to all records", complete.p50(), "ms");
        }
    }
    Ok(())
}

/// Makes a pod, and returns its ID.
pub(super) async fn run_pod(client: &Client, number: usize) -> Result<String> {
    let answer = client.call(calls::RUN_POD, &framed(&calls::run_pod(number))).await?;
    Ok(cri::RunPodSandboxResponse::decode(answer)?.pod_sandbox_id)
}

/// Makes a pod with containers, and returns their IDs.
pub(super) async fn make(client: &Client, number: usize, members: usize) -> Result<Vec<String>> {
    let pod = run_pod(client, number).await?;
    let mut ids = Vec::new();
    for member in 0..members {
        let create = framed(&calls::create_container(number, member, &pod));
        let answer = client.call(calls::CREATE_CONTAINER, &create).await?;
        ids.push(cri::CreateContainerResponse::decode(answer)?.container_id);
    }
    Ok(ids)
}

async fn fill(client: &Client, containers: usize) -> Result<()> {
    for number in 0..containers / MEMBERS {
        make(client, number, MEMBERS).await?;
    }
    Ok(())
}

/// Makes the same number of containers through the other proxy.
async fn koord(rig: &Rig, containers: usize, report: &Report) -> Result<()> {
    let what = "koord-runtime-proxy, resident memory";
    let Some(koord) = rig.koord().await? else {
        report.not_measured(what, "needs root, and the peer");
        return Ok(());
    };
    fill(&Client::dial(&koord.socket).await?, containers).await?;
    let served = Served { process: koord.process, socket: koord.socket };
    report.show(what, resident(&served).await?, "MB");
    Ok(())
}

/// Resident memory at rest, in megabytes.
async fn resident(proxy: &Served) -> Result<f64> {
    tokio::time::sleep(SETTLED).await;
    Ok(Usage::of(proxy.process.id())?.resident as f64 * 1024.0 / 1e6)
}

fn anonymous(proxy: &Served) -> Result<f64> {
    Ok(Usage::of(proxy.process.id())?.anonymous as f64 * 1024.0 / 1e6)
}

/// Waits until a call succeeds.
async fn answered(proxy: &Served) -> Result<()> {
    let (version, mut look) = (framed(&calls::version()), interval(LOOK));
    let attempts = async {
        let client = proxy.client().await?;
        while client.call(calls::VERSION, &version).await.is_err() {
            look.tick().await;
        }
        anyhow::Ok(())
    };
    timeout(PATIENCE, attempts).await.with_context(|| proxy.process.tail())?
}

/// Waits until the proxy logs complete records of `containers`.
async fn known(proxy: &Served, containers: usize) -> Result<()> {
    let mut look = interval(LOOK);
    let line = async {
        loop {
            look.tick().await;
            let log = std::fs::read_to_string(proxy.process.log())?;
            if let Some(line) = log.lines().find(|line| line.contains(KNOWN)) {
                return anyhow::Ok(line.to_owned());
            }
        }
    };
    let line = timeout(PATIENCE, line).await.with_context(|| proxy.process.tail())??;
    let whole = format!("containers={containers} incomplete=0");
    ensure!(line.contains(&whole), "expected {whole}, got: {line}");
    Ok(())
}
