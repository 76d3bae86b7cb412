use std::sync::Arc;

use async_trait::async_trait;
use kube::Client;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use wharf_reconcile::WorkqueueMetrics;

use super::driver::Connected;

/// The work of a sidecar, apart from whether it is its turn. It is done for a driver, or for whom its [`Source`] finds.
#[async_trait]
pub(super) trait Controller<For = Connected>: Send + Sync {
    /// Works until told to stop. It is begun again when the driver has changed, after a panic, and with each term as leader.
    async fn run(&self, client: Client, driver: For, stop: CancellationToken)
    -> anyhow::Result<()>;
}

/// Makes a controller, whose metrics go to the registry; those of queues are there.
pub(super) type MakeController<For = Connected> =
    Box<dyn FnOnce(&mut Registry, &WorkqueueMetrics) -> Arc<dyn Controller<For>>>;

/// Where a controller finds whom it works for.
pub(super) trait Source {
    /// Whom it works for.
    type Found: Clone + Send + Sync + 'static;

    /// Waits until it is there.
    async fn connect(&self) -> anyhow::Result<Self::Found>;

    /// Waits until it has become another.
    async fn changed(&self, known: &Self::Found) -> Self::Found;
}

/// For a controller that works for no driver but for the cluster, which is there, and stays what it is.
pub(super) struct WholeCluster;

impl Source for WholeCluster {
    type Found = ();

    async fn connect(&self) -> anyhow::Result<()> {
        Ok(())
    }

    async fn changed(&self, (): &()) {
        std::future::pending::<()>().await;
    }
}
