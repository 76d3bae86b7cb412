//! A server, and how it is built.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;

use crate::hook::{
    PostStartContainer, PostStopContainer, PostStopPodSandbox, PreCreateContainer,
    PreRunPodSandbox, PreStartContainer, PreUpdateContainerResources,
};
use crate::service::Hooks;
use crate::{HookMetrics, HookPoint};
use wharf_facts::hook::FailurePolicy;

const DRAIN: Duration = Duration::from_secs(5);

/// A hook server, ready to be [run](HookServer::run) or [served](HookServer::serve). Clones are the same server.
#[derive(Clone)]
pub struct HookServer {
    pub(crate) hooks: Arc<Hooks>,
    pub(crate) terms: Arc<Terms>,
    /// What the proxy is to ask for, of what is offered.
    pub(crate) wanted: Arc<watch::Sender<BTreeSet<HookPoint>>>,
}

/// How a server presents itself to the proxy, and how it leaves.
#[derive(Debug)]
pub(crate) struct Terms {
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
    /// Starts to build a server. The name is that of its file in the proxy's folder: `<name>.json`.
    pub fn builder(name: impl Into<String>) -> HookServerBuilder {
        let terms = Terms {
            name: name.into(),
            failure_policy: FailurePolicy::default(),
            failure_policies: BTreeMap::new(),
            order: None,
            timeout: None,
            details: false,
            stays_registered: false,
            drain: DRAIN,
        };
        HookServerBuilder { hooks: Hooks::default(), terms }
    }

    /// The points that hooks were handed in for.
    #[must_use]
    pub fn offered(&self) -> BTreeSet<HookPoint> {
        self.hooks.offered()
    }

    /// Has the proxy ask at these points only, of those that are offered; at once, if the server runs. For servers that
    /// learn while they run what they are needed for.
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
        f.debug_struct("HookServer").field("terms", &self.terms).finish_non_exhaustive()
    }
}

/// A server to be: hand in the hooks that it has. At other points it is not asked.
///
/// One type may implement several: `.pre_create_container(server.clone()).post_stop_container(server)`.
#[must_use = "nothing happens until it is built"]
pub struct HookServerBuilder {
    hooks: Hooks,
    terms: Terms,
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
        /// Asked before a pod's sandbox is made.
        pre_run_pod_sandbox: PreRunPodSandbox,
        /// Told after a pod's sandbox was stopped.
        post_stop_pod_sandbox: PostStopPodSandbox,
        /// Asked before a container is made.
        pre_create_container: PreCreateContainer,
        /// Asked before a container is started.
        pre_start_container: PreStartContainer,
        /// Told after a container was started.
        post_start_container: PostStartContainer,
        /// Asked before a container's resources are changed.
        pre_update_container_resources: PreUpdateContainerResources,
        /// Told after a container was stopped or ended.
        post_stop_container: PostStopContainer,
    }

    /// Sets what the proxy does when this server refuses or cannot be asked before a call; it ignores that unless set.
    pub fn failure_policy(mut self, policy: FailurePolicy) -> Self {
        self.terms.failure_policy = policy;
        self
    }

    /// The same for one point, and the only way for points after a call. Koordinator's proxy does not know of this.
    pub fn failure_policy_at(mut self, point: HookPoint, policy: FailurePolicy) -> Self {
        self.terms.failure_policies.insert(point, policy);
        self
    }

    /// The place among other servers: lower ones are asked first, and equal ones by name. Koordinator's proxy does not
    /// know of this: it asks one server only.
    pub fn order(mut self, order: i32) -> Self {
        self.terms.order = Some(order);
        self
    }

    /// How long the proxy waits for this server, within its own limit for all. Koordinator's proxy does not know of this.
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.terms.timeout = Some(timeout);
        self
    }

    /// Has the proxy tell the image, arguments, labels and mounts of a container before it is made, as
    /// [`Container::details`](crate::Container::details). Koordinator's proxy does not know of this.
    pub fn details(mut self, wanted: bool) -> Self {
        self.terms.details = wanted;
        self
    }

    /// The file stays when the server stops. With a policy to fail nothing runs then until the server is back: for rules
    /// that must hold at any time.
    pub fn stays_registered(mut self, stays: bool) -> Self {
        self.terms.stays_registered = stays;
        self
    }

    /// How long hooks may take to finish when the server stops; 5 s unless said.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.terms.drain = drain;
        self
    }

    /// Every hook is counted there.
    pub fn metrics(mut self, metrics: HookMetrics) -> Self {
        self.hooks.metrics = Some(metrics);
        self
    }

    /// Checks what was handed in, and puts it together.
    pub fn build(self) -> Result<HookServer, BuildError> {
        let HookServerBuilder { hooks, terms } = self;
        let offered = hooks.offered();
        if offered.is_empty() {
            return Err(BuildError::Empty);
        }
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        if terms.name.is_empty() || terms.name.starts_with('.') || !terms.name.bytes().all(plain) {
            return Err(BuildError::Name(terms.name));
        }
        if let Some(point) = terms.failure_policies.keys().find(|point| !offered.contains(point)) {
            return Err(BuildError::NotOffered(point.name()));
        }
        if terms.timeout.is_some_and(|timeout| timeout.is_zero()) {
            return Err(BuildError::NoTime);
        }
        let wanted = Arc::new(watch::Sender::new(offered));
        Ok(HookServer { hooks: Arc::new(hooks), terms: Arc::new(terms), wanted })
    }
}

/// Why a server cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The name is not one for a file.
    #[error(
        "the server's name {0:?} names its file: expected letters, digits, - _ and ., and no . at the start"
    )]
    Name(String),
    /// Nothing was handed in.
    #[error("a hook server needs a hook: hand in at least one")]
    Empty,
    /// There is a policy for a point, and no hook.
    #[error("there is a failure policy for {0} and no hook: hand one in, or leave the policy out")]
    NotOffered(&'static str),
    /// No time at all.
    #[error("the server's timeout is 0: expected more, or none for the proxy's own")]
    NoTime,
}
