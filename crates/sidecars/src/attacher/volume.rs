//! The operation for one PersistentVolume.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wharf_cluster::{ApiFailure, Key, Part, Patch, PersistentVolume, VolumeAttachment};
use wharf_reconcile::{Attempt, Operation, Outcome, note_error};

use super::{AttacherCore, decide::releases};

/// Removes the finalizer of a PersistentVolume when no attachment names it any more.
pub(super) struct VolumeOperation {
    pub(super) shared: Arc<AttacherCore>,
    pub(super) stop: CancellationToken,
}

impl Operation<Key> for VolumeOperation {
    async fn run(&self, key: Key, _: Attempt) -> Outcome {
        let work = self.shared.release(&key);
        self.stop.run_until_cancelled(work).await.unwrap_or(Outcome::Done)
    }
}

impl AttacherCore {
    async fn release(&self, key: &Key) -> Outcome {
        let Some(volume) = self.volumes.store().get(key) else { return Outcome::Done };
        let attachments = self.attachments.store();
        let plan = |it: &PersistentVolume| {
            let free = releases(it, &self.finalizer, &self.options.driver)
                && !attachments.is_indexed(VolumeAttachment::BY_VOLUME, key);
            if free { Patch::remove_finalizer(&it.metadata, &self.finalizer) } else { None }
        };
        match self.volumes.edit(&volume, Part::Main, plan).await {
            Ok(_) | Err(ApiFailure::NotFound { .. }) => Outcome::Done,
            Err(error) => {
                note_error(&error);
                tracing::warn!(
                    volume = &**key,
                    %error,
                    "failed to remove finalizer from PersistentVolume, retrying"
                );
                Outcome::Retry
            }
        }
    }
}
