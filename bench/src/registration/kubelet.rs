//! The same CSI drivers with a real kubelet.

use std::time::Duration;

use anyhow::Result;
use rustix::process::geteuid;
use wharf_testkit::cluster::Cluster;

use super::{
    announcer::{Announcer, Registrations},
    binary::Binary,
};
use crate::{report::Report, sample::Sample};

const TIMES: f64 = 5.0;
const COMES: &str = "listen() to Notify(true), wharf beside kubelet";
const COMES_AGAIN: &str = "unlink and listen() to Notify(true), wharf beside kubelet";
/// The kubelet's reconcile period.
const PERIOD: Duration = Duration::from_secs(1);

/// Registers `count` drivers and compares with `ours`.
pub(super) async fn measure(
    binary: &Binary,
    count: usize,
    ours: Option<Registrations>,
    report: &mut Report,
) -> Result<()> {
    report.section(&format!("kubelet, {count} CSI drivers, p50"));
    let cluster = match geteuid().is_root() {
        true => Cluster::builder().kubelet(true).start().await?,
        false => None,
    };
    let (Some(cluster), Some(ours)) = (cluster, ours) else {
        for what in [COMES, COMES_AGAIN] {
            report.not_measured(what, "no kubelet, which needs root and its peers");
        }
        return Ok(());
    };
    let driver = binary.driver().await?;
    let folder = cluster.plugins_registry();
    let mut drivers = Announcer::new(&folder, &driver.socket);
    drivers.come(&mut Sample::default()).await?.go()?;
    let mut theirs = Registrations::default();
    for turn in 0..count {
        // Spreads registrations over the period: each ends at a tick, so the next would always
        // begin there.
        let phase = PERIOD.mul_f64(turn as f64 / count as f64);
        tokio::time::sleep(phase).await;
        let mut driver = drivers.come(&mut theirs.comes).await?;
        tokio::time::sleep(phase).await;
        drivers.come_again(&mut driver, &mut theirs.comes_again).await?;
        driver.go()?;
    }
    cluster.stop().await?;
    report.show("listen() to Notify(true)", theirs.comes.p50(), "ms");
    report.show("unlink and listen() to Notify(true)", theirs.comes_again.p50(), "ms");
    let faster = |theirs: &Sample, ours: &Sample| theirs.p50() / ours.p50();
    report.at_least(COMES, faster(&theirs.comes, &ours.comes), TIMES, "x");
    report.at_least(COMES_AGAIN, faster(&theirs.comes_again, &ours.comes_again), TIMES, "x");
    Ok(())
}
