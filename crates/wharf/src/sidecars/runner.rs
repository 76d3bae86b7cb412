//! Starts a process of controllers: reads the command line, serves metrics and health, connects to
//! the driver, and hands over to the supervisor.

use std::{process::ExitCode, sync::Arc};

use kube::Client;
use prometheus_client::registry::Registry;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tracing::{Instrument, info, info_span};
use wharf_cli::{
    Admin, BoundAdmin, CheckFailure, Dialect, Flag, FlagError, FlagSet, LoggingFlags, Parsed,
    process_metrics,
};
use wharf_cluster::{Access, ElectionHealth, ElectionMetrics, Throttle};
use wharf_reconcile::WorkqueueMetrics;
use wharf_uds::RpcMetrics;

use super::{
    controller::{ClusterController, ClusterSource, MakeController, Target, TargetSource, Timed},
    driver::{ConnectedDriver, DriverOptions, DriverSource},
    flags::{Common, CommonFlags, ELECTION_HEALTH, Http},
    node::{NodeTask, ProcessFlags},
    process_health::ProcessHealth,
    supervisor::{Candidacy, ControllerSlot, End, Supervisor},
};
use crate::{
    registrar::print_version,
    runtime::{Threads, give_back_at_rest, run, usage},
};

/// The command line of one sidecar.
pub(super) trait Personality: Sized + 'static {
    /// Its name in `wharf sidecars --controllers`.
    const NAME: &'static str;
    /// The first paragraph of its help.
    const ABOUT: &'static str;
    /// The flag library of the Go program.
    const DIALECT: Dialect = Dialect::Go;
    /// Finds the driver or cluster that it serves.
    type Source: TargetSource;

    fn register(set: &mut FlagSet) -> Self;

    fn common(&self) -> &CommonFlags;

    /// Reads the flags of this sidecar, given those that all sidecars have.
    fn plan(
        &self,
        parsed: &Parsed,
        common: Common,
    ) -> Result<ControllerSpec<Self::Source>, FlagError>;

    /// Reads the whole command line.
    fn spec(&self, parsed: &Parsed) -> Result<ControllerSpec<Self::Source>, FlagError> {
        self.plan(parsed, self.common().common(parsed)?)
    }
}

/// A controller to run, as its command line asks for it.
pub(super) struct ControllerSpec<S: TargetSource> {
    pub(super) name: &'static str,
    pub(super) common: Common,
    pub(super) source: S::Options,
    pub(super) lease: Lease<S::Target>,
    pub(super) controller: MakeController<S::Target>,
}

/// Computes the name of a controller's Lease from what it serves.
pub(super) type Lease<T> = Box<dyn Fn(&T) -> String + Send + Sync>;

impl ControllerSpec<DriverSource> {
    /// A controller whose Lease's name is made from the driver's name.
    pub(super) fn of_driver(
        name: &'static str,
        common: Common,
        source: DriverOptions,
        lease: fn(&str) -> String,
        controller: MakeController,
    ) -> Self {
        let timeout = source.timeout;
        Self {
            name,
            common,
            source,
            lease: Box::new(move |driver: &ConnectedDriver| lease(&driver.name)),
            controller: Box::new(move |registry, queues| {
                Arc::new(Timed { timeout, controller: controller(registry, queues) })
            }),
        }
    }
}

impl ControllerSpec<ClusterSource> {
    /// The same controller for a process that serves a driver.
    pub(super) fn with_driver(self, source: DriverOptions) -> ControllerSpec<DriverSource> {
        let Self { name, common, lease, controller, .. } = self;
        ControllerSpec {
            name,
            common,
            source,
            lease: Box::new(move |_| lease(&())),
            controller: Box::new(move |registry, queues| {
                Arc::new(ClusterController(controller(registry, queues)))
            }),
        }
    }
}

