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

use super::driver::Connected;

/// The work of a sidecar, apart from whether it is its turn. It is done for a driver, or for whom its [`Source`] finds.
#[async_trait]
pub(super) trait Controller<For = Connected>: Send + Sync {
    /// Works until told to stop. It is begun again when the driver has changed, after a panic, and with each term as leader.
    async fn run(
        &self,
        cluster: Cluster,
        driver: For,
        stop: CancellationToken,
    ) -> anyhow::Result<()>;

    /// Its work while another replica leads, which ends when it is told to stop; `None` if there is none. The driver need
    /// not be there.
    fn stand_by(&self, _: Cluster, _: For, _: CancellationToken) -> Option<StandbyWork> {
        None
    }

    /// Which objects it has to see.
    fn scope(&self) -> Scope {
        Scope::Driver
    }

    /// Whether it can do nothing without its driver.
    fn needs_driver(&self) -> bool {
        true
    }

    /// Features that it does not have, although objects may ask for them.
    fn gaps(&self) -> Vec<Gap> {
        Vec::new()
    }
}

/// Work of a replica that does not lead.
pub(super) type StandbyWork = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The cluster as a controller sees it. The caches are those of the process, and filled for as long as it works.
#[derive(Clone)]
pub(super) struct Cluster {
    pub(super) client: Client,
    pub(super) caches: Caches,
    /// Where other clients note rights that the account lacks.
    pub(super) permissions: Permissions,
    /// Until when another client may write, as `client` does, where there is an election.
    pub(super) writes_until: Option<watch::Receiver<Instant>>,
}

/// Objects that a controller has to see. It may see more, and decides itself which it works on.
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
    /// Empty caches with room for what all of these have to see.
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
            // Of those that serve one driver only its snapshotter looks at snapshots.
            Some(node) => caches.on_node(node),
            None => caches,
        }
    }
}

/// Makes a controller, whose metrics go to the registry; those of queues are there.
pub(super) type MakeController<For = Connected> =
    Box<dyn FnOnce(&mut Registry, &WorkqueueMetrics) -> Arc<dyn Controller<For>>>;

/// Where controllers find whom they work for.
pub(super) trait Source: Sized {
    /// What has to be known to look.
    type Options: Clone;

    /// Whom they work for.
    type Found: Served;

    /// Calls to it are counted in `calls`.
    fn new(options: Self::Options, calls: RpcMetrics) -> Self;

    /// Waits until it is there.
    async fn connect(&self) -> anyhow::Result<Self::Found>;

    /// Waits until it has become another.
    async fn changed(&self, known: &Self::Found) -> Self::Found;

    /// The name of the driver, if that is whom they work for.
    fn driver(found: &Self::Found) -> Option<&str>;
}

/// Whom controllers work for.
pub(super) trait Served: Clone + Send + Sync + 'static {
    /// Waits until it can be asked for something.
    fn present(&self) -> impl Future<Output = ()> + Send;

    /// Waits until it could not be asked for anything for so long.
    fn absent_for(&self, time: Duration) -> impl Future<Output = ()> + Send;

    /// Waits until it works on no call: its connection is gone, and calls wait for another one.
    fn disconnected(&self) -> impl Future<Output = ()> + Send;

    /// The same, whose calls go on when their callers are gone and are sent when `calls` allows it.
    fn with_calls(&self, calls: Calls) -> Self;

    /// The driver's name, if it is one.
    fn driver_name(&self) -> Option<&str>;

    /// Why it cannot be asked for anything now, for people; `None` if it can.
    fn absence(&self) -> Option<String>;
}

/// The cluster is always there, and nothing is asked of it but its API.
impl Served for () {
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

/// For a controller that works for no driver but for the cluster, which is there, and stays what it is.
pub(super) struct WholeCluster;

impl Source for WholeCluster {
    type Options = ();
    type Found = ();

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

/// A controller of the cluster in a process that has a driver.
pub(super) struct BesideDriver(pub(super) Arc<dyn Controller<()>>);

#[async_trait]
impl Controller for BesideDriver {
    async fn run(
        &self,
        cluster: Cluster,
        _: Connected,
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

/// A controller whose calls to the driver end after a time of its own.
pub(super) struct Timed {
    pub(super) timeout: Duration,
    pub(super) controller: Arc<dyn Controller>,
}

#[async_trait]
impl Controller for Timed {
    async fn run(
        &self,
        cluster: Cluster,
        mut driver: Connected,
        stop: CancellationToken,
    ) -> anyhow::Result<()> {
        driver.driver = driver.driver.with_timeout(self.timeout);
        self.controller.run(cluster, driver, stop).await
    }

    fn stand_by(
        &self,
        cluster: Cluster,
        driver: Connected,
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
