//! The operation for one VolumeSnapshotContent.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wharf_cluster::{ApiFailure, EventType, Key, Part};
use wharf_reconcile::{Attempt, Operation, Outcome, note_error};

use super::{Shared, document};

/// Has a content that belongs to a snapshot wait for its deletion in the driver, whoever made it.
pub(super) struct ContentOperation {
    pub(super) shared: Arc<Shared>,
    pub(super) stop: CancellationToken,
}

impl Operation<Key> for ContentOperation {
    async fn run(&self, key: Key, _: Attempt) -> Outcome {
        let work = self.shared.protect(&key);
        self.stop.run_until_cancelled(work).await.unwrap_or(Outcome::Done)
    }
}

impl Shared {
    async fn protect(&self, key: &Key) -> Outcome {
        let Some(content) = self.contents.store().get(key) else { return Outcome::Done };
        let source = &content.spec.source;
        if source.volume_handle.is_some() == source.snapshot_handle.is_some() {
            let message = "Exactly one of VolumeHandle and SnapshotHandle should be specified";
            let (kind, reason) = (EventType::Warning, "ContentValidationError");
            self.events.tell(&*content, kind, reason, message);
            // Only a change of it can help, and is a reason to look again.
            return Outcome::Done;
        }
        match self.contents.edit(&content, Part::Main, document::protect).await {
            Ok(_) | Err(ApiFailure::NotFound { .. }) => Outcome::Done,
            Err(error) => {
                note_error(&error);
                tracing::warn!(
                    content = &**key,
                    %error,
                    "the finalizer is not on the VolumeSnapshotContent, and is tried again"
                );
                Outcome::Retry
            }
        }
    }
}
