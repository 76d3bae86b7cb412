//! The operation for one claim.

use std::{pin::pin, sync::Arc};

use serde_json::Value;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wharf_cluster::{EventType, Key, Kind, PersistentVolumeClaim};
use wharf_reconcile::{Attempt, Operation, Outcome, note_error};

use super::{
    ProvisionerCore,
    decide::{Asked, ClaimNeed, MarkNeed, claim_need, is_bound_to, is_marked, mark_need},
    failure::ProvisionRefusal,
    ledger::{Begun, Stage},
    note::Note,
    source::DataSource,
};

/// A claim, identified by its UID: a later one may have its name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct ClaimKey {
    pub(super) key: Key,
    pub(super) uid: Key,
}

impl ClaimKey {
    pub(super) fn of(claim: &PersistentVolumeClaim) -> Self {
        let metadata = &claim.metadata;
        Self { key: metadata.key().into(), uid: metadata.uid.as_str().into() }
    }
}

/// Creates the volume of a claim.
pub(super) struct ClaimOperation(pub(super) Arc<ProvisionerCore>, pub(super) CancellationToken);

impl Operation<ClaimKey> for ClaimOperation {
    async fn run(&self, key: ClaimKey, attempt: Attempt) -> Outcome {
        let Self(shared, stop) = self;
        let mut serving = pin!(shared.serve(&key, attempt.failures));
        match stop.run_until_cancelled(&mut serving).await {
            Some(outcome) => outcome,
            None => shared.serve_at_last(&key, serving).await,
        }
    }
}

impl ProvisionerCore {
    /// One attempt, after a number of failed ones.
    pub(super) async fn serve(&self, key: &ClaimKey, failures: u32) -> Outcome {
        let begun = self.ledger.begun(&key.uid);
        if let Some(Begun { claim, stage: Stage::Made { object, began, .. } }) = &begun {
            return self.save(claim, object, *began).await;
        }
        let is_begun = begun.is_some();
        let known = self.claims.store().get(&key.key).filter(|it| it.metadata.uid == *key.uid);
        if let Some(claim) = &known
            && let Some(outcome) = self.serve_marked(claim).await
        {
            return outcome;
        }
        // A standby may have removed the mark of a claim that is bound to this volume before the
        // volume is in the cache.
        let name = self.options.names.of(&key.uid);
        let is_bound_to_it =
            |it: &Arc<PersistentVolumeClaim>| name.is_ok_and(|name| is_bound_to(it, &name));
        if is_begun && known.as_ref().is_some_and(is_bound_to_it) {
            self.ledger.forget(&key.uid);
            return Outcome::Done;
        }
        // A claim that was bound to another volume meanwhile is treated like a deleted one: once
        // this volume has a PersistentVolume, it is released and deleted.
        let known = known.filter(|it| !is_begun || !it.is_bound());
        let (claim, class, is_gone) = match (known, begun) {
            (Some(claim), _) => {
                let class = claim.class().and_then(|name| self.classes.get(name));
                (claim, class, false)
            }
            (None, Some(Begun { claim, stage: Stage::Asked(asked) })) => {
                self.ledger.note_gone(&key.uid);
                (claim, Some(asked.class), true)
            }
            (None, _) => {
                self.ledger.forget(&key.uid);
                return Outcome::Done;
            }
        };
        let (driver, node) = (&self.options.driver, self.options.node.as_deref());
        match claim_need(&claim, class.as_deref(), driver, node) {
            Ok(ClaimNeed::Volume) => {}
            Ok(ClaimNeed::Nothing) => {
                // A volume that the driver may be creating is finished, whether the claim is gone
                // or wants it again.
                if !is_begun {
                    self.ledger.forget(&key.uid);
                }
                return Outcome::Done;
            }
            Err(refusal) => return self.refuse(&claim, &refusal),
        }
        if claim.metadata.deleting && !is_begun {
            // No pod can use the claim any more.
            self.ledger.forget(&key.uid);
            return Outcome::Done;
        }
        // A claim that needs a volume has a class.
        let Some(class) = class else { return Outcome::Done };
        if self.is_made(&claim) {
            self.ledger.forget(&key.uid);
            return Outcome::Done;
        }
        if let Some(pause) = self.ledger.pause(&key.uid, &class.metadata.uid) {
            return Outcome::RetryAfter(pause);
        }
        if failures == 0 {
            let message =
                format!("External provisioner is provisioning volume for claim {:?}", &*key.key);
            self.events.record(&*claim, EventType::Normal, "Provisioning", message);
        }
        if let Ok(Some(DataSource::Populator(kind))) = DataSource::of(&claim) {
            let message = "Assuming an external populator will provision the volume";
            self.events.record(&*claim, EventType::Normal, "Provisioning", message);
            tracing::debug!(claim = &*key.key, kind, "leaving claim to a populator");
            return Outcome::Done;
        }
        let began = Instant::now();
        match self.provision(&claim, &class).await {
            Ok(Some(object)) if is_gone && self.is_known_otherwise(&object) => {
                tracing::warn!(
                    claim = claim.title(),
                    "volume of a deleted claim has another PersistentVolume: leaving it"
                );
                self.ledger.forget(&key.uid);
                self.release_source_of(&claim, false).await;
                Outcome::Done
            }
            Ok(Some(object)) => self.save(&claim, &Arc::new(object), began).await,
            Ok(None) => {
                self.release_source_of(&claim, false).await;
                Outcome::Done
            }
            Err(failure) => self.fail(&claim, &class, &failure).await,
        }
    }

