//! The interface between a controller and the process that runs it: when it runs, and which driver
//! or cluster it serves.

use std::{pin::Pin, sync::Arc, time::Duration};

use async_trait::async_trait;
use kube::Client;
use prometheus_client::registry::Registry;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;
use wharf_cluster::Permissions;
use wharf_csi::Calls;
use wharf_reconcile::WorkqueueMetrics;
use wharf_sidecars::{Caches, not_served::Gap};
use wharf_uds::RpcMetrics;

use super::driver::ConnectedDriver;

/// A sidecar's controller, without its election. `T` is what it serves, found by a
/// [`TargetSource`].
#[async_trait]
pub(super) trait Controller<T = ConnectedDriver>: Send + Sync {
    /// Runs until `stop`. Called again when the driver has changed, after a panic, and with each
    /// term as leader.
    async fn run(&self, cluster: Cluster, driver: T, stop: CancellationToken)
    -> anyhow::Result<()>;

    /// Work while another replica leads, until the token is cancelled; `None` if there is none. The
    /// driver need not be connected.
    fn stand_by(&self, _: Cluster, _: T, _: CancellationToken) -> Option<StandbyWork> {
        None
    }

    /// The objects that its caches must hold.
    fn scope(&self) -> Scope {
        Scope::Driver
    }

    /// Whether the controller is useless while its driver is disconnected.
    fn needs_driver(&self) -> bool {
        true
    }

    /// Features that the controller lacks and that objects may ask for.
    fn gaps(&self) -> Vec<Gap> {
        Vec::new()
    }
}

/// Work of a replica that does not lead.
pub(super) type StandbyWork = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A controller's access to the cluster. The process owns the caches, and keeps them filled while
/// the controller runs.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) caches: Caches,
    /// Where other clients record rights that the account lacks.
    pub(super) permissions: Permissions,
    /// The moment until which the Lease allows writes, for clients other than `client`; `None`
    /// without an election.
    pub(super) writes_until: Option<watch::Receiver<Instant>>,
}

/// Objects that a controller's caches must hold. They may hold more: the controller decides which
/// objects are its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Scope {
    /// Those of its driver.
    Driver,
    /// Those of its driver, and snapshots only of this node.
    Node(String),
    /// Those of all drivers.
    Cluster,
}

impl Scope {
    /// Empty caches for the objects of all `scopes`.
    pub(super) fn caches(scopes: &[Self], driver: Option<&str>) -> Caches {
        let Some(driver) = driver.filter(|_| !scopes.contains(&Self::Cluster)) else {
            return Caches::of_all_drivers();
        };
        let caches = Caches::of(driver);
        let node = scopes.iter().find_map(|scope| match scope {
            Self::Node(node) => Some(node),
            Self::Driver | Self::Cluster => None,
        });
        match node {
            // Among the controllers of one driver only the snapshotter reads snapshots.
            Some(node) => caches.on_node(node),
            None => caches,
        }
    }
}

/// Makes a controller, and registers its metrics. Those of queues are registered already.
pub(super) type MakeController<T = ConnectedDriver> =
    Box<dyn FnOnce(&mut Registry, &WorkqueueMetrics) -> Arc<dyn Controller<T>>>;

/// Finds what controllers serve: the CSI driver at a socket, or the whole cluster.
pub(super) trait TargetSource: Sized {
    /// How to find the target.
    type Options: Clone;

    /// The driver, or `()` for the cluster.
    type Target: Target;

    /// `calls` counts calls to the target.
    fn new(options: Self::Options, calls: RpcMetrics) -> Self;

    /// Waits until the target is connected and ready.
    async fn connect(&self) -> anyhow::Result<Self::Target>;

    /// Waits until the target is no longer the same as `known`, and returns the new one.
    async fn changed(&self, known: &Self::Target) -> Self::Target;

    /// The driver's name; `None` for the cluster.
    fn driver(target: &Self::Target) -> Option<&str>;
}

/// What controllers serve: a CSI driver, or the whole cluster.
pub(super) trait Target: Clone + Send + Sync + 'static {
    /// Waits until the target accepts calls.
    fn present(&self) -> impl Future<Output = ()> + Send;

    /// Waits until the target has accepted no calls for `time`.
    fn absent_for(&self, time: Duration) -> impl Future<Output = ()> + Send;

    /// Waits until the connection is closed, so that the target works on no call. Later calls wait
    /// for the next connection.
    fn disconnected(&self) -> impl Future<Output = ()> + Send;

    /// The same target with calls that outlive their callers and are sent only when `calls` allows.
    fn with_calls(&self, calls: Calls) -> Self;

    /// The driver's name; `None` for the cluster.
    fn driver_name(&self) -> Option<&str>;

    /// Why the target accepts no calls now, for people; `None` if it does.
    fn absence(&self) -> Option<String>;
}

/// The whole cluster: always connected.
impl Target for () {
    async fn present(&self) {}

    async fn absent_for(&self, _: Duration) {
        std::future::pending::<()>().await;
    }

    async fn disconnected(&self) {
        std::future::pending::<()>().await;
    }

    fn with_calls(&self, _: Calls) -> Self {}

    fn driver_name(&self) -> Option<&str> {
        None
    }

    fn absence(&self) -> Option<String> {
        None
    }
}

/// Source for cluster-wide controllers: always connected, never changes.
pub(super) struct ClusterSource;

impl TargetSource for ClusterSource {
    type Options = ();
    type Target = ();

    fn new((): (), _: RpcMetrics) -> Self {
        Self
    }

    async fn connect(&self) -> anyhow::Result<()> {
        Ok(())
    }

    async fn changed(&self, (): &()) {
        std::future::pending::<()>().await;
    }

    fn driver((): &()) -> Option<&str> {
        None
    }
}

/// Adapts a cluster-wide controller to a process that serves a driver.
pub(super) struct ClusterController(pub(super) Arc<dyn Controller<()>>);

#[async_trait]
impl Controller for ClusterController {
    async fn run(
        &self,
        cluster: Cluster,
        _: ConnectedDriver,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        self.0.run(cluster, (), stop).await
    }

    fn scope(&self) -> Scope {
        self.0.scope()
    }

    fn needs_driver(&self) -> bool {
        false
    }

    fn gaps(&self) -> Vec<Gap> {
        self.0.gaps()
    }
}

/// A controller with its own timeout for calls to the driver.
pub(super) struct Timed {
    pub(super) timeout: Duration,
    pub(super) controller: Arc<dyn Controller>,
}

#[async_trait]
impl Controller for Timed {
    async fn run(
        &self,
        cluster: Cluster,
        mut driver: ConnectedDriver,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        driver.driver = driver.driver.with_timeout(self.timeout);
        self.controller.run(cluster, driver, stop).await
    }

    fn stand_by(
        &self,
        cluster: Cluster,
        driver: ConnectedDriver,
        stop: CancellationToken,
    ) -> Option<StandbyWork> {
        self.controller.stand_by(cluster, driver, stop)
    }

    fn scope(&self) -> Scope {
        self.controller.scope()
    }

    fn gaps(&self) -> Vec<Gap> {
        self.controller.gaps()
    }
}
