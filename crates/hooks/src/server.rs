//! A hook server and its builder.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
    time::Duration,
};

use tokio::sync::watch;

use crate::{
    HookMetrics, HookPoint,
    hook::{
        PostStartContainer, PostStopContainer, PostStopPodSandbox, PreCreateContainer,
        PreRunPodSandbox, PreStartContainer, PreUpdateContainerResources,
    },
    service::Hooks,
};
use wharf_facts::hook::FailurePolicy;

const DRAIN: Duration = Duration::from_secs(5);

/// A hook server, to be [run](HookServer::run) or [served](HookServer::serve). Clones share its
/// state.
#[derive(Clone)]
pub struct HookServer {
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) settings: Arc<ServerSettings>,
    /// The offered points at which the proxy calls the server.
    pub(crate) wanted: Arc<watch::Sender<BTreeSet<HookPoint>>>,
}

/// Settings of a server.
#[derive(Debug)]
pub(crate) struct ServerSettings {
    pub(crate) name: String,
    pub(crate) failure_policy: FailurePolicy,
    pub(crate) failure_policies: BTreeMap<HookPoint, FailurePolicy>,
    pub(crate) order: Option<i32>,
    pub(crate) timeout: Option<Duration>,
    pub(crate) details: bool,
    pub(crate) stays_registered: bool,
    pub(crate) drain: Duration,
}

impl HookServer {
    /// Starts to build a server. `name` is the name of its file in the proxy's folder:
    /// `<name>.json`.
    pub fn builder(name: impl Into<String>) -> HookServerBuilder {
        let settings = ServerSettings {
            name: name.into(),
            failure_policy: FailurePolicy::default(),
            failure_policies: BTreeMap::new(),
            order: None,
            timeout: None,
            details: false,
            stays_registered: false,
            drain: DRAIN,
        };
        HookServerBuilder { hooks: Hooks::default(), settings }
    }

    /// The points with a hook.
    #[must_use]
    pub fn offered(&self) -> BTreeSet<HookPoint> {
        self.hooks.offered()
    }

    /// Restricts the proxy to these points, of those offered; at once if the server runs. For
    /// servers that learn their points at run time.
    pub fn narrow(&self, points: &BTreeSet<HookPoint>) {
        let wanted = self.offered().intersection(points).copied().collect();
        self.wanted.send_if_modified(|current| {
            let changed = *current != wanted;
            *current = wanted;
            changed
        });
    }
}

impl fmt::Debug for HookServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HookServer").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// Builds a [`HookServer`]. The server is called only at the points for which it gets a hook.
///
/// One value may serve several points:
/// `.pre_create_container(server.clone()).post_stop_container(server)`.
#[must_use = "nothing happens until it is built"]
pub struct HookServerBuilder {
    hooks: Hooks,
    settings: ServerSettings,
}

macro_rules! hooks {
    ($($(#[$doc:meta])+ $hook:ident: $trait:ident,)+) => {$(
        $(#[$doc])+
        pub fn $hook(mut self, $hook: Arc<dyn $trait>) -> Self {
            self.hooks.$hook = Some($hook);
            self
        }
    )+};
}

impl HookServerBuilder {
    hooks! {
        /// Calls the hook before a pod's sandbox is made.
        pre_run_pod_sandbox: PreRunPodSandbox,
        /// Calls the hook after a pod's sandbox was stopped.
        post_stop_pod_sandbox: PostStopPodSandbox,
        /// Calls the hook before a container is made.
        pre_create_container: PreCreateContainer,
        /// Calls the hook before a container is started.
        pre_start_container: PreStartContainer,
        /// Calls the hook after a container was started.
        post_start_container: PostStartContainer,
        /// Calls the hook before a container's resources are changed.
        pre_update_container_resources: PreUpdateContainerResources,
        /// Calls the hook after a container was stopped or has ended.
        post_stop_container: PostStopContainer,
    }

    /// Sets the effect of a failure of this server before a call, `Ignore` by default.
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.settings.failure_policy = policy;
        self
    }

    /// The failure policy for one point; the only way to set that of points after a call.
    /// Koordinator's proxy ignores this.
    pub fn failure_policy_at(mut self, point: HookPoint, policy: FailurePolicy) -> Self {
        self.settings.failure_policies.insert(point, policy);
        self
    }

    /// The order among servers: lower ones are called first, equal ones by name. Koordinator's
    /// proxy ignores this: it calls one server only.
    pub fn order(mut self, order: i32) -> Self {
        self.settings.order = Some(order);
        self
    }

    /// How long the proxy waits for this server, within its own limit for all servers.
    /// Koordinator's proxy ignores this.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.settings.timeout = Some(timeout);
        self
    }

    /// Asks the proxy for a container's image, arguments, labels and mounts before it is made, as
    /// [`Container::details`](crate::Container::details). Koordinator's proxy ignores this.
    pub fn details(mut self, wanted: bool) -> Self {
        self.settings.details = wanted;
        self
    }

    /// Keeps the file when the server stops. With the policy `Fail` no call passes until the server
    /// runs again: for rules that must hold at any time.
    pub fn stays_registered(mut self, stays: bool) -> Self {
        self.settings.stays_registered = stays;
        self
    }

    /// How long hooks may take to finish when the server stops, 5 s by default.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.settings.drain = drain;
        self
    }

    /// Metrics of the server's hooks.
    pub fn metrics(mut self, metrics: HookMetrics) -> Self {
        self.hooks.metrics = Some(metrics);
        self
    }

    /// Checks the settings and builds the server.
    pub fn build(self) -> Result<HookServer, BuildError> {
        let Self { hooks, settings } = self;
        let offered = hooks.offered();
        if offered.is_empty() {
            return Err(BuildError::Empty);
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if settings.name.is_empty()
            || settings.name.starts_with('.')
            || !settings.name.bytes().all(plain)
        {
            return Err(BuildError::Name(settings.name));
        }
        if let Some(point) = settings.failure_policies.keys().find(|point| !offered.contains(point))
        {
            return Err(BuildError::NotOffered(point.name()));
        }
        if settings.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(BuildError::NoTime);
        }
        let wanted = Arc::new(watch::Sender::new(offered));
        Ok(HookServer { hooks: Arc::new(hooks), settings: Arc::new(settings), wanted })
    }
}

/// Why a server cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The name cannot be a file name.
    #[error(
        "the server's name {0:?} names its file: expected letters, digits, - _ and ., and no . at the start"
    )]
    Name(String),
    /// The server has no hook.
    #[error("the hook server has no hook: pass at least one to the builder")]
    Empty,
    /// A point has a failure policy but no hook.
    #[error("{0} has a failure policy but no hook: pass a hook, or leave the policy out")]
    NotOffered(&'static str),
    /// The timeout is zero.
    #[error("the server's timeout is 0: expected a longer time, or none for the proxy's own limit")]
    NoTime,
}
