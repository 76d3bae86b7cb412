//! Two replicas of our sidecars, of which the leader ends.

use std::{
    process::Command,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rustix::process::{Signal, geteuid};
use tokio::time::timeout;
use wharf_testkit::process::Process;

use super::{
    objects::{self, CLAIMS, VOLUMES},
    rig::Rig,
    side::{Programs, Side, Surroundings},
};
use crate::report::Report;

/// The default lease duration.
const LEASE: f64 = 15.0;
const HANDOVER: f64 = 1.0;
const DEADLINE: Duration = Duration::from_secs(60);
/// After this time, a standby replica has seen the lease.
const STANDING_BY: Duration = Duration::from_secs(6);

const KILLED: &str = "kill -9 of the leader to the next claim's volume";
const ENDED: &str = "SIGTERM of the leader to the next claim's volume";
const DRIVERLESS: &str = "kill -9 of the leader's driver to the next claim's volume";

/// Ends a leader by kill -9 and another by SIGTERM.
pub(super) async fn measure(programs: &Programs, report: &mut Report) -> Result<()> {
    report.section("failover, two replicas, a lease for each controller");
    let rig = match geteuid().is_root() {
        true => Rig::start(programs, &[Side::Ours], false).await?,
        false => None,
    };
    let Some(mut rig) = rig else {
        for what in [KILLED, ENDED, DRIVERLESS] {
            report.not_measured(
                what,
                "no kube-apiserver, or no root for hosts with names of their own",
            );
        }
        return Ok(());
    };
    let around = rig.surroundings(Side::Ours);
    let replica = |name: &str| start(programs, &around, name);
    let first = replica("replica-a")?;
    provisioned(&rig, "first").await.with_context(|| first.tail())?;
    let second = replica("replica-b")?;
    tokio::time::sleep(STANDING_BY).await;

    let begun = Instant::now();
    first.signal(Signal::KILL)?;
    provisioned(&rig, "killed").await.with_context(|| second.tail())?;
    report.at_most(KILLED, begun.elapsed().as_secs_f64(), LEASE + 1.0, "s");

    let third = replica("replica-c")?;
    tokio::time::sleep(STANDING_BY).await;
    let begun = Instant::now();
    second.signal(Signal::TERM)?;
    provisioned(&rig, "ended").await.with_context(|| third.tail())?;
    report.at_most(ENDED, begun.elapsed().as_secs_f64(), HANDOVER, "s");

    // A replica with its own driver process.
    let socket = around.folder.join("other.sock");
    let other_driver = rig.driver_at(Side::Ours, &socket).await?;
    let fourth = start(programs, &Surroundings { socket, ..around.clone() }, "replica-d")?;
    tokio::time::sleep(STANDING_BY).await;
    let begun = Instant::now();
    rig.kill_driver(Side::Ours)?;
    provisioned(&rig, "driverless").await.with_context(|| fourth.tail())?;
    report.at_most(DRIVERLESS, begun.elapsed().as_secs_f64(), LEASE + 3.0, "s");
    drop((first, second, third, fourth, other_driver));
    rig.stop().await
}

/// Starts a replica with this host name, which identifies replicas.
pub(super) fn start(programs: &Programs, around: &Surroundings, host: &str) -> Result<Process> {
    let mut command = Command::new("unshare");
    command.args(["--uts", "sh", "-c", "hostname \"$0\" && exec \"$@\"", host]);
    command.arg(&programs.wharf).arg("sidecars").args(around.flags(true));
    command.args(["--leader-election", "--feature-gates=ReleaseLeaderElectionOnExit=true"]);
    Process::start(host, &command, &around.folder)
}

/// Makes a claim and waits for its volume.
async fn provisioned(rig: &Rig, name: &str) -> Result<()> {
    let mut volumes = rig.api.watch(VOLUMES).await?;
    rig.api.post(CLAIMS, &objects::claim(name, Side::Ours.driver())).await?;
    let made = async {
        while volumes.next().await?.1["spec"]["claimRef"]["name"] != name {}
        anyhow::Ok(())
    };
    timeout(DEADLINE, made).await.context("no volume")?
}
