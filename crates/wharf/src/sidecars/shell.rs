//! What surrounds a controller: flags before it, an endpoint beside it, an election around it.

use std::{path::PathBuf, pin::pin, process::ExitCode, sync::Arc, time::Duration};

use kube::Client;
use prometheus_client::registry::Registry;
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;
use tracing::{error, info, warn};
use wharf_cli::{Admin, BoundAdmin, CheckFailure, FlagError, FlagSet, Parsed, process_metrics};
use wharf_cluster::{Election, ElectionHealth, ElectionMetrics};
use wharf_reconcile::WorkqueueMetrics;
use wharf_uds::RpcMetrics;

use super::{
    controller::{Controller, MakeController, Source, WholeCluster},
    driver::DriverSource,
    flags::{Common, CommonFlags, ELECTION_HEALTH, Http},
};
use crate::{
    registrar::print_version,
    running::{Threads, run, usage},
};

/// How long a controller that panicked rests before it is begun again.
const AFTER_PANIC: Duration = Duration::from_secs(5);

/// How long a controller may take to stop when its driver has changed.
const GRACE: Duration = Duration::from_secs(5);

/// A sidecar of one driver.
pub(super) struct Sidecar {
    pub(super) common: Common,
    pub(super) socket: PathBuf,
    /// How long a call to the driver may take.
    pub(super) timeout: Duration,
    /// The Lease for a driver of this name.
    pub(super) lease: fn(&str) -> String,
    pub(super) controller: MakeController,
}

/// A controller of the whole cluster, which no driver is beside.
pub(super) struct ClusterSidecar {
    pub(super) common: Common,
    pub(super) lease: &'static str,
    pub(super) controller: MakeController<()>,
}

/// What a command line asks for.
pub(super) trait Program {
    /// Runs it until it is told to stop.
    async fn serve(self, stop: CancellationToken) -> anyhow::Result<ExitCode>;
}

/// Runs what `plan` makes of a command line.
pub(super) fn main<P: Program>(
    name: &str,
    set: &FlagSet,
    common: &CommonFlags,
    args: Vec<String>,
    plan: impl FnOnce(&Parsed, Common) -> Result<P, FlagError>,
) -> ExitCode {
    let parsed = match set.parse(args) {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error),
    };
    if *parsed.get(&common.version) {
        return print_version(name);
    }
    let program = match common.common(&parsed).and_then(|common| plan(&parsed, common)) {
        Ok(program) => program,
        Err(error) => return usage(&error),
    };
    let _guard = match common.logging.init(&parsed) {
        Ok(guard) => guard,
        Err(error) => return usage(&parsed.usage_error(error)),
    };
    info!(version = env!("CARGO_PKG_VERSION"), "starting");
    run(Threads::One, |stop| program.serve(stop))
}

impl Program for Sidecar {
    async fn serve(self, stop: CancellationToken) -> anyhow::Result<ExitCode> {
        let Self { common, socket, timeout, lease, controller } = self;
        let mut registry = Registry::default();
        let metrics = RpcMetrics::register(&mut registry);
        let source = DriverSource { socket, timeout, metrics };
        serve(common, registry, source, controller, |driver| lease(&driver.name), stop).await
    }
}

impl Program for ClusterSidecar {
    async fn serve(self, stop: CancellationToken) -> anyhow::Result<ExitCode> {
        let Self { common, lease, controller } = self;
        let registry = Registry::default();
        serve(common, registry, WholeCluster, controller, |()| lease.to_owned(), stop).await
    }
}

async fn serve<S: Source>(
    common: Common,
    mut registry: Registry,
    source: S,
    controller: MakeController<S::Found>,
    lease: impl Fn(&S::Found) -> String,
    stop: CancellationToken,
) -> anyhow::Result<ExitCode> {
    process_metrics(&mut registry);
    let elections = ElectionMetrics::register(&mut registry);
    let queues = WorkqueueMetrics::register(&mut registry);
    let controller = controller(&mut registry, &queues);

    let kubeconfig = common.kubeconfig.as_deref();
    let client = match common.throttle {
        Some(throttle) => wharf_cluster::connect_throttled(kubeconfig, throttle).await?,
        None => wharf_cluster::connect(kubeconfig).await?,
    };
    let Some(found) = stop.run_until_cancelled(source.connect()).await else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut found = found?;

    let health = ElectionHealth::default();
    let mut serving = JoinSet::new();
    if let Some(http) = &common.http {
        let watched = common.election.is_some().then(|| health.clone());
        serving.spawn(endpoint(http, registry, watched).await?.serve(stop.clone()));
    }
    let shift = Shift { client, source, controller };
    let outcome = loop {
        let election = match &common.election {
            Some(plan) => {
                // A client of its own: renewals must not wait behind work.
                let client = wharf_cluster::connect(kubeconfig).await?;
                let options = plan.options(lease(&found));
                Some(Election::new(client, options, health.clone(), &elections))
            }
            None => None,
        };
        match shift.work(election.as_ref(), &found, &stop).await {
            Ok(End::Stopped) => break Ok(ExitCode::SUCCESS),
            Ok(End::Changed(changed)) => found = changed,
            Err(error) => break Err(error),
        }
    };
    stop.cancel();
    serving.join_all().await;
    outcome
}

