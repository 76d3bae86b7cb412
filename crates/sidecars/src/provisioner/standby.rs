//! The provisioner of a replica that does not lead: removes the mark of bound claims, and marks
//! claims whose volumes it requested when it led (`handover`).
//!
//! The leader may be Go's provisioner, which never removes our finalizer, so that a bound claim
//! could not be deleted. A claim that is not bound to the requested volume waits for a leader of
//! ours.
//!
//! Claims cannot be selected by their finalizers. So all claims are watched, and only marked ones
//! are kept, which are few. A process that has all claims in its cache, because it led before or
//! leads with another controller, uses that cache.

use std::{future::pending, sync::Arc};

use kube::Client;
use serde_json::Value;
use tokio_util::sync::CancellationToken;
use wharf_cluster::{
    ApiFailure, Kind, Meta, Objects, PersistentVolume, PersistentVolumeClaim, Store, Watch,
};
use wharf_reconcile::{Attempt, Operation, Outcome, Reconciler, note_error};

use super::{
    ProvisionerOptions,
    claim::ClaimKey,
    decide::{is_bound_to, is_marked, is_volume_of},
    unsettled::remove_mark,
};
use crate::{Caches, caches::Watched};

/// Marks that are removed concurrently.
const WORKERS: usize = 4;

/// The provisioner of a replica that does not lead.
pub struct StandbyProvisioner {
    pub(super) options: ProvisionerOptions,
    client: Client,
    caches: Caches,
}

/// Removes the mark of one claim.
struct MarkRemoval {
    options: ProvisionerOptions,
    claims: Objects<PersistentVolumeClaim>,
    /// Read for each use and not kept.
    volumes: Objects<PersistentVolume>,
}

impl StandbyProvisioner {
    /// For the driver of the options, which is not called.
    pub fn new(options: ProvisionerOptions, client: Client, caches: Caches) -> Self {
        Self { options, client, caches }
    }

    /// Works until `stop`, and then returns at once.
    pub async fn run(self, stop: CancellationToken) {
        let work = async {
            if !self.caches.is_wanted(Watched::Claims) {
                tokio::select! {
                    () = self.watch_marked(&stop) => {}
                    () = self.caches.wanted(Watched::Claims) => {}
                }
            }
            self.remove_marks(&self.caches.claims).await;
        };
        stop.run_until_cancelled(async { tokio::join!(self.hand_over(), work) }).await;
    }

    /// Claims, read for each use.
    pub(super) fn claims(&self) -> Objects<PersistentVolumeClaim> {
        Objects::new(self.client.clone(), Store::new(|_| false))
    }

    /// Volumes, read for each use.
    pub(super) fn volumes(&self) -> Objects<PersistentVolume> {
        Objects::new(self.client.clone(), Store::new(|_| false))
    }

    /// Watches all claims and keeps only marked ones.
    async fn watch_marked(&self, stop: &CancellationToken) {
        let driver = self.options.driver.clone();
        let marked = Store::new(move |claim: &mut PersistentVolumeClaim| is_marked(claim, &driver));
        let watch = Watch::new(self.client.clone(), Arc::clone(&marked));
        tracing::info!("watching marked claims: another replica leads");
        tokio::join!(watch.run(stop.clone()), self.remove_marks(&marked));
    }

    /// Never returns.
    async fn remove_marks(&self, claims: &Arc<Store<PersistentVolumeClaim>>) {
        let operation = MarkRemoval {
            options: self.options.clone(),
            claims: Objects::new(self.client.clone(), Arc::clone(claims)),
            volumes: self.volumes(),
        };
        let removals = Reconciler::start(self.options.queue("marked-claims", WORKERS), operation);
        let (handle, options) = (removals.handle(), self.options.clone());
        let _changes = claims.subscribe(move |change| {
            if let Some(claim) = change.new.filter(|claim| volume_name(claim, &options).is_some()) {
                handle.wake(ClaimKey::of(claim));
            }
        });
        pending::<()>().await;
    }
}

/// The name of the volume, for a marked claim that is bound to the requested one.
fn volume_name(claim: &PersistentVolumeClaim, options: &ProvisionerOptions) -> Option<String> {
    let name = options.names.of(&claim.metadata.uid).ok()?;
    (is_marked(claim, &options.driver) && is_bound_to(claim, &name)).then_some(name)
}

impl Operation<ClaimKey> for MarkRemoval {
    async fn run(&self, key: ClaimKey, _: Attempt) -> Outcome {
        let known = self.claims.store().get(&key.key).filter(|it| it.metadata.uid == *key.uid);
        let Some(claim) = known else { return Outcome::Done };
        let Some(volume) = volume_name(&claim, &self.options) else { return Outcome::Done };
        match self.remove(&claim, &volume).await {
            Ok(true) => {
                tracing::info!(claim = claim.title(), volume, "removed mark of bound claim");
                Outcome::Done
            }
            Ok(false) | Err(ApiFailure::NotFound { .. }) => Outcome::Done,
            Err(error) => {
                note_error(&error);
                tracing::warn!(claim = claim.title(), %error, "failed to remove mark, retrying");
                Outcome::Retry
            }
        }
    }
}

impl MarkRemoval {
    /// Whether a PersistentVolume has the claim's volume, so that the mark was removed.
    async fn remove(&self, claim: &PersistentVolumeClaim, name: &str) -> Result<bool, ApiFailure> {
        let volume = self.volumes.get(&Meta { name: name.to_owned(), ..Meta::default() }).await?;
        if !is_volume_of(&volume, claim, &self.options.driver) {
            tracing::warn!(
                claim = claim.title(),
                volume = name,
                "claim keeps its mark: the PersistentVolume does not belong to it"
            );
            return Ok(false);
        }
        // Writes are guarded by the version that was read: this is checked again for each.
        let unmark = |document: &mut Value| {
            let is_same = document["metadata"]["uid"] == claim.metadata.uid.as_str();
            if is_same && document["spec"]["volumeName"] == name {
                remove_mark(document);
            }
        };
        self.claims.update(&claim.metadata, unmark).await?;
        Ok(true)
    }
}