/// Runs one sidecar in a process of its own.
pub(super) fn main<P: Personality>(name: &str, args: Vec<String>) -> ExitCode {
    let mut set = FlagSet::new(name, P::ABOUT).dialect(P::DIALECT);
    let flags = P::register(&mut set);
    match set.parse(args) {
        Ok(parsed) => {
            let plan = || Ok(Plan { specs: vec![flags.spec(&parsed)?], node: Vec::new() });
            start(name, flags.common(), &parsed, plan)
        }
        Err(error) => usage(&error),
    }
}

/// The controllers and node tasks of a process.
pub(super) struct Plan<S: TargetSource> {
    pub(super) specs: Vec<ControllerSpec<S>>,
    pub(super) node: Vec<NodeTask>,
}

/// Runs a process with controllers. `common` are its process-wide flags; `plan` reads the others.
pub(super) fn start<S: TargetSource>(
    name: &str,
    common: &CommonFlags,
    parsed: &Parsed,
    plan: impl FnOnce() -> Result<Plan<S>, FlagError>,
) -> ExitCode {
    let (version, logging) = (&common.version, &common.logging);
    start_logged(name, version, logging, parsed, plan, |plan, stop| serve(plan, stop))
}

/// Runs a process of node tasks alone, which need no Kubernetes API.
pub(super) fn start_node(
    name: &str,
    process: &ProcessFlags,
    parsed: &Parsed,
    plan: impl FnOnce() -> Result<Vec<NodeTask>, FlagError>,
) -> ExitCode {
    let (version, logging) = (&process.version, &process.logging);
    let http = parsed.get(&process.http_endpoint).clone();
    start_logged(name, version, logging, parsed, plan, |tasks, stop| serve_node(tasks, http, stop))
}

fn start_logged<P, F>(
    name: &str,
    version: &Flag<bool>,
    logging: &LoggingFlags,
    parsed: &Parsed,
    plan: impl FnOnce() -> Result<P, FlagError>,
    serve: impl FnOnce(P, CancellationToken) -> F,
) -> ExitCode
where
    F: Future<Output = anyhow::Result<ExitCode>>,
{
    if *parsed.get(version) {
        return print_version(name);
    }
    let plan = match plan() {
        Ok(plan) => plan,
        Err(error) => return usage(&error),
    };
    let _guard = match logging.init(parsed) {
        Ok(guard) => guard,
        Err(error) => return usage(&parsed.usage_error(error)),
    };
    info!(version = env!("CARGO_PKG_VERSION"), "starting");
    run(Threads::One, |stop| serve(plan, stop))
}

/// Runs node tasks until `stop`.
async fn serve_node(
    tasks: Vec<NodeTask>,
    http: String,
    stop: CancellationToken,
) -> anyhow::Result<ExitCode> {
    let mut registry = Registry::default();
    process_metrics(&mut registry);
    let calls = RpcMetrics::register(&mut registry);
    let names: Vec<_> = tasks.iter().map(NodeTask::name).collect();
    let process_health: ProcessHealth<()> = ProcessHealth::register(&mut registry, &names);
    process_health.begin(&(), None);
    let mut serving = JoinSet::new();
    if !http.is_empty() {
        let (flag, metrics_path) = ("http-endpoint", "/metrics".to_owned());
        let http = Http { address: http, flag, metrics_path, health: false };
        let admin = endpoint(&http, registry, Vec::new(), process_health.clone(), &tasks).await?;
        serving.spawn(admin.serve(stop.clone()));
    }
    for task in tasks {
        serving.spawn(task.run(calls.clone(), process_health.clone(), stop.clone()));
    }
    serving.join_all().await;
    Ok(ExitCode::SUCCESS)
}