async fn endpoint(
    http: &Http,
    registry: Registry,
    election: Option<ElectionHealth>,
) -> anyhow::Result<BoundAdmin> {
    let mut admin = Admin::new().flag(http.flag).metrics(&http.metrics_path, Arc::new(registry));
    if let Some(election) = election.filter(|_| http.health) {
        admin = admin.check(ELECTION_HEALTH, move || {
            let checked = election.check();
            let failure = |text| CheckFailure::new(500, format!("internal server error: {text}"));
            async move { checked.map_err(failure) }
        });
    }
    let bound = admin.bind(&http.address).await?;
    info!(address = %bound.local_addr(), path = %http.metrics_path, "serving metrics");
    Ok(bound)
}

/// What a controller needs to work, whenever it is its turn.
struct Shift<S: Source> {
    client: Client,
    source: S,
    controller: Arc<dyn Controller<S::Found>>,
}

/// Why work ended.
enum End<F> {
    Stopped,
    /// The driver has another name, and so another Lease, or other capabilities.
    Changed(F),
}

impl<S: Source> Shift<S> {
    /// Works, or stands by, until it is told to stop or the driver has become another one.
    async fn work(
        &self,
        election: Option<&Election>,
        found: &S::Found,
        stop: &CancellationToken,
    ) -> anyhow::Result<End<S::Found>> {
        let told = stop.child_token();
        let mut working = pin!(async {
            match election {
                Some(election) => self.work_elected(election, found, &told).await,
                None => self.supervise(found, told.clone()).await,
            }
        });
        tokio::select! {
            outcome = &mut working => outcome.map(|()| End::Stopped),
            changed = self.source.changed(found) => {
                warn!("beginning again with the driver as it is now");
                told.cancel();
                // What does not end in time is cut by being dropped.
                timeout(GRACE, working).await.unwrap_or(Ok(()))?;
                Ok(End::Changed(changed))
            }
        }
    }

    /// Works whenever the Lease is held. A lost Lease ends the work and not the process: it stands again.
    async fn work_elected(
        &self,
        election: &Election,
        found: &S::Found,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        loop {
            match election.run(stop, |stop| self.supervise(found, stop)).await {
                Ok(outcome) => return outcome.unwrap_or(Ok(())),
                Err(lost) => error!(err = %lost, "stopped leading"),
            }
        }
    }

    /// Runs the controller until it is told to stop, again if it panicked. Dropping this ends the controller, too.
    async fn supervise(&self, found: &S::Found, stop: CancellationToken) -> anyhow::Result<()> {
        loop {
            let mut task = JoinSet::new();
            let (controller, client) = (self.controller.clone(), self.client.clone());
            let (driver, told) = (found.clone(), stop.clone());
            task.spawn(async move { controller.run(client, driver, told).await });
            match task.join_next().await {
                Some(Err(panic)) => {
                    error!(err = %panic, "the controller panicked, beginning again");
                }
                Some(Ok(outcome)) => return outcome,
                None => return Ok(()),
            }
            if stop.run_until_cancelled(sleep(AFTER_PANIC)).await.is_none() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use async_trait::async_trait;
    use wharf_testkit::csi_driver::{DriverScript, ScriptedDriver};

    use super::{super::driver::Connected, *};

    /// Panics the first time, and works from then on.
    #[derive(Default)]
    struct Shaky(AtomicUsize);

    #[async_trait]
    impl Controller for Shaky {
        async fn run(
            &self,
            _: Client,
            _: Connected,
            stop: CancellationToken,
        ) -> anyhow::Result<()> {
            assert!(self.0.fetch_add(1, Ordering::SeqCst) > 0, "the first time");
            stop.cancel();
            Ok(())
        }
    }

    #[tokio::test]
    async fn a_controller_that_panics_is_begun_again() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("csi.sock");
        let _driver = ScriptedDriver::serve(&socket, DriverScript::new("shaky.example.com"));
        let metrics = RpcMetrics::register(&mut Registry::default());
        let source = DriverSource { socket, timeout: Duration::from_secs(15), metrics };
        let connected = source.connect().await.unwrap();
        let config = kube::Config::new("http://127.0.0.1:1".parse().unwrap());
        let controller = Arc::new(Shaky::default());
        let shift =
            Shift { client: config.try_into().unwrap(), source, controller: controller.clone() };
        tokio::time::pause();
        let end = shift.work(None, &connected, &CancellationToken::new()).await.unwrap();
        assert!(matches!(end, End::Stopped));
        assert_eq!(controller.0.load(Ordering::SeqCst), 2);
    }
}
