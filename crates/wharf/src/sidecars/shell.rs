//! What surrounds controllers: flags before them, and an endpoint beside them.

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
    controller::{BesideDriver, MakeController, Served, Source, Timed, WholeCluster},
    driver::{Connected, DriverOptions, DriverSource},
    eyes::Eyes,
    flags::{Common, CommonFlags, ELECTION_HEALTH, Http},
    node::{NodePart, ProcessFlags},
    shift::{Candidacy, End, Post, Shift},
};
use crate::{
    registrar::print_version,
    running::{Threads, give_back_at_rest, run, usage},
};

/// The command line of one sidecar.
pub(super) trait Personality: Sized + 'static {
    /// What it is called among others.
    const NAME: &'static str;
    /// What it does, for people.
    const ABOUT: &'static str;
    /// How its flags are written.
    const DIALECT: Dialect = Dialect::Go;
    /// Where it finds whom it works for.
    type Source: Source;

    fn register(set: &mut FlagSet) -> Self;

    fn common(&self) -> &CommonFlags;

    /// What a command line asks for.
    fn plan(&self, parsed: &Parsed, common: Common) -> Result<Part<Self::Source>, FlagError>;

    /// What a command line asks for, once the flags that all have are read.
    fn part(&self, parsed: &Parsed) -> Result<Part<Self::Source>, FlagError> {
        self.plan(parsed, self.common().common(parsed)?)
    }
}

/// A controller that is to run in a process.
pub(super) struct Part<S: Source> {
    pub(super) name: &'static str,
    pub(super) common: Common,
    pub(super) source: S::Options,
    pub(super) lease: Lease<S::Found>,
    pub(super) controller: MakeController<S::Found>,
}

/// Names the Lease of whom a controller works for.
pub(super) type Lease<For> = Box<dyn Fn(&For) -> String + Send + Sync>;

impl Part<DriverSource> {
    /// A controller whose Lease has a name made of the driver's.
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
            lease: Box::new(move |driver: &Connected| lease(&driver.name)),
            controller: Box::new(move |registry, queues| {
                Arc::new(Timed { timeout, controller: controller(registry, queues) })
            }),
        }
    }
}

impl Part<WholeCluster> {
    /// The same in a process that has a driver.
    pub(super) fn beside_driver(self, source: DriverOptions) -> Part<DriverSource> {
        let Self { name, common, lease, controller, .. } = self;
        Part {
            name,
            common,
            source,
            lease: Box::new(move |_| lease(&())),
            controller: Box::new(move |registry, queues| {
                Arc::new(BesideDriver(controller(registry, queues)))
            }),
        }
    }
}

/// Runs a sidecar alone.
pub(super) fn main<P: Personality>(name: &str, args: Vec<String>) -> ExitCode {
    let mut set = FlagSet::new(name, P::ABOUT).dialect(P::DIALECT);
    let flags = P::register(&mut set);
    match set.parse(args) {
        Ok(parsed) => {
            let plan = || Ok(Plan { parts: vec![flags.part(&parsed)?], node: Vec::new() });
            start(name, flags.common(), &parsed, plan)
        }
        Err(error) => usage(&error),
    }
}

/// What is to run in a process.
pub(super) struct Plan<S: Source> {
    pub(super) parts: Vec<Part<S>>,
    pub(super) node: Vec<NodePart>,
}

/// Runs what `plan` makes of a command line, whose flags of the process are these.
pub(super) fn start<S: Source>(
    name: &str,
    common: &CommonFlags,
    parsed: &Parsed,
    plan: impl FnOnce() -> Result<Plan<S>, FlagError>,
) -> ExitCode {
    let (version, logging) = (&common.version, &common.logging);
    start_logged(name, version, logging, parsed, plan, |plan, stop| serve(plan, stop))
}