/// Runs the controllers and node tasks of a process until `stop`. The first controller's flags set
/// the socket and the HTTP address.
async fn serve<S: TargetSource>(
    plan: Plan<S>,
    stop: CancellationToken,
) -> anyhow::Result<ExitCode> {
    let Plan { specs, node } = plan;
    let Some(first) = specs.first() else { return Ok(ExitCode::SUCCESS) };
    let mut registry = Registry::default();
    process_metrics(&mut registry);
    let elections = ElectionMetrics::register(&mut registry);
    let queues = WorkqueueMetrics::register(&mut registry);
    let calls = RpcMetrics::register(&mut registry);
    let names = specs.iter().map(|spec| spec.name).chain(node.iter().map(NodeTask::name));
    let process_health = ProcessHealth::register(&mut registry, &names.collect::<Vec<_>>());
    let source = S::new(first.source.clone(), calls.clone());
    let http = first.common.http.clone();
    let accesses = specs.iter().map(|spec| spec.common.access.clone());
    // Not every controller has every flag about the API server: --master is missing in some.
    let access = accesses.reduce(Access::or).unwrap_or_default();
    let mut made = Vec::new();
    for ControllerSpec { name, common, lease, controller, .. } in specs {
        made.push((name, common, lease, controller(&mut registry, &queues)));
    }

    let client = access.client_of(&process_health.permissions, None).await?;
    // A separate client for all elections: renewals must not wait behind other requests.
    let voter = access.client_of(&process_health.permissions, None).await?;
    let (mut slots, mut healths) = (Vec::new(), Vec::new());
    // Controllers with the same rate limit share one client, and so the limit.
    let mut limited: Vec<(Throttle, Client)> = Vec::new();
    for (name, common, lease, controller) in made {
        let client = match common.throttle {
            Some(limit) => match limited.iter().find(|(shared, _)| *shared == limit) {
                Some((_, client)) => client.clone(),
                None => {
                    let client = access.client_of(&process_health.permissions, Some(limit)).await?;
                    limited.push((limit, client.clone()));
                    client
                }
            },
            None => client.clone(),
        };
        let candidacy = common.election.map(|plan| {
            let health = ElectionHealth::default();
            healths.push(health.clone());
            Candidacy { client: voter.clone(), plan, lease, health, metrics: elections.clone() }
        });
        slots.push(ControllerSlot {
            name,
            client,
            controller,
            process_health: process_health.clone(),
            candidacy,
        });
    }
    let mut serving = JoinSet::new();
    serving.spawn(give_back_at_rest(stop.clone()));
    if let Some(http) = &http {
        let admin = endpoint(http, registry, healths, process_health.clone(), &node).await?;
        serving.spawn(admin.serve(stop.clone()));
    }
    for task in node {
        let span = info_span!("controller", controller = task.name());
        serving
            .spawn(task.run(calls.clone(), process_health.clone(), stop.clone()).instrument(span));
    }
    let Some(target) = stop.run_until_cancelled(source.connect()).await else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut target = target?;
    let supervisor = Supervisor::new(client, source, slots, process_health);
    let outcome = loop {
        match supervisor.work(&target, &stop).await {
            Ok(End::Stopped) => break Ok(ExitCode::SUCCESS),
            Ok(End::Changed(changed)) => target = changed,
            Err(error) => break Err(error),
        }
    };
    stop.cancel();
    serving.join_all().await;
    outcome
}

async fn endpoint<T: Target>(
    http: &Http,
    registry: Registry,
    elections: Vec<ElectionHealth>,
    process_health: ProcessHealth<T>,
    node: &[NodeTask],
) -> anyhow::Result<BoundAdmin> {
    let mut admin = Admin::new().flag(http.flag).metrics(&http.metrics_path, Arc::new(registry));
    admin = admin.check("/readyz", move || {
        let problems = process_health.problems();
        let failure = || CheckFailure::new(503, problems.join("\n"));
        let checked = if problems.is_empty() { Ok(()) } else { Err(failure()) };
        async move { checked }
    });
    if http.health && !elections.is_empty() {
        admin = admin.check(ELECTION_HEALTH, move || {
            let checked = elections.iter().try_for_each(ElectionHealth::check);
            let failure = |text| CheckFailure::new(500, format!("internal server error: {text}"));
            async move { checked.map_err(failure) }
        });
    }
    admin = node.iter().fold(admin, |admin, task| task.show(admin));
    let bound = admin.bind(&http.address).await?;
    info!(address = %bound.local_addr(), path = %http.metrics_path, "serving metrics");
    Ok(bound)
}
