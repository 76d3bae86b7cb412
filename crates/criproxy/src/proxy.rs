use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use prometheus_client::registry::Registry;
use tokio::{
    sync::{mpsc, watch},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use tonic::Code;
use wharf_cri::{Client, ClientOptions};
use wharf_uds::{Clients, LinkState, Listener, RawCall, Relay, RelayOptions, ServeError};

use crate::{
    busy_poll::BusyPoll,
    chain::{Chain, ChainOptions, Conflict},
    config::{Config, ConfigError, ConfigOptions},
    control::{Control, SuccessionRequest},
    events::FollowedEvents,
    handover::{Calls, HandOver, PredecessorCalls},
    hook_metrics::HookMetrics,
    intercept::{self, Interceptor, Method, Skip},
    metrics::{CallMetrics, GivenUp, RuntimeConnected},
    rebuild,
    record::{RecordCounts, Records},
    subject::Reading,
};

/// The pause before the runtime is asked again what it runs, after it could not tell.
const ASK_AGAIN: Duration = Duration::from_secs(1);

/// What a proxy is to do.
#[derive(Clone, Debug)]
pub struct ProxyOptions {
    /// The runtime's socket, which need not be there yet.
    pub runtime: PathBuf,
    /// The folder with a file for each hook server.
    pub hooks: PathBuf,
    /// The folder that keeps the last good version of each file over restarts. Without one a file
    /// that is bad at the start has no last good version.
    pub state_dir: Option<PathBuf>,
    /// Hook servers that must have a file, by the file's name without `.json`.
    pub required: BTreeSet<String>,
    /// The most time that all hook servers of a call may take together.
    pub budget: Duration,
    /// What is done about servers that change the same field.
    pub conflict: Conflict,
    /// How answers of hook servers are read.
    pub reading: Reading,
    /// Which pods are passed on without hooks; none are without it.
    pub skip: Option<Skip>,
    /// How long the thread stays awake for the next step of a call: not at all unless set. It
    /// sleeps at once with a single processor, which the other side of the call needs.
    pub busy_poll: Duration,
    /// Called when calls have ceased for a second: a time to give memory back.
    pub at_rest: fn(),
    /// Whether another process writes the state folder, until this one has
    /// [taken over](crate::Predecessor::take) from it.
    pub state_is_kept_elsewhere: bool,
}

impl ProxyOptions {
    /// Those that most will want.
    pub fn new(runtime: impl Into<PathBuf>, hooks: impl Into<PathBuf>) -> Self {
        let ChainOptions { budget, conflict, reading } = ChainOptions::default();
        Self {
            runtime: runtime.into(),
            hooks: hooks.into(),
            state_dir: None,
            required: BTreeSet::new(),
            budget,
            conflict,
            reading,
            skip: Some(Skip::default()),
            busy_poll: Duration::ZERO,
            at_rest: || {},
            state_is_kept_elsewhere: false,
        }
    }
}

/// Carries the calls of a listener to a runtime, and asks hook servers about some of them.
#[derive(Debug)]
pub struct Proxy {
    metrics: CallMetrics,
    clients: Clients,
    hook_metrics: HookMetrics,
    pub(crate) config: Config,
    pub(crate) interceptor: Arc<Interceptor>,
}

impl Proxy {
    /// A proxy that is ready to serve.
    ///
    /// # Errors
    /// When the folder of hook servers cannot be followed: calls would pass without hooks.
    pub async fn start(options: ProxyOptions) -> Result<Self, ConfigError> {
        let ProxyOptions { runtime, hooks, state_dir, required, skip, busy_poll, at_rest, .. } =
            options;
        let ProxyOptions { budget, conflict, reading, state_is_kept_elsewhere, .. } = options;
        let hook_metrics = HookMetrics::default();
        let files = ConfigOptions { folder: hooks, state_dir, required, state_is_kept_elsewhere };
        let config = Config::start(files, hook_metrics.clone()).await?;
        let chain_options = ChainOptions { budget, conflict, reading };
        let chain = Chain::new(config.servers(), chain_options, hook_metrics.clone());
        let records = Records::default();
        let interceptor = Interceptor {
            recovery: Client::new(&runtime, ClientOptions::default()),
            runtime: Relay::new(runtime, RelayOptions::default()),
            chain,
            calls: Calls::new(records.clone()),
            predecessor: PredecessorCalls::default(),
            records,
            skip,
            locks: Default::default(),
            taps: Default::default(),
            overlooked: Default::default(),
            room: intercept::room(),
            events: watch::Sender::default(),
            busy_poll: BusyPoll::new(if is_alone() { Duration::ZERO } else { busy_poll }, at_rest),
        };
        let (metrics, clients) = (CallMetrics::default(), Clients::default());
        Ok(Self { metrics, clients, hook_metrics, config, interceptor: Arc::new(interceptor) })
    }

    /// Exports what is counted.
    pub fn register_metrics(&self, registry: &mut Registry) {
        self.metrics.register(registry);
        self.hook_metrics.register(registry);
        registry.register_collector(Box::new(RuntimeConnected(self.link())));
        registry.register_collector(Box::new(GivenUp(self.clients.clone())));
        registry.register_collector(Box::new(RecordCounts(self.interceptor.records.clone())));
        registry.register_collector(Box::new(self.interceptor.chain.states()));
    }

    /// The state of the connection to the runtime, now and as it changes.
    pub fn link(&self) -> watch::Receiver<LinkState> {
        self.interceptor.runtime.link()
    }

    /// Answers questions about the proxy, also while it serves. Wishes for a successor are left to
    /// others.
    pub fn control(&self, succession: mpsc::Sender<SuccessionRequest>) -> Control {
        let (config, interceptor) = (self.config.handle(), self.interceptor.clone());
        Control { config, interceptor, succession }
    }

    /// Hands calls over to a successor, while the proxy serves.
    pub fn hand_over(&self) -> HandOver {
        HandOver { config: self.config.handle(), interceptor: self.interceptor.clone() }
    }

    /// Carries calls until `stop`. Those in flight then get `drain` to finish.
    ///
    /// # Errors
    /// When the listener is broken.
    pub async fn serve(
        self,
        mut listener: Listener,
        drain: Duration,
        stop: CancellationToken,
    ) -> Result<(), ServeError> {
        let Proxy { metrics, clients, config, interceptor, .. } = self;
        listener.count_clients(clients);
        let mut beside = JoinSet::new();
        let runtime = interceptor.runtime.path().to_owned();
        beside.spawn(notify(runtime, interceptor.runtime.link()));
        beside.spawn(remember(interceptor.clone()));
        beside.spawn(interceptor.busy_poll.clone().keep());
        let events = FollowedEvents::start(interceptor.clone());
        let stopping = stop.clone();
        let handler =
            move |call| handle(metrics.clone(), interceptor.clone(), call, stopping.clone());
        let served = listener.serve_raw(handler, drain, stop).await;
        events.stop().await;
        beside.shutdown().await;
        config.stop().await;
        served
    }
}

/// Whether one processor is all that this process may use.
fn is_alone() -> bool {
    std::thread::available_parallelism().is_ok_and(|processors| processors.get() == 1)
}

/// Decides what is done with a call, by its method.
async fn handle(
    metrics: CallMetrics,
    interceptor: Arc<Interceptor>,
    call: RawCall,
    stopping: CancellationToken,
) {
    let counted = metrics.start(call.method());
    let mut tapped = interceptor.taps.begin(call.method());
    interceptor.busy_poll.extend();
    let carried = match Method::of(call.method()) {
        // Boxed to keep the common task small: a task is copied when it is started.
        Some(method) => {
            Box::pin(interceptor.handle(call, method, tapped.as_deref_mut())).await.into()
        }
        None if is_endless(call.method()) => stopping
            .run_until_cancelled(Box::pin(interceptor.runtime.carry(call)))
            .await
            .unwrap_or(Code::Cancelled.into()),
        None => interceptor.runtime.carry(call).await,
    };
    interceptor.busy_poll.extend();
    counted.finish(carried.code);
    if let Some(tapped) = tapped {
        tapped.finish(carried);
    }
}

/// Whether a call has no end by itself, and would take all of a drain.
fn is_endless(method: &str) -> bool {
    method.ends_with("/GetContainerEvents")
}

/// Learns from the runtime what it runs, each time that it is reached.
async fn remember(interceptor: Arc<Interceptor>) {
    let mut link = interceptor.runtime.link();
    let is_up = |state: &LinkState| matches!(state, LinkState::Connected { .. });
    let mut known = None;
    while link.wait_for(is_up).await.is_ok() {
        link.mark_unchanged();
        if interceptor.calls.have_passed() {
            // Nobody asks for these records any more.
            return;
        }
        match rebuild::all(&interceptor.recovery, &interceptor.records).await {
            Ok(rebuilt) => {
                known = None;
                tracing::info!(
                    pods = rebuilt.pods,
                    containers = rebuilt.containers,
                    incomplete = rebuilt.bare,
                    "records are as the runtime tells"
                );
                interceptor.tell_vanished().await;
                if look_after(&interceptor, &mut link).await.is_err() {
                    return;
                }
            }
            Err(error) => {
                let (code, text) = (error.code(), error.message());
                if known.replace(code) != Some(code) {
                    tracing::warn!(
                        ?code,
                        error = text,
                        "the runtime does not tell what it runs: asked again every second"
                    );
                }
                tokio::time::sleep(ASK_AGAIN).await;
            }
        }
    }
}

/// Learns of what was overlooked, until the connection to the runtime changes.
async fn look_after(
    interceptor: &Interceptor,
    link: &mut watch::Receiver<LinkState>,
) -> Result<(), watch::error::RecvError> {
    let Interceptor { recovery, records, overlooked, .. } = interceptor;
    loop {
        for id in overlooked.take() {
            // What the runtime cannot tell now is asked for when a call needs it.
            if let Err(error) = rebuild::container(recovery, records, &id).await {
                tracing::debug!(id, code = ?error.code(), "runtime does not report the container yet");
            }
        }
        tokio::select! {
            changed = link.changed() => return changed,
            () = overlooked.noted() => {}
        }
    }
}

/// Logs when the runtime is reached and when it is lost, and no attempt in between.
async fn notify(runtime: impl AsRef<Path>, mut link: watch::Receiver<LinkState>) {
    let path = runtime.as_ref().display();
    let mut known = None;
    loop {
        let (reached, error) = match &*link.borrow_and_update() {
            LinkState::Connected { .. } => (Some(true), None),
            LinkState::Down { error } => (Some(false), Some(error.clone())),
            LinkState::Idle | LinkState::Connecting => (known, None),
        };
        if known != reached {
            match error {
                None => tracing::info!(runtime = %path, "connected to the runtime"),
                Some(error) => tracing::warn!(
                    runtime = %path,
                    error,
                    "no connection to the runtime: calls are answered UNAVAILABLE until it is back"
                ),
            }
            known = reached;
        }
        if link.changed().await.is_err() {
            return;
        }
    }
}
