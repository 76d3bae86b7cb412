//! Finds snapshots that are still protected for claims that no longer exist.
//!
//! A process that ends between protecting a snapshot and removing the protection leaves the
//! finalizer. A new leader checks all snapshots once; later ones are protected only by itself.

use tokio::time::sleep;
use wharf_cluster::{ApiFailure, Kind, Meta, Pages, VolumeSnapshot};
use wharf_facts::finalizer::SNAPSHOT_RESTORE_PROTECTION;

use super::{ProvisionerCore, Queues};

impl ProvisionerCore {
    /// Sweeps repeatedly, for as long as the driver has snapshots and the account may list them.
    pub(super) async fn sweeps(&self, queues: &Queues) {
        let period = self.options.sweep;
        if period.is_zero() || !self.wait_capabilities().await.snapshots {
            return std::future::pending().await;
        }
        while let Err(error) = self.find_held().await {
            if matches!(error, ApiFailure::Forbidden { .. } | ApiFailure::NotFound { .. }) {
                tracing::info!(%error, "not checking protection of snapshots from earlier runs");
                break;
            }
            tracing::warn!(%error, "failed to check snapshots of earlier runs, retrying");
            sleep(period).await;
        }
        loop {
            self.queue_protected(queues);
            sleep(period).await;
        }
    }

    async fn find_held(&self) -> Result<(), ApiFailure> {
        let collection = format!("{}/{}", VolumeSnapshot::GROUP, VolumeSnapshot::RESOURCE);
        let mut pages = Pages::<VolumeSnapshot>::new(&self.client, "VolumeSnapshots", &collection);
        while let Some(page) = pages.next().await? {
            for snapshot in &page {
                if snapshot.metadata.has_finalizer(SNAPSHOT_RESTORE_PROTECTION)
                    && self.is_own(snapshot).await?
                {
                    self.held.insert(&snapshot.metadata);
                }
            }
        }
        Ok(())
    }

    /// For snapshots of other drivers, not all claims are in the cache. Without a content nothing
    /// can be restored.
    async fn is_own(&self, snapshot: &VolumeSnapshot) -> Result<bool, ApiFailure> {
        let Some(content) = snapshot.bound_content() else { return Ok(true) };
        let of = Meta { name: content.to_owned(), ..Meta::default() };
        match self.contents.get(&of).await {
            Ok(content) => Ok(content.spec.driver == self.options.driver),
            Err(ApiFailure::NotFound { .. }) => Ok(true),
            Err(failure) => Err(failure),
        }
    }
}
