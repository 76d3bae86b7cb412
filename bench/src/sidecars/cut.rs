//! An outage of the API of 20 s, with many objects in the sidecars' caches.

use std::{
    collections::BTreeMap,
    fs,
    net::Ipv4Addr,
    time::{Duration, Instant, SystemTime},
};

use anyhow::{Context, Result};
use rustix::process::geteuid;
use serde_json::{Value, json};
use tokio::time::timeout;
use wharf_testkit::relay::Relay;

use super::{
    api::each,
    failover::start,
    memory::{AT_A_TIME, attached, megabytes, settle},
    objects::{self, ATTACHMENTS, CLAIMS, VOLUMES},
    operation,
    rig::Rig,
    side::{Programs, Side, Surroundings},
};
use crate::{report::Report, usage::Usage};

const LENGTH: Duration = Duration::from_secs(20);
const CAUGHT_UP: f64 = 5.0;
const PEAK: f64 = 1.5;
const DEADLINE: Duration = Duration::from_mins(2);
/// After this time, the sidecars have listed everything again.
const SETTLED: Duration = Duration::from_secs(30);
/// The sidecars' source address, in the audit log.
const SOURCE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

const LISTS: &str = "lists of one kind after the cut, the most";
const WORK: &str = "return of the API to the work that came up meanwhile";
const MEMORY: &str = "resident memory, peak beside that before the cut";

/// Cuts a leader with all controllers off from the API.
pub(super) async fn measure(programs: &Programs, count: usize, report: &mut Report) -> Result<()> {
    report.section(&format!(
        "API cut for {} s, {count} PersistentVolumes, claims and VolumeAttachments",
        LENGTH.as_secs()
    ));
    let rig = match geteuid().is_root() {
        true => Rig::start(programs, &[Side::Ours], true).await?,
        false => None,
    };
    let Some(rig) = rig else {
        for what in [LISTS, WORK, MEMORY] {
            report.not_measured(
                what,
                "no kube-apiserver, or no root for a host with a name of its own",
            );
        }
        return Ok(());
    };
    let (api, driver) = (rig.api.clone(), Side::Ours.driver());
    each(count, AT_A_TIME, move |number| attached(api.clone(), number)).await?;
    operation::bound(&rig.api, "attached-late", driver).await?;

    let relay = Relay::open(rig.cluster.server(), SOURCE).await?;
    let around = relayed(&rig, &relay)?;
    let sidecars = start(programs, &around, "cut")?;
    // The shell that sets the host name has been replaced by the sidecars.
    let id = sidecars.id();
    let before = settle(id).await?;
    report.show("resident memory before the cut", before, "MB");

    Usage::reset_peak(id)?;
    let since = SystemTime::now();
    relay.cut();
    tokio::time::sleep(LENGTH).await;
    // Work that the sidecars cannot see.
    let (mut volumes, mut attachments) =
        (rig.api.watch(VOLUMES).await?, rig.api.watch(ATTACHMENTS).await?);
    rig.api.post(CLAIMS, &objects::claim("late", driver)).await?;
    rig.api.post(ATTACHMENTS, &objects::attachment("attached-late", driver)).await?;
    let begun = Instant::now();
    relay.mend();
    let worked = async {
        while volumes.next().await?.1["spec"]["claimRef"]["name"] != "late" {}
        while attachments.next().await?.1["status"]["attached"] != true {}
        anyhow::Ok(begun.elapsed())
    };
    let worked = timeout(DEADLINE, worked).await.context("the sidecars do not work");
    let worked = worked.with_context(|| sidecars.tail())??;
    tokio::time::sleep(SETTLED).await;

    let lists = lists(&fs::read_to_string(rig.cluster.audit_log())?, since);
    for (kind, count) in &lists {
        report.show(&format!("lists of {kind}"), *count as f64, "");
    }
    report.at_most(LISTS, lists.values().copied().max().unwrap_or(0) as f64, 1.0, "");
    report.at_most(WORK, worked.as_secs_f64(), CAUGHT_UP, "s");
    let peak = megabytes(Usage::peak(id)?);
    report.show("resident memory, peak", peak, "MB");
    report.at_most(MEMORY, peak / before, PEAK, "x");
    // kube-apiserver does not stop while watches are open.
    drop((sidecars, relay, volumes, attachments));
    rig.stop().await
}

/// The environment of sidecars that reach the API through a relay.
fn relayed(rig: &Rig, relay: &Relay) -> Result<Surroundings> {
    let around = rig.surroundings(Side::Ours);
    let mut config: Value = serde_json::from_str(&fs::read_to_string(&around.kubeconfig)?)?;
    config["clusters"][0]["cluster"]["server"] = json!(format!("https://{}", relay.address()));
    let kubeconfig = around.folder.join("relayed.kubeconfig");
    fs::write(&kubeconfig, config.to_string())?;
    Ok(Surroundings { kubeconfig, ..around })
}

/// How often each kind was listed completely from the sidecars' address: as a stream, or by pages
/// from the first on.
fn lists(log: &str, since: SystemTime) -> BTreeMap<String, usize> {
    let mut lists = BTreeMap::new();
    // The last line may be incomplete.
    for event in log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok()) {
        let uri = event["requestURI"].as_str().unwrap_or_default();
        let is_whole = uri.contains("sendInitialEvents=true")
            || event["verb"] == "list" && !uri.contains("limit=1&") && !uri.ends_with("limit=1");
        let is_first = !uri.contains("continue=");
        let at = event["requestReceivedTimestamp"].as_str().and_then(|at| at.parse().ok());
        let is_late = at.is_some_and(|at: jiff::Timestamp| SystemTime::from(at) >= since);
        // Streams are logged when they begin and when they end.
        let is_counted = event["verb"] == "list" || event["stage"] != "ResponseComplete";
        let is_own = event["sourceIPs"][0] == SOURCE.to_string().as_str();
        if is_whole && is_first && is_late && is_counted && is_own {
            let kind = event["objectRef"]["resource"].as_str().unwrap_or_default();
            *lists.entry(kind.to_owned()).or_default() += 1;
        }
    }
    lists
}
