//! Volumes that a driver may have, and that only a mark on their claims shows.
//!
//! A CreateVolume without a final answer puts a finalizer on the claim, with a note of what was asked for. So the claim
//! outlasts the process that asked, and whoever leads next finds out. The mark goes when the volume is known (it has a
//! PersistentVolume), or when the driver has said that there is none. Where nobody wants the volume any more, the driver is
//! asked for it once more, and then to delete it.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use serde_json::{Value, json};
use tokio::time::timeout;
use wharf_cluster::{
    ApiFailure, EventType, Kind, Objects, PersistentVolume, PersistentVolumeClaim,
};
use wharf_facts::{annotation, finalizer::UNSETTLED_VOLUME};
use wharf_proto::csi::DeleteVolumeRequest;
use wharf_reconcile::{Outcome, note_error};

use super::{
    Shared,
    failure::{Failure, Mismatch, Refusal},
    note::Note,
    plan::Plan,
    protection::{hold, release},
    state::is_settling,
};

/// How long a process that stops may take to mark claims. Pods have 30 s to end by default.
const LAST_MARKS: Duration = Duration::from_secs(3);

impl Shared {
    /// The claim as it is now, if it has the mark.
    pub(super) fn marked(
        &self,
        claim: &PersistentVolumeClaim,
    ) -> Option<Arc<PersistentVolumeClaim>> {
        let now = self.claims.store().get(&claim.metadata.key())?;
        let is_same = now.metadata.uid == claim.metadata.uid;
        (is_same && has_mark(&now)).then_some(now)
    }

    /// Marks a claim that the driver was asked for a volume for. A claim that is being deleted takes no mark any more: then
    /// what this process remembers is all there is.
    pub(super) async fn mark(&self, claim: &PersistentVolumeClaim) {
        let uid = &claim.metadata.uid;
        let note = self.ledger.note(uid, &self.options.driver);
        let Some(now) = self.claims.store().get(&claim.metadata.key()) else {
            return self.ledger.note_gone(uid);
        };
        let noted = now.metadata.annotations.get(annotation::UNSETTLED_VOLUME);
        let is_noted = note.as_ref().is_none_or(|note| noted == Some(&note.text()));
        if now.metadata.uid != *uid {
            return self.ledger.note_gone(uid);
        }
        if is_noted && has_mark(&now) {
            self.ledger.note_mark(uid);
            return;
        }
        match write_mark(&self.claims, claim, note.as_ref()).await {
            Ok(written) if written.metadata.uid == *uid && has_mark(&written) => {
                self.ledger.note_mark(uid);
            }
            // One that somebody else holds while it is deleted goes later.
            Ok(written) if written.metadata.uid == *uid && !written.metadata.deleting => {}
            Ok(_) | Err(ApiFailure::NotFound { .. }) => self.ledger.note_gone(uid),
            Err(error) => {
                tracing::warn!(claim = claim.title(), %error, "failed to mark claim, retrying");
            }
        }
    }

    /// Marks the claims of all volumes that the driver may be making, when this process stops: whoever leads next is to know.
    pub(super) async fn mark_all(&self) {
        let claims = self.ledger.unmarked();
        let marking = claims.iter().map(|claim| self.mark(claim));
        if timeout(LAST_MARKS, join_all(marking)).await.is_err() {
            tracing::warn!(claims = claims.len(), "claims were not marked in time before the end");
        }
        self.last_marks.cancel();
    }

    /// Removes the mark of a claim.
    pub(super) async fn unmark(&self, claim: &PersistentVolumeClaim) -> Outcome {
        let unmark = |document: &mut Value| {
            if document["metadata"]["uid"] == claim.metadata.uid.as_str() {
                remove_mark(document);
            }
        };
        match self.claims.update(&claim.metadata, unmark).await {
            Ok(_) | Err(ApiFailure::NotFound { .. }) => Outcome::Done,
            Err(error) => {
                note_error(&error);
                tracing::warn!(claim = claim.title(), %error, "failed to remove mark, retrying");
                Outcome::Retry
            }
        }
    }

    /// Whether the request of this term is the one that the mark of a claim is about.
    pub(super) fn is_noted(&self, claim: &PersistentVolumeClaim) -> bool {
        let noted = claim.metadata.annotations.get(annotation::UNSETTLED_VOLUME);
        let note = self.ledger.note(&claim.metadata.uid, &self.options.driver);
        note.is_some_and(|note| noted == Some(&note.text()))
    }

    /// Whether the volume that may be in the making for a claim is known to the API.
    pub(super) fn is_known(&self, claim: &PersistentVolumeClaim) -> bool {
        let Ok(name) = self.options.names.of(&claim.metadata.uid) else { return false };
        claim.spec.volume_name.as_deref() == Some(&*name)
            || self.volumes.store().get(&name).is_some()
    }

    /// Whether a PersistentVolume of this driver has a handle. The cache may have volumes of other drivers, which may have the same
    /// handles.
    pub(super) fn has_volume(&self, handle: &str) -> bool {
        let same = self.volumes.store().indexed(PersistentVolume::BY_HANDLE, handle);
        same.iter().any(|it| it.is_of(&self.options.driver))
    }

