//! Protects sources of volumes from deletion while volumes are created from them.
//!
//! Upstream's roles grant update but not patch for these objects: they are read, edited and written
//! whole.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;
use wharf_cluster::{ApiFailure, Key, Kind, Meta, PersistentVolumeClaim};
use wharf_facts::{
    annotation::STORAGE_PROVISIONER,
    finalizer::{CLONING_PROTECTION, SNAPSHOT_RESTORE_PROTECTION},
};
use wharf_reconcile::{Attempt, Operation, Outcome, note_error};

use super::{
    ProvisionerCore,
    plan::in_namespace_of,
    source::{CLAIM, DataSource, SNAPSHOT},
};

/// The snapshots with our finalizer, as far as known.
#[derive(Default)]
pub(super) struct Held(Mutex<HashSet<(String, String)>>);

impl Held {
    pub(super) fn insert(&self, of: &Meta) {
        self.names().insert(name(of));
    }

    pub(super) fn remove(&self, of: &Meta) {
        self.names().remove(&name(of));
    }

    pub(super) fn contains(&self, of: &Meta) -> bool {
        self.names().contains(&name(of))
    }

    pub(super) fn all(&self) -> Vec<Meta> {
        let meta = |(namespace, name): &(String, String)| Meta {
            namespace: Some(namespace.clone()),
            name: name.clone(),
            ..Meta::default()
        };
        self.names().iter().map(meta).collect()
    }

    fn names(&self) -> MutexGuard<'_, HashSet<(String, String)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn name(of: &Meta) -> (String, String) {
    (of.namespace.clone().unwrap_or_default(), of.name.clone())
}

/// A source whose protection may no longer be needed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Protected {
    Claim(Key),
    Snapshot { namespace: String, name: String },
}

impl Protected {
    pub(super) fn snapshot(of: &Meta) -> Self {
        let (namespace, name) = name(of);
        Self::Snapshot { namespace, name }
    }
}

/// Removes the protection of a source that no volume is created from any more.
pub(super) struct ProtectionOperation(
    pub(super) Arc<ProvisionerCore>,
    pub(super) CancellationToken,
);

impl Operation<Protected> for ProtectionOperation {
    async fn run(&self, source: Protected, _: Attempt) -> Outcome {
        let Self(shared, stop) = self;
        let release = async {
            match source {
                Protected::Claim(key) => shared.release_claim(&key).await,
                Protected::Snapshot { namespace, name } => {
                    let of = Meta { name, namespace: Some(namespace), ..Meta::default() };
                    shared.release_snapshot(&of, None).await
                }
            }
        };
        stop.run_until_cancelled(release).await.unwrap_or(Outcome::Done)
    }
}

impl ProvisionerCore {
    /// Protects the claim that another is cloned from.
    pub(super) async fn protect_claim(
        &self,
        claim: &PersistentVolumeClaim,
        source: &str,
    ) -> Result<(), ApiFailure> {
        let of = in_namespace_of(claim, source);
        let _guard = self.locks.lock(&user_key(CLAIM, &of)).await;
        let known = self.claims.store().get(&of.key());
        if known.is_some_and(|known| known.metadata.has_finalizer(CLONING_PROTECTION)) {
            return Ok(());
        }
        let hold = |document: &mut Value| hold(document, CLONING_PROTECTION);
        self.claims.update(&of, hold).await.map(drop)
    }

    /// Whether a claim is protected without need.
    pub(super) fn is_held(&self, claim: &PersistentVolumeClaim) -> bool {
        let metadata = &claim.metadata;
        if !metadata.deleting || !metadata.has_finalizer(CLONING_PROTECTION) {
            return false;
        }
        // For claims of other drivers, not all clones are in the cache.
        let own = metadata.annotations.get(STORAGE_PROVISIONER) == Some(&self.options.driver);
        let volume = claim.spec.volume_name.as_deref();
        let volume = volume.and_then(|volume| self.volumes.store().get(volume));
        own || volume.is_some_and(|volume| volume.is_of(&self.options.driver))
    }

    /// Removes the protection of a claim's source, now that the claim's volume is `made`, or at
    /// least not in progress any more. Failures are repeated when the claim is bound, and by the
    /// resync.
    pub(super) async fn release_source_of(&self, claim: &PersistentVolumeClaim, made: bool) {
        match DataSource::of(claim) {
            Ok(Some(DataSource::Claim(name))) => {
                self.release_claim(&in_namespace_of(claim, name).key().into()).await;
            }
            Ok(Some(DataSource::Snapshot(name))) => {
                let of = in_namespace_of(claim, name);
                if made || self.held.contains(&of) {
                    let but = made.then_some(claim.metadata.uid.as_str());
                    self.release_snapshot(&of, but).await;
                }
            }
            _ => {}
        }
    }

