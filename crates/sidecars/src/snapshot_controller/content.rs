//! The operation for one VolumeSnapshotContent.

use std::sync::Arc;

use tokio_util::sync::CancellationToken;
use wharf_cluster::{ApiFailure, EventType, Key, Part};
use wharf_reconcile::{Attempt, Operation, Outcome, note_error};

use super::{SnapshotControllerCore, document};

/// Adds the finalizer to a content that belongs to a snapshot, whoever created it, so that it waits
/// for its deletion in the driver.
pub(super) struct ContentOperation {
    pub(super) shared: Arc<SnapshotControllerCore>,
    pub(super) stop: CancellationToken,
}

impl Operation<Key> for ContentOperation {
    async fn run(&self, key: Key, _: Attempt) -> Outcome {
        let work = self.shared.protect(&key);
        self.stop.run_until_cancelled(work).await.unwrap_or(Outcome::Done)
    }
}

impl SnapshotControllerCore {
    async fn protect(&self, key: &Key) -> Outcome {
        let Some(content) = self.contents.store().get(key) else { return Outcome::Done };
        let source = &content.spec.source;
        if source.volume_handle.is_some() == source.snapshot_handle.is_some() {
            let message = "Exactly one of VolumeHandle and SnapshotHandle should be specified";
            let (kind, reason) = (EventType::Warning, "ContentValidationError");
            self.events.record(&*content, kind, reason, message);
            // Only a change of the content can help, and queues it again.
            return Outcome::Done;
        }
        match self.contents.edit(&content, Part::Main, document::protect).await {
            Ok(_) | Err(ApiFailure::NotFound { .. }) => Outcome::Done,
            Err(error) => {
                note_error(&error);
                tracing::warn!(
                    content = &**key,
                    %error,
                    "failed to add finalizer to VolumeSnapshotContent, retrying"
                );
                Outcome::Retry
            }
        }
    }
}
