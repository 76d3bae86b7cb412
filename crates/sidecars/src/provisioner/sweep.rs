//! Finds snapshots that are held for claims which are no more.
//!
//! A process that ends between holding a snapshot and letting it go leaves it held. Whoever takes over looks through all
//! snapshots once; from then on those that it holds itself are all that there can be.

use http::Request;
use serde::Deserialize;
use wharf_cluster::{ApiFailure, Kind, Meta, VolumeSnapshot, bounded};
use wharf_facts::finalizer::SNAPSHOT_RESTORE_PROTECTION;

use super::{Shared, source::SNAPSHOT};

const PAGE: usize = 500;

impl Shared {
    /// Sweeps for ever, for as long as the driver has snapshots and the account may see them.
    pub(super) async fn sweeps(&self) {
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
            tokio::time::sleep(period).await;
        }
        loop {
            self.sweep().await;
            tokio::time::sleep(period).await;
        }
    }

    async fn sweep(&self) {
        for held in self.held.all() {
            if !self.is_used(SNAPSHOT, &held, None) {
                tracing::info!(
                    snapshot = held.key(),
                    "no claim is restored from the snapshot any more"
                );
                self.release_snapshot(&held).await;
            }
        }
    }

    async fn find_held(&self) -> Result<(), ApiFailure> {
        let mut token = None;
        loop {
            let page = self.page(token.as_deref()).await?;
            for snapshot in &page.items {
                if snapshot.metadata.has_finalizer(SNAPSHOT_RESTORE_PROTECTION)
                    && self.is_own(snapshot).await?
                {
                    self.held.insert(&snapshot.metadata);
                }
            }
            token = page.metadata.next.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(());
            }
        }
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

    async fn page(&self, token: Option<&str>) -> Result<Page, ApiFailure> {
        let token = token.map(|token| format!("&continue={token}")).unwrap_or_default();
        let (group, resource) = (VolumeSnapshot::GROUP, VolumeSnapshot::RESOURCE);
        let request = Request::get(format!("{group}/{resource}?limit={PAGE}{token}"));
        let request = request.body(Vec::new()).expect("the server's own tokens make a URL");
        bounded("VolumeSnapshots", self.client.request(request)).await
    }
}

#[derive(Deserialize)]
struct Page {
    #[serde(default)]
    metadata: PageMeta,
    items: Vec<VolumeSnapshot>,
}

#[derive(Default, Deserialize)]
struct PageMeta {
    #[serde(rename = "continue")]
    next: Option<String>,
}