    /// Removes the protection once all clones are bound or gone.
    async fn release_claim(&self, key: &Key) -> Outcome {
        let Some(claim) = self.claims.store().get(key).filter(|claim| self.is_held(claim)) else {
            return Outcome::Done;
        };
        let _guard = self.locks.lock(&user_key(CLAIM, &claim.metadata)).await;
        if self.is_used(CLAIM, &claim.metadata, None) {
            return Outcome::Done;
        }
        let uid = &claim.metadata.uid;
        let release = |document: &mut Value| {
            if document["metadata"]["uid"] == uid.as_str() {
                release(document, CLONING_PROTECTION);
            }
        };
        match self.claims.update(&claim.metadata, release).await {
            Ok(_) | Err(ApiFailure::NotFound { .. }) => Outcome::Done,
            Err(error) => {
                note_error(&error);
                tracing::warn!(claim = claim.title(), %error, "failed to remove clone-protection finalizer, retrying");
                Outcome::Retry
            }
        }
    }

    /// Protects the snapshot that a claim is restored from, if the account may.
    pub(super) async fn protect_snapshot(
        &self,
        claim: &PersistentVolumeClaim,
        snapshot: &str,
    ) -> Result<(), ApiFailure> {
        let of = in_namespace_of(claim, snapshot);
        let _guard = self.locks.lock(&user_key(SNAPSHOT, &of)).await;
        let hold = |document: &mut Value| hold(document, SNAPSHOT_RESTORE_PROTECTION);
        match self.snapshots.update(&of, hold).await {
            Ok(_) => self.held.insert(&of),
            Err(ApiFailure::Forbidden { .. }) => {
                tracing::info!(
                    snapshot = of.key(),
                    "restoring without snapshot protection: account may not update it"
                );
            }
            Err(failure) => return Err(failure),
        }
        Ok(())
    }

    /// Removes the protection, unless a claim other than `but` is restored from the snapshot.
    async fn release_snapshot(&self, of: &Meta, but: Option<&str>) -> Outcome {
        let _guard = self.locks.lock(&user_key(SNAPSHOT, of)).await;
        if self.is_used(SNAPSHOT, of, but) {
            return Outcome::Done;
        }
        let release = |document: &mut Value| release(document, SNAPSHOT_RESTORE_PROTECTION);
        match self.snapshots.update(of, release).await {
            Ok(_) | Err(ApiFailure::NotFound { .. } | ApiFailure::Forbidden { .. }) => {
                self.held.remove(of);
                Outcome::Done
            }
            Err(error) => {
                note_error(&error);
                tracing::warn!(snapshot = of.key(), %error, "failed to remove protection of snapshot, retrying");
                Outcome::Retry
            }
        }
    }

    /// Whether a claim other than `but` waits for a volume with this source.
    fn is_used(&self, kind: &str, source: &Meta, but: Option<&str>) -> bool {
        let source = user_key(kind, source);
        let waits = |claim: &PersistentVolumeClaim| {
            ["", "Pending"].contains(&claim.status.phase.as_str())
                && but.is_none_or(|uid| claim.metadata.uid != uid)
        };
        let users = self.claims.store().indexed(PersistentVolumeClaim::BY_SOURCE, &source);
        // A deleted claim may have a volume in progress.
        let is_begun = |claim: &PersistentVolumeClaim| {
            let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
            waits(claim) && claim.source().is_some_and(|it| it.key(namespace) == source)
        };
        users.iter().any(|claim| waits(claim)) || self.ledger.is_begun(is_begun)
    }
}

/// The index keys of claims with this source.
fn user_key(kind: &str, source: &Meta) -> String {
    format!("{kind}/{}", source.key())
}

pub(super) fn hold(document: &mut Value, finalizer: &str) {
    let finalizers = &mut document["metadata"]["finalizers"];
    match finalizers.as_array_mut() {
        Some(others) if others.iter().any(|own| own == finalizer) => {}
        Some(others) => others.push(json!(finalizer)),
        None => *finalizers = json!([finalizer]),
    }
}

pub(super) fn release(document: &mut Value, finalizer: &str) {
    if let Some(finalizers) = document["metadata"]["finalizers"].as_array_mut() {
        finalizers.retain(|own| own != finalizer);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finalizer_is_there_once_and_others_stay() {
        let mut document = json!({ "metadata": {} });
        hold(&mut document, "x");
        hold(&mut document, "x");
        assert_eq!(document["metadata"]["finalizers"], json!(["x"]));
        document["metadata"]["finalizers"] = json!(["a", "x", "b"]);
        release(&mut document, "x");
        assert_eq!(document["metadata"]["finalizers"], json!(["a", "b"]));
        let mut bare = json!({ "metadata": {} });
        release(&mut bare, "x");
        assert_eq!(bare["metadata"]["finalizers"].as_array(), None);
    }
}
