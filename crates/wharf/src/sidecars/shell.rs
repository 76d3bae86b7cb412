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
    controller::{Controller, MakeController},
    driver::{Connected, DriverSource},
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

/// Runs the sidecar that `plan` makes of a command line.
pub(super) fn main(
    name: &str,
    set: &FlagSet,
    common: &CommonFlags,
    args: Vec<String>,
    plan: impl FnOnce(&Parsed, Common) -> Result<Sidecar, FlagError>,
) -> ExitCode {
    let parsed = match set.parse(args) {
        Ok(parsed) => parsed,
        Err(error) => return usage(&error),
    };
    if *parsed.get(&common.version) {
        return print_version(name);
    }
    let sidecar = match common.common(&parsed).and_then(|common| plan(&parsed, common)) {
        Ok(sidecar) => sidecar,
        Err(error) => return usage(&error),
    };
    let _guard = match common.logging.init(&parsed) {
        Ok(guard) => guard,
        Err(error) => return usage(&parsed.usage_error(error)),
    };
    info!(version = env!("CARGO_PKG_VERSION"), "starting");
    run(Threads::One, |stop| sidecar.serve(stop))
}

impl Sidecar {
    async fn serve(self, stop: CancellationToken) -> anyhow::Result<ExitCode> {
        let Self { common, socket, timeout, lease, controller } = self;
        let mut registry = Registry::default();
        process_metrics(&mut registry);
        let metrics = RpcMetrics::register(&mut registry);
        let elections = ElectionMetrics::register(&mut registry);
        let queues = WorkqueueMetrics::register(&mut registry);
        let controller = controller(&mut registry, &queues);

        let kubeconfig = common.kubeconfig.as_deref();
        let client = match common.throttle {
            Some(throttle) => wharf_cluster::connect_throttled(kubeconfig, throttle).await?,
            None => wharf_cluster::connect(kubeconfig).await?,
        };
        let source = DriverSource { socket, timeout, metrics };
        let Some(connected) = stop.run_until_cancelled(source.connect()).await else {
            return Ok(ExitCode::SUCCESS);
        };
        let mut connected = connected?;

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
                    let options = plan.options(lease(&connected.name));
                    Some(Election::new(client, options, health.clone(), &elections))
                }
                None => None,
            };
            match shift.work(election.as_ref(), &connected, &stop).await {
                Ok(End::Stopped) => break Ok(ExitCode::SUCCESS),
                Ok(End::DriverChanged(changed)) => connected = changed,
                Err(error) => break Err(error),
            }
        };
        stop.cancel();
        serving.join_all().await;
        outcome
    }
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
struct Shift {
    client: Client,
    source: DriverSource,
    controller: Arc<dyn Controller>,
}

/// Why work ended.
enum End {
    Stopped,
    /// The driver has another name, and so another Lease, or other capabilities.
    DriverChanged(Connected),
}

impl Shift {
    /// Works, or stands by, until it is told to stop or the driver has become another one.
    async fn work(
        &self,
        election: Option<&Election>,
        connected: &Connected,
        stop: &CancellationToken,
    ) -> anyhow::Result<End> {
        let told = stop.child_token();
        let mut working = pin!(async {
            match election {
                Some(election) => self.work_elected(election, connected, &told).await,
                None => self.supervise(connected, told.clone()).await,
            }
        });
        tokio::select! {
            outcome = &mut working => outcome.map(|()| End::Stopped),
            changed = self.source.changed(connected) => {
                warn!(driver = %changed.name, "beginning again with the driver as it is now");
                told.cancel();
                // What does not end in time is cut by being dropped.
                timeout(GRACE, working).await.unwrap_or(Ok(()))?;
                Ok(End::DriverChanged(changed))
            }
        }
    }

    /// Works whenever the Lease is held. A lost Lease ends the work and not the process: it stands again.
    async fn work_elected(
        &self,
        election: &Election,
        connected: &Connected,
        stop: &CancellationToken,
    ) -> anyhow::Result<()> {
        loop {
            match election.run(stop, |stop| self.supervise(connected, stop)).await {
                Ok(outcome) => return outcome.unwrap_or(Ok(())),
                Err(lost) => error!(err = %lost, "stopped leading"),
            }
        }
    }

    /// Runs the controller until it is told to stop, again if it panicked. Dropping this ends the controller, too.
    async fn supervise(
        &self,
        connected: &Connected,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        loop {
            let mut task = JoinSet::new();
            let (controller, client) = (self.controller.clone(), self.client.clone());
            let (driver, told) = (connected.clone(), stop.clone());
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

    use super::*;

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
