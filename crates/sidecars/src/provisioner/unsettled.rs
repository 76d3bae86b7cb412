//! Volumes that a driver may have, and that only a mark on their claims shows.
//!
//! A CreateVolume without a final answer puts a finalizer on the claim, with a note of the request.
//! So the claim outlasts the process that made the call, and the next leader finds it. The mark is
//! removed when the volume has a PersistentVolume, or when the driver has reported that it has no
//! such volume. If the volume is no longer wanted, CreateVolume is repeated once more to find it,
//! and then DeleteVolume is called.

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
    ProvisionerCore,
    failure::{Failure, Mismatch, ProvisionRefusal},
    note::Note,
    plan::Plan,
    protection::{hold, release},
    state::is_settling,
};

/// How long a process that stops may take to mark claims. Pods have 30 s to end by default.
const LAST_MARKS: Duration = Duration::from_secs(3);

impl ProvisionerCore {
    /// The claim as it is now, if it has the mark.
    pub(super) fn marked(
        &self,
        claim: &PersistentVolumeClaim,
    ) -> Option<Arc<PersistentVolumeClaim>> {
        let now = self.claims.store().get(&claim.metadata.key())?;
        let is_same = now.metadata.uid == claim.metadata.uid;
        (is_same && has_mark(&now)).then_some(now)
    }

    /// Marks a claim after CreateVolume was called for it. A claim that is being deleted cannot be
    /// marked any more: then only this process knows of the volume.
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
            // A deleted claim that other finalizers keep is removed later.
            Ok(written) if written.metadata.uid == *uid && !written.metadata.deleting => {}
            Ok(_) | Err(ApiFailure::NotFound { .. }) => self.ledger.note_gone(uid),
            Err(error) => {
                tracing::warn!(claim = claim.title(), %error, "failed to mark claim, retrying");
            }
        }
    }

    /// Marks the claims of all volumes that the driver may be creating, when this process stops,
    /// for the next leader.
    pub(super) async fn mark_all(&self) {
        let claims = self.ledger.unmarked();
        let marking = claims.iter().map(|claim| self.mark(claim));
        if timeout(LAST_MARKS, join_all(marking)).await.is_err() {
            tracing::warn!(claims = claims.len(), "stopped before all claims were marked");
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

    /// Whether the mark of a claim is about the request of this term.
    pub(super) fn is_noted(&self, claim: &PersistentVolumeClaim) -> bool {
        let noted = claim.metadata.annotations.get(annotation::UNSETTLED_VOLUME);
        let note = self.ledger.note(&claim.metadata.uid, &self.options.driver);
        note.is_some_and(|note| noted == Some(&note.text()))
    }

    /// Whether a PersistentVolume has the volume that may be in progress for a claim.
    pub(super) fn is_known(&self, claim: &PersistentVolumeClaim) -> bool {
        let Ok(name) = self.options.names.of(&claim.metadata.uid) else { return false };
        claim.spec.volume_name.as_deref() == Some(&*name)
            || self.volumes.store().get(&name).is_some()
    }

    /// Whether a PersistentVolume of this driver has a handle. The cache may have volumes of other
    /// drivers with the same handles.
    pub(super) fn has_volume(&self, handle: &str) -> bool {
        let same = self.volumes.store().indexed(PersistentVolume::BY_HANDLE, handle);
        same.iter().any(|it| it.is_of(&self.options.driver))
    }

    /// Finds a volume that is no longer wanted, and has it deleted.
    pub(super) async fn settle(&self, claim: &Arc<PersistentVolumeClaim>) -> Outcome {
        match self.delete_unsettled(claim).await {
            Ok(deleted) => {
                self.ledger.forget(&claim.metadata.uid);
                tracing::info!(claim = claim.title(), deleted, "settled volume of claim");
                match self.unmark(claim).await {
                    // It may want another volume.
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
                self.events.record(&**claim, EventType::Warning, "ProvisioningFailed", message);
                Outcome::Retry
            }
        }
    }

    /// Deletes the volume, if it exists; returns its handle.
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
        // Whatever the driver returns under this name, a volume with a PersistentVolume is not
        // deleted here.
        if self.is_known(claim) || self.has_volume(&volume.volume_id) {
            return Ok(None);
        }
        let secrets = plan.call.secrets.clone();
        let call = DeleteVolumeRequest { volume_id: volume.volume_id.clone(), secrets };
        self.delete_volume(call).await?;
        Ok(Some(volume.volume_id))
    }

    /// The request without a final answer, from this term or else from the note.
    async fn settlement(&self, claim: &PersistentVolumeClaim) -> Result<Arc<Plan>, Failure> {
        if let Some(asked) = self.ledger.asked(&claim.metadata.uid) {
            return Ok(self.again(asked).await.0);
        }
        let name = claim.class().unwrap_or_default();
        let class =
            self.classes.get(name).ok_or_else(|| ProvisionRefusal::NoClass(name.to_owned()))?;
        if class.provisioner != self.options.driver {
            let (class, provisioner) = (name.to_owned(), class.provisioner.clone());
            return Err(ProvisionRefusal::OtherClass { class, provisioner }.into());
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

/// Puts the mark and a note on a claim, unless it is a different claim of this name, or is being
/// deleted and cannot be marked. Returns the claim as written.
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
        // If the annotations are full the note is left out. The claim's source and class contain
        // the same data, unless they change.
        Err(ApiFailure::Invalid { .. }) if text.is_some() => write(None).await,
        written => written,
    }
}

/// Removes the mark and the note from a claim.
pub(crate) fn remove_mark(document: &mut Value) {
    release(document, UNSETTLED_VOLUME);
    if let Some(annotations) = document["metadata"]["annotations"].as_object_mut() {
        annotations.remove(annotation::UNSETTLED_VOLUME);
    }
}
