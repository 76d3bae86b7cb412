//! Claims that are made one by one.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use tokio::time::{MissedTickBehavior, interval, timeout};

use super::{
    objects::{self, CLAIMS, VOLUMES},
    rig::Rig,
    side::{Programs, Side},
};
use crate::{report::Report, sample::Sample};

const PERIOD: Duration = Duration::from_millis(100);
const LIMIT: f64 = 100.0;
const DEADLINE: Duration = Duration::from_secs(30);

/// Makes `count` claims, ten per second.
pub(super) async fn measure(programs: &Programs, count: usize, report: &mut Report) -> Result<()> {
    const WHAT: &str = "from POST of the claim to its volume in a watch, p99";
    report.section(&format!("{count} claims, 10 a second"));
    let Some(rig) = Rig::start(programs, &[Side::Ours], false).await? else {
        report.not_measured(WHAT, "no kube-apiserver");
        return Ok(());
    };
    let sidecars = programs.start_ours(&rig.surroundings(Side::Ours), &[])?;
    let driver = Side::Ours.driver();
    let mut volumes = rig.api.watch(VOLUMES).await?;
    // The first claim waits for the start.
    rig.api.post(CLAIMS, &objects::claim("first", driver)).await?;
    let first = timeout(DEADLINE, volumes.next()).await;
    first.with_context(|| format!("no first volume:\n{}", sidecars.tail()))??;

    let api = rig.api.clone();
    let posting = async {
        let mut posted = HashMap::new();
        let mut tick = interval(PERIOD);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        for number in 0..count {
            tick.tick().await;
            let name = format!("paced-{number}");
            posted.insert(name.clone(), Instant::now());
            api.post(CLAIMS, &objects::claim(&name, driver)).await?;
        }
        anyhow::Ok(posted)
    };
    let seeing = async {
        let mut seen = HashMap::new();
        while seen.len() < count {
            let happening = timeout(DEADLINE, volumes.next()).await;
            let (_, volume) = happening.context("no more volumes")??;
            let claim = volume["spec"]["claimRef"]["name"].as_str().unwrap_or_default().to_owned();
            if claim.starts_with("paced-") {
                seen.entry(claim).or_insert_with(Instant::now);
            }
        }
        anyhow::Ok(seen)
    };
    let (posted, seen) = tokio::join!(posting, seeing);
    let (posted, seen) = (posted?, seen?);
    let mut sample = Sample::default();
    for (name, at) in &seen {
        sample.add(at.duration_since(posted[name]));
    }
    // The API server stops only when its watches are closed.
    drop((sidecars, volumes));
    rig.stop().await?;
    report.show("from POST of the claim to its volume in a watch, p50", sample.p50(), "ms");
    report.at_most(WHAT, sample.p99(), LIMIT, "ms");
    Ok(())
}
