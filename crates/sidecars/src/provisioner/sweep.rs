//! Finds snapshots that are held for claims which are no more.
//!
//! A process that ends between holding a snapshot and letting it go leaves it held. Whoever takes over looks through all
//! snapshots once; from then on those that it holds itself are all that there can be.

use tokio::time::sleep;
use wharf_cluster::{ApiFailure, Kind, Meta, Pages, VolumeSnapshot};
use wharf_facts::finalizer::SNAPSHOT_RESTORE_PROTECTION;

use super::{Queues, Shared};

impl Shared {
    /// Sweeps for ever, for as long as the driver has snapshots and the account may see them.
    pub(super) async fn sweeps(&self, queues: &Queues) {
        let period = self.options.sweep;
        if period.is_zero() || !self.abilities_at_last().await.snapshots {
            return std::future::pending().await;
        }
        while let Err(error) = self.find_held().await {
            if matches!(error, ApiFailure::Forbidden { .. } | ApiFailure::NotFound { .. }) {
                tracing::info!(%error, "snapshots of earlier runs are not looked for");
                break;
            }
            tracing::warn!(%error, "snapshots of earlier runs could not be looked for yet");
            sleep(period).await;
        }
        loop {
            self.look_at_held(queues);
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

    /// Of other drivers' snapshots not all claims are known here. Without a content there is nothing to restore.
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