/// Runs parts that need no API in one process, whose flags these are.
pub(super) fn start_node(
    name: &str,
    process: &ProcessFlags,
    parsed: &Parsed,
    plan: impl FnOnce() -> Result<Vec<NodePart>, FlagError>,
) -> ExitCode {
    let (version, logging) = (&process.version, &process.logging);
    let http = parsed.get(&process.http_endpoint).clone();
    start_logged(name, version, logging, parsed, plan, |parts, stop| serve_node(parts, http, stop))
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

/// Runs parts that need no API until the process is told to stop.
async fn serve_node(
    parts: Vec<NodePart>,
    http: String,
    stop: CancellationToken,
) -> anyhow::Result<ExitCode> {
    let mut registry = Registry::default();
    process_metrics(&mut registry);
    let calls = RpcMetrics::register(&mut registry);
    let names: Vec<_> = parts.iter().map(NodePart::name).collect();
    let eyes: Eyes<()> = Eyes::register(&mut registry, &names);
    eyes.begin(&(), None);
    let mut serving = JoinSet::new();
    if !http.is_empty() {
        let (flag, metrics_path) = ("http-endpoint", "/metrics".to_owned());
        let http = Http { address: http, flag, metrics_path, health: false };
        let admin = endpoint(&http, registry, Vec::new(), eyes.clone(), &parts).await?;
        serving.spawn(admin.serve(stop.clone()));
    }
    for part in parts {
        serving.spawn(part.run(calls.clone(), eyes.clone(), stop.clone()));
    }
    serving.join_all().await;
    Ok(ExitCode::SUCCESS)
}

/// Runs controllers in one process until it is told to stop. What they share is said by the first.
async fn serve<S: Source>(plan: Plan<S>, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let Plan { parts, node } = plan;
    let Some(first) = parts.first() else { return Ok(ExitCode::SUCCESS) };
    let mut registry = Registry::default();
    process_metrics(&mut registry);
    let elections = ElectionMetrics::register(&mut registry);
    let queues = WorkqueueMetrics::register(&mut registry);
    let calls = RpcMetrics::register(&mut registry);
    let names = parts.iter().map(|part| part.name).chain(node.iter().map(NodePart::name));
    let eyes = Eyes::register(&mut registry, &names.collect::<Vec<_>>());
    let source = S::new(first.source.clone(), calls.clone());
    let http = first.common.http.clone();
    let said = parts.iter().map(|part| part.common.access.clone());
    // Not every controller has every flag about it.
    let access = said.reduce(Access::or).unwrap_or_default();
    let mut made = Vec::new();
    for Part { name, common, lease, controller, .. } in parts {
        made.push((name, common, lease, controller(&mut registry, &queues)));
    }

    let client = access.client_of(&eyes.permissions, None).await?;
    // One more for all elections: renewals must not wait behind work.
    let voter = access.client_of(&eyes.permissions, None).await?;
    let (mut posts, mut healths) = (Vec::new(), Vec::new());
    // A limit that several controllers have is the limit of all of them together.
    let mut limited: Vec<(Throttle, Client)> = Vec::new();
    for (name, common, lease, controller) in made {
        let client = match common.throttle {
            Some(limit) => match limited.iter().find(|(shared, _)| *shared == limit) {
                Some((_, client)) => client.clone(),
                None => {
                    let client = access.client_of(&eyes.permissions, Some(limit)).await?;
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
        posts.push(Post { name, client, controller, eyes: eyes.clone(), candidacy });
    }
    let mut serving = JoinSet::new();
    serving.spawn(give_back_at_rest(stop.clone()));
    if let Some(http) = &http {
        let admin = endpoint(http, registry, healths, eyes.clone(), &node).await?;
        serving.spawn(admin.serve(stop.clone()));
    }
    for part in node {
        let span = info_span!("controller", controller = part.name());
        serving.spawn(part.run(calls.clone(), eyes.clone(), stop.clone()).instrument(span));
    }
    let Some(found) = stop.run_until_cancelled(source.connect()).await else {
        return Ok(ExitCode::SUCCESS);
    };
    let mut found = found?;
    let shift = Shift::new(client, source, posts, eyes);
    let outcome = loop {
        match shift.work(&found, &stop).await {
            Ok(End::Stopped) => break Ok(ExitCode::SUCCESS),
            Ok(End::Changed(changed)) => found = changed,
            Err(error) => break Err(error),
        }
    };
    stop.cancel();
    serving.join_all().await;
    outcome
}

async fn endpoint<For: Served>(
    http: &Http,
    registry: Registry,
    elections: Vec<ElectionHealth>,
    eyes: Eyes<For>,
    node: &[NodePart],
) -> anyhow::Result<BoundAdmin> {
    let mut admin = Admin::new().flag(http.flag).metrics(&http.metrics_path, Arc::new(registry));
    admin = admin.check("/readyz", move || {
        let problems = eyes.problems();
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
    admin = node.iter().fold(admin, |admin, part| part.show(admin));
    let bound = admin.bind(&http.address).await?;
    info!(address = %bound.local_addr(), path = %http.metrics_path, "serving metrics");
    Ok(bound)
}
