//! `cargo xtask e2e`: runs Kubernetes' storage suite against wharf's driver, sidecars and runtime
//! proxy.
//!
//! The suite runs on a cluster of the test bench. Results are kept by spec, so that an interrupted
//! run can be continued. The cluster's guard cleans up, however the run ends.

mod report;
mod results;
mod suite;

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitCode},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use wharf_testkit::{
    cluster::Cluster,
    peers as cache,
    rig::{DRIVER, Rig, Setup},
};

use self::{
    report::Finished,
    results::{Outcome, Results, State},
    suite::Suite,
};
use crate::{packages, peers, shell};

const PEERS: [&str; 3] = ["etcd", "kubernetes", "kubernetes-e2e"];

/// Specs are run in batches, and results written after each: a batch is long compared with the
/// suite's start, and short enough to lose little.
const BATCH: Duration = Duration::from_secs(60);
const LARGEST_BATCH: usize = 32;

/// Specs that look at mounts in the mount namespace of process 1, and the reason to skip them where
/// that is refused.
const ON_HOST: &str = "should not mount / map unused volumes in a pod";
const NO_HOST: &str = "this machine refuses to enter the mount namespace of process 1";

/// The size of the pool and of its image: enough for a few volumes at a time, of at most 2 GiB
/// each.
const POOL: &str = "3Gi";

/// Which specs to run.
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Go regular expression that the names of specs must match
    #[arg(long, value_name = "RE")]
    focus: Option<String>,
    /// Forget the results of these specs, and run them again
    #[arg(long)]
    again: bool,
    /// Print the specs with their results, without running any
    #[arg(long, conflicts_with = "again")]
    list: bool,
}

/// Runs the specs without a result. The exit code is 0 if all of them passed or were skipped.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    if !rustix::process::geteuid().is_root() {
        bail!("the suite needs a kubelet, and so root: run it with sudo");
    }
    packages::install()?;
    peers::build(&PEERS.map(str::to_owned))?;
    shell::run(shell::cargo().args(["build", "--package", "wharf"]))?;
    let target = shell::target()?;
    let wharf = target.join("debug/wharf");
    let peer = |name| cache::binary(name).with_context(|| format!("{} is set", cache::SKIP_PEERS));
    let suite = Suite::new(peer("e2e.test")?, peer("agnhost")?, target.join("e2e/suite"))?;
    let specs = suite.specs(options.focus.as_deref())?;

    let folder = target.join("e2e").join(identity(&wharf)?);
    let mut results = Results::read(&folder.join("results.json"))?;
    if options.again {
        results.forget(&specs)?;
        for spec in &specs {
            // Most specs have no logs.
            let _ = fs::remove_dir_all(logs(&folder, spec));
        }
    }
    if !options.list {
        let mut left = specs.clone();
        left.retain(|spec| results.get(spec).is_none());
        println!("e2e: {} specs, {} of them without a result", specs.len(), left.len());
        skip_impossible(&mut left, &mut results)?;
        if !left.is_empty() {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(run_specs(&suite, &wharf, &folder, left, &mut results))?;
        }
    }
    Ok(summary(&specs, &results, options.list))
}

/// Identifies the binary, the suite and the driver definition that results belong to.
fn identity(wharf: &Path) -> Result<String> {
    let mut hash = Sha256::new();
    hash.update(fs::read(wharf).with_context(|| wharf.display().to_string())?);
    let suite = cache::Peer::all()?.into_iter().find(|peer| peer.name == "kubernetes-e2e");
    let built = suite.context("peers/kubernetes-e2e")?.built()?.context("it was built")?;
    hash.update(built.file_name().unwrap_or_default().as_encoded_bytes());
    hash.update(suite::DEFINITION);
    Ok(hash.finalize().iter().take(6).map(|byte| format!("{byte:02x}")).collect())
}

/// Records specs that cannot run on this machine as skipped.
fn skip_impossible(left: &mut Vec<String>, results: &mut Results) -> Result<()> {
    let mut enter = Command::new("nsenter");
    if shell::quiet(enter.args(["--mount=/proc/1/ns/mnt", "true"])).is_ok() {
        return Ok(());
    }
    let impossible: Vec<_> = left.extract_if(.., |spec| spec.contains(ON_HOST)).collect();
    let outcome = Outcome { state: State::Skipped, reason: NO_HOST.to_owned(), seconds: 0.0 };
    for spec in &impossible {
        println!("{}", line(spec, Some(&outcome)));
    }
    results.add(impossible.into_iter().map(|spec| (spec, outcome.clone())))
}

