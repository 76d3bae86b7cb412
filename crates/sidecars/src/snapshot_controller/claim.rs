//! Protects the claim of a snapshot while the snapshot is taken.

use std::sync::Arc;

use wharf_cluster::{ApiFailure, PersistentVolumeClaim, VolumeSnapshot};
use wharf_facts::finalizer;

use super::{
    SnapshotControllerCore,
    decide::{content_name, is_taken},
    document,
    failure::TakeRefusal,
};

const FINALIZER: &str = finalizer::PVC_SNAPSHOT_PROTECTION;

impl SnapshotControllerCore {
    /// The claim of this name in the namespace of a snapshot.
    pub(super) fn claim(
        &self,
        snapshot: &VolumeSnapshot,
        name: &str,
    ) -> Option<Arc<PersistentVolumeClaim>> {
        self.claims.store().get(&key_in_namespace_of(snapshot, name))
    }

    /// Adds the finalizer to a claim.
    pub(super) async fn protect_claim(
        &self,
        claim: &PersistentVolumeClaim,
    ) -> Result<(), TakeRefusal> {
        let metadata = &claim.metadata;
        let key = metadata.key();
        let _guard = self.locks.lock(&key).await;
        // Read again: another operation may have removed the finalizer.
        let known = self.claims.store().get(&key);
        if known.is_some_and(|known| {
            known.metadata.uid == metadata.uid && known.metadata.has_finalizer(FINALIZER)
        }) {
            return Ok(());
        }
        let name = || metadata.name.clone();
        if metadata.deleting {
            return Err(TakeRefusal::ClaimDeleting(name()));
        }
        let protect = |it: &mut _| document::protect_claim(it, &metadata.uid);
        let written = self.claims.update(metadata, protect).await;
        let written = written.map_err(|failure| TakeRefusal::Protect { claim: name(), failure })?;
        match written.metadata.has_finalizer(FINALIZER) {
            true => Ok(()),
            false => Err(TakeRefusal::ClaimDeleting(name())),
        }
    }

    /// Removes the finalizer from the claim of a snapshot once no snapshot is being taken of it. A
    /// snapshot that is `leaving` no longer counts.
    pub(super) async fn release_claim(
        &self,
        snapshot: &VolumeSnapshot,
        leaving: bool,
    ) -> Result<(), ApiFailure> {
        let Some(name) = &snapshot.spec.source.persistent_volume_claim_name else { return Ok(()) };
        let is_held = |claim: &Arc<PersistentVolumeClaim>| claim.metadata.has_finalizer(FINALIZER);
        let Some(claim) = self.claim(snapshot, name).filter(is_held) else { return Ok(()) };
        let _guard = self.locks.lock(&claim.metadata.key()).await;
        let is_used = || {
            let others = self.snapshots.store();
            let others =
                others.indexed(VolumeSnapshot::BY_CLAIM, &key_in_namespace_of(snapshot, name));
            let counts = |it: &VolumeSnapshot| !leaving || it.metadata.uid != snapshot.metadata.uid;
            others.iter().any(|it| !it.is_ready() && !self.is_lost(it) && counts(it))
        };
        if is_used() {
            return Ok(());
        }
        let release = |it: &mut _| document::release_claim(it, &claim.metadata.uid);
        match self.claims.update(&claim.metadata, release).await {
            Ok(_) | Err(ApiFailure::NotFound { .. }) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Whether a snapshot has failed or is complete, and no longer needs its claim.
    fn is_lost(&self, snapshot: &VolumeSnapshot) -> bool {
        is_taken(snapshot) && self.contents.store().get(&content_name(snapshot)).is_none()
    }
}

/// The key of an object in the namespace of a snapshot.
fn key_in_namespace_of(snapshot: &VolumeSnapshot, name: &str) -> String {
    format!("{}/{name}", snapshot.metadata.namespace.as_deref().unwrap_or_default())
}