    /// Finds out about a volume that nobody wants any more, and has it deleted.
    pub(super) async fn settle(&self, claim: &Arc<PersistentVolumeClaim>) -> Outcome {
        match self.delete_unsettled(claim).await {
            Ok(deleted) => {
                self.ledger.forget(&claim.metadata.uid);
                tracing::info!(claim = claim.title(), deleted, "settled volume of claim");
                match self.unmark(claim).await {
                    // It may want another one.
                    Outcome::Done if !claim.metadata.deleting => {
                        Outcome::RetryAfter(Duration::ZERO)
                    }
                    outcome => outcome,
                }
            }
            Err(failure) => {
                note_error(&failure);
                tracing::warn!(claim = claim.title(), error = %failure, "failed to settle volume of claim, retrying");
                let message = format!("The driver may still have a volume for it: {failure}");
                self.events.tell(&**claim, EventType::Warning, "ProvisioningFailed", message);
                Outcome::Retry
            }
        }
    }

    /// Deletes the volume, if there is one; gives its handle.
    async fn delete_unsettled(
        &self,
        claim: &PersistentVolumeClaim,
    ) -> Result<Option<String>, Failure> {
        let plan = self.settlement(claim).await?;
        let volume = match self.create_volume(plan.call.clone()).await {
            Ok(volume) => volume.unwrap_or_default(),
            Err(status) if is_settling(status.code()) => return Ok(None),
            Err(status) => return Err(status.into()),
        };
        let name = plan.call.name.clone();
        if volume.volume_id.is_empty() {
            return Err(Failure::Mismatch { mismatch: Mismatch::Nameless, name, cleanup: None });
        }
        // Whatever a driver gives under this name, a volume that the API knows is not deleted here.
        if self.is_known(claim) || self.has_volume(&volume.volume_id) {
            return Ok(None);
        }
        let secrets = plan.call.secrets.clone();
        let call = DeleteVolumeRequest { volume_id: volume.volume_id.clone(), secrets };
        self.delete_volume(call).await?;
        Ok(Some(volume.volume_id))
    }

    /// The request that had no final answer, as this term remembers it or else as it is noted.
    async fn settlement(&self, claim: &PersistentVolumeClaim) -> Result<Arc<Plan>, Failure> {
        if let Some(asked) = self.ledger.asked(&claim.metadata.uid) {
            return Ok(self.again(asked).await.0);
        }
        let name = claim.class().unwrap_or_default();
        let class = self.classes.get(name).ok_or_else(|| Refusal::NoClass(name.to_owned()))?;
        if class.provisioner != self.options.driver {
            let (class, provisioner) = (name.to_owned(), class.provisioner.clone());
            return Err(Refusal::OtherClass { class, provisioner }.into());
        }
        let note = Note::on(claim);
        let plan = self.plan(claim, &class, note.as_ref()).await?;
        match note.is_none_or(|note| note.is_of(&plan)) {
            true => Ok(Arc::new(plan)),
            false => Err(Failure::ClassChanged(name.to_owned())),
        }
    }
}

/// Whether a claim has the mark.
pub(super) fn has_mark(claim: &PersistentVolumeClaim) -> bool {
    claim.metadata.has_finalizer(UNSETTLED_VOLUME)
}

/// Puts the mark and a note on a claim, unless it is another claim of this name, or is being deleted: then it takes no mark.
/// Gives the claim as it is then.
pub(super) async fn write_mark(
    claims: &Objects<PersistentVolumeClaim>,
    claim: &PersistentVolumeClaim,
    note: Option<&Note>,
) -> Result<Arc<PersistentVolumeClaim>, ApiFailure> {
    let text = note.map(Note::text);
    let write = async |text: Option<&str>| {
        let mark = |document: &mut Value| {
            let metadata = &document["metadata"];
            let finalizers = metadata["finalizers"].as_array();
            let has_mark = finalizers.is_some_and(|it| it.iter().any(|it| it == UNSETTLED_VOLUME));
            let takes_mark = has_mark || metadata["deletionTimestamp"].is_null();
            if takes_mark && metadata["uid"] == claim.metadata.uid.as_str() {
                hold(document, UNSETTLED_VOLUME);
                if let Some(text) = text {
                    document["metadata"]["annotations"][annotation::UNSETTLED_VOLUME] = json!(text);
                }
            }
        };
        claims.update(&claim.metadata, mark).await
    };
    match write(text.as_deref()).await {
        // A claim whose annotations are full takes no note. Its own source and its class say the same, unless they change.
        Err(ApiFailure::Invalid { .. }) if text.is_some() => write(None).await,
        written => written,
    }
}

/// Takes the mark and the note from a claim.
pub(crate) fn remove_mark(document: &mut Value) {
    release(document, UNSETTLED_VOLUME);
    if let Some(annotations) = document["metadata"]["annotations"].as_object_mut() {
        annotations.remove(annotation::UNSETTLED_VOLUME);
    }
}