    /// Does what the mark of a claim requires; `None` if only its volume is missing.
    async fn serve_marked(&self, claim: &Arc<PersistentVolumeClaim>) -> Option<Outcome> {
        let (driver, node) = (&self.options.driver, self.options.node.as_deref());
        if !is_marked(claim, driver) {
            return None;
        }
        let Note { topology, .. } = Note::on(claim).unwrap_or_default();
        let asked = Asked { known: self.is_known(claim), node: topology.node.as_deref() };
        match mark_need(claim, asked, node) {
            MarkNeed::Volume => {
                // The driver has to get the same request again. A pod will use this volume:
                // segments that only the note contains are not used.
                self.ledger.recall(&claim.metadata.uid, self.places().known_part(topology));
                None
            }
            MarkNeed::Nothing => Some(Outcome::Done),
            MarkNeed::Wait => {
                note_error("the provisioner of another node has to settle the volume first");
                Some(Outcome::Retry)
            }
            MarkNeed::Removal => {
                self.ledger.forget(&claim.metadata.uid);
                Some(self.unmark(claim).await)
            }
            MarkNeed::Settlement => {
                // The node of the call may be gone, and its segment with it: only the note contains
                // the segment. The volume is deleted at once, and the topology of the StorageClass
                // applies.
                self.ledger.recall(&claim.metadata.uid, topology.if_labels());
                Some(self.settle(claim).await)
            }
        }
    }

    /// Whether its PersistentVolume exists already.
    fn is_made(&self, claim: &PersistentVolumeClaim) -> bool {
        let name = self.options.names.of(&claim.metadata.uid);
        name.is_ok_and(|name| self.volumes.store().get(&name).is_some())
    }

    /// Whether another PersistentVolume has the volume of a PersistentVolume to be created:
    /// somebody keeps it.
    fn is_known_otherwise(&self, object: &Value) -> bool {
        let handle = object["spec"]["csi"]["volumeHandle"].as_str().unwrap_or_default();
        self.has_volume(handle)
    }

    fn refuse(&self, claim: &Arc<PersistentVolumeClaim>, refusal: &ProvisionRefusal) -> Outcome {
        note_error(refusal);
        self.options.metrics.provisioned(claim, None);
        tracing::warn!(claim = claim.title(), error = %refusal, "refusing to create volume for claim");
        match refusal {
            ProvisionRefusal::InTree(_) | ProvisionRefusal::OtherClass { .. } => {
                let message = refusal.to_string();
                self.events.record(&**claim, EventType::Warning, "ProvisioningFailed", message);
                Outcome::Done
            }
            // The class may be created later.
            _ => Outcome::Retry,
        }
    }
}