async fn run_specs(
    suite: &Suite,
    wharf: &Path,
    folder: &Path,
    left: Vec<String>,
    results: &mut Results,
) -> Result<()> {
    // The API server's exec connects to the kubelet at the node's address, which is its name here;
    // the kubelet listens on loopback.
    let mut cluster = Cluster::builder().node("127.0.0.1");
    for image in suite.images()? {
        cluster = cluster.image(image);
    }
    let setup = Setup {
        wharf,
        pool: POOL,
        proxy: true,
        sidecars: &["--provisioner-capacity-for-immediate-binding"],
        objects: vec![attributes()],
    };
    let rig = setup.start(cluster).await?.context("the peers are built")?;
    let ran = run_batches(suite, &rig, folder, left, results).await;
    let stopped = rig.stop().await;
    ran.and(stopped)
}

/// Runs the specs in batches of about [`BATCH`], estimated from the duration of the last one.
async fn run_batches(
    suite: &Suite,
    rig: &Rig,
    folder: &Path,
    mut left: Vec<String>,
    results: &mut Results,
) -> Result<()> {
    let mut size = 2;
    while !left.is_empty() {
        let batch: Vec<_> = left.drain(..size.min(left.len())).collect();
        let start = Instant::now();
        let finished = suite.run(rig, &batch).await?;
        if finished.is_empty() {
            bail!("none of {} specs was run, the first is {:?}", batch.len(), batch[0]);
        }
        keep_logs(rig, folder, &finished)?;
        for it in &finished {
            println!("{}", line(&it.spec, Some(&it.outcome)));
        }
        results.add(finished.into_iter().map(|it| (it.spec, it.outcome)))?;
        size = next_size(size, start.elapsed());
        println!("e2e: {} left", left.len());
    }
    Ok(())
}

fn next_size(size: usize, took: Duration) -> usize {
    match took {
        took if took < BATCH / 2 => (size * 2).min(LARGEST_BATCH),
        took if took > BATCH * 2 => (size / 2).max(1),
        _ => size,
    }
}

/// Keeps the logs of failed specs, and of the programs that ran.
fn keep_logs(rig: &Rig, folder: &Path, finished: &[Finished]) -> Result<()> {
    let failed = finished.iter().filter(|it| it.outcome.state == State::Failed);
    for it in failed {
        let folder = logs(folder, &it.spec);
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("spec.log"), format!("{}\n{}\n", it.spec, it.log))?;
        for entry in rig.cluster.folder().read_dir()? {
            let path = entry?.path();
            if let Some(name) =
                path.file_name().filter(|_| path.extension() == Some("log".as_ref()))
            {
                fs::copy(&path, folder.join(name))?;
            }
        }
        println!("e2e: logs of a failed spec are in {}", folder.display());
    }
    Ok(())
}

/// The folder with the logs of a failed spec.
fn logs(folder: &Path, spec: &str) -> PathBuf {
    let digest = Sha256::digest(spec);
    let name: String = digest.iter().take(4).map(|byte| format!("{byte:02x}")).collect();
    folder.join(name)
}

/// A VolumeAttributesClass for the suite's volumes.
fn attributes() -> Value {
    json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttributesClass",
        "metadata": { "name": "e2e-limits" },
        "driverName": DRIVER,
        "parameters": { "riops": "5000" },
    })
}

fn line(spec: &str, outcome: Option<&Outcome>) -> String {
    let Some(Outcome { state, reason, seconds }) = outcome else {
        return format!("-       {spec}");
    };
    let reason = reason.lines().next().unwrap_or_default();
    match state {
        State::Passed => format!("passed  {spec} ({seconds:.0} s)"),
        State::Failed => format!("FAILED  {spec} ({seconds:.0} s): {reason}"),
        State::Skipped => format!("skipped {spec}: {reason}"),
    }
}

fn summary(specs: &[String], results: &Results, all: bool) -> ExitCode {
    let outcomes = specs.iter().map(|spec| (spec, results.get(spec)));
    for (spec, outcome) in outcomes {
        if all || outcome.is_some_and(|it| it.state == State::Failed) {
            println!("{}", line(spec, outcome));
        }
    }
    let [passed, failed, skipped] = results.count(specs);
    let missing = specs.len() - passed - failed - skipped;
    if missing > 0 {
        println!("e2e: {missing} specs have no result");
    }
    println!("{passed} passed, {failed} failed, {skipped} skipped");
    if failed == 0 && (missing == 0 || all) { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn batches_follow_the_time_that_they_take() {
        assert_eq!(next_size(4, Duration::from_secs(5)), 8);
        assert_eq!(next_size(32, Duration::from_secs(5)), 32);
        assert_eq!(next_size(4, Duration::from_secs(60)), 4);
        assert_eq!(next_size(4, Duration::from_secs(300)), 2);
        assert_eq!(next_size(1, Duration::from_secs(300)), 1);
    }

    #[test]
    fn a_result_is_a_line() {
        let failed =
            Outcome { state: State::Failed, reason: "late\nmore".to_owned(), seconds: 2.4 };
        assert_eq!(line("a", Some(&failed)), "FAILED  a (2 s): late");
        assert_eq!(line("a", None), "-       a");
    }
}
