use std::sync::Arc;

use async_trait::async_trait;
use kube::Client;
use prometheus_client::registry::Registry;
use tokio_util::sync::CancellationToken;
use wharf_reconcile::WorkqueueMetrics;

use super::driver::Connected;

/// The work of a sidecar, apart from whether it is its turn.
#[async_trait]
pub(super) trait Controller: Send + Sync {
    /// Works until told to stop. It is begun again when the driver has changed, after a panic, and with each term as leader.
    async fn run(
        &self,
        client: Client,
        driver: Connected,
        stop: CancellationToken,
    ) -> anyhow::Result<()>;
}

/// Makes a controller, whose metrics go to the registry; those of queues are there.
pub(super) type MakeController =
    Box<dyn FnOnce(&mut Registry, &WorkqueueMetrics) -> Arc<dyn Controller>>;
