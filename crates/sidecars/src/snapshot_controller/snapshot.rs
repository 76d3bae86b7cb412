//! The operation for one VolumeSnapshot.

use std::sync::Arc;

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use wharf_cluster::{EventType, Key, Part, VolumeSnapshot, VolumeSnapshotContent};
use wharf_reconcile::{Attempt, Operation, Outcome, note_error};

use super::{
    SnapshotControllerCore,
    decide::{SnapshotSource, is_bound, is_in_group, is_taken},
    document,
    failure::{Failure, ReportTo, TakeRefusal},
    metrics::Timed,
    status,
    take::Intake,
};

/// Creates, binds or deletes the content of one VolumeSnapshot.
pub(super) struct SnapshotOperation {
    pub(super) shared: Arc<SnapshotControllerCore>,
    pub(super) stop: CancellationToken,
}

impl Operation<Key> for SnapshotOperation {
    async fn run(&self, key: Key, _: Attempt) -> Outcome {
        let work = self.shared.reconcile(&key);
        self.stop.run_until_cancelled(work).await.unwrap_or(Outcome::Done)
    }
}

impl SnapshotControllerCore {
    async fn reconcile(&self, key: &Key) -> Outcome {
        let snapshot = self.snapshots.store().get(key).filter(|it| !is_in_group(it));
        let Some(snapshot) = snapshot else { return Outcome::Done };
        let released = self.release_claim(&snapshot, false).await;
        let released = released.map_err(Failure::ReleaseClaim);
        if let Err(failure) = &released {
            note_error(failure);
            self.report_failure(&snapshot, failure).await;
        }
        let done = match snapshot.metadata.deleting {
            true => self.delete(&snapshot).await,
            false => self.bind(&snapshot).await,
        };
        match done {
            Ok(()) if released.is_err() => Outcome::Retry,
            Ok(()) => Outcome::Done,
            Err(failure) => {
                note_error(&failure);
                self.report_failure(&snapshot, &failure).await;
                if failure.may_pass() { Outcome::Retry } else { Outcome::Done }
            }
        }
    }

    /// Binds a snapshot and its content.
    async fn bind(&self, snapshot: &Arc<VolumeSnapshot>) -> Result<(), Failure> {
        let class = self.class_of(snapshot)?;
        let source = SnapshotSource::of(snapshot)?;
        let start = match (self.contents.store().get(&source.content_name(snapshot)), source) {
            (Some(content), _) => {
                source.check(snapshot, &content)?;
                Start::Content(content)
            }
            (None, SnapshotSource::Claim(_)) if is_taken(snapshot) => Start::Lost,
            (None, SnapshotSource::Claim(claim)) => {
                Start::Claim(self.intake(snapshot, claim, class.clone()))
            }
            (None, SnapshotSource::Content(_)) => Start::Nothing,
        };
        let prepare = |it: &VolumeSnapshot| {
            let class = class.as_ref().map(|class| class.metadata.name.as_str());
            status::prepare(it, class, start.is_deleted_with_snapshot())
        };
        let prepared = self.snapshots.edit(snapshot, Part::Main, prepare).await;
        let snapshot = prepared.map_err(Failure::Finalizers)?;
        if snapshot.metadata.deleting {
            // Nothing may be added to an object that is being deleted; its deletion queues it
            // again.
            return Ok(());
        }
        if is_settled(&snapshot) {
            return self.verify(&snapshot);
        }
        if matches!(start, Start::Lost) {
            return Err(Failure::ContentLost);
        }
        self.options.metrics.begin_creation(&snapshot, self.driver_of(&snapshot));
        let content = match start {
            Start::Content(content) => {
                let bind = |it: &VolumeSnapshotContent| document::bind(it, &snapshot);
                let bound = self.contents.edit(&content, Part::Main, bind).await;
                bound.map_err(Failure::Bind)?
            }
            Start::Claim(intake) => self.take(&snapshot, &intake?).await?,
            Start::Nothing | Start::Lost => return Err(Failure::ContentMissing),
        };
        // Another writer may have been faster.
        source.check(&snapshot, &content)?;
        self.mirror(&snapshot, &content).await
    }

    /// Copies the state of the content to the status of the snapshot.
    async fn mirror(
        &self,
        snapshot: &Arc<VolumeSnapshot>,
        content: &VolumeSnapshotContent,
    ) -> Result<(), Failure> {
        let Some(patch) = status::mirror(snapshot, content) else { return Ok(()) };
        let shown = self.snapshots.patch(&snapshot.metadata, Part::Status, &patch).await;
        let shown = shown.map_err(Failure::Status)?;
        let key = snapshot.metadata.key();
        let is_created = |it: &VolumeSnapshot| {
            it.status.as_ref().is_some_and(|status| status.creation_time.is_some())
        };
        let driver = &content.spec.driver;
        if !is_created(snapshot) && is_created(&shown) {
            self.options.metrics.end(Timed::Create, &snapshot.metadata.uid, driver);
            let message = format!("Snapshot {key} was successfully created by the CSI driver.");
            self.events.record(&**snapshot, EventType::Normal, "SnapshotCreated", message);
        }
        if shown.is_ready() {
            self.options.metrics.end(Timed::CreateAndReady, &snapshot.metadata.uid, driver);
            let message = format!("Snapshot {key} is ready to use.");
            self.events.record(&**snapshot, EventType::Normal, "SnapshotReady", message);
        }
        Ok(())
    }

    /// Whether a snapshot that was ready still is.
    fn verify(&self, snapshot: &VolumeSnapshot) -> Result<(), Failure> {
        let name = snapshot.bound_content().unwrap_or_default();
        let content = self.contents.store().get(name).ok_or(Failure::ContentLost)?;
        if !is_bound(&content, snapshot) {
            return Err(Failure::Misbound);
        }
        // The answer to the write of the status may have been lost.
        for timed in [Timed::Create, Timed::CreateAndReady] {
            self.options.metrics.end(timed, &snapshot.metadata.uid, &content.spec.driver);
        }
        Ok(())
    }

    /// The driver of a snapshot, as far as known.
    pub(super) fn driver_of(&self, snapshot: &VolumeSnapshot) -> Option<String> {
        let content = snapshot.bound_content().and_then(|name| self.contents.store().get(name));
        let class = snapshot.spec.volume_snapshot_class_name.as_deref();
        let class = || class.and_then(|name| self.classes.get(name));
        let driver = content.map(|content| content.spec.driver.clone());
        driver.or_else(|| class().map(|class| class.driver.clone())).map(Into::into)
    }

    /// Reports the failure in the status and in an event.
    async fn report_failure(&self, snapshot: &VolumeSnapshot, failure: &Failure) {
        let key = snapshot.metadata.key();
        let cause = std::error::Error::source(failure).map(ToString::to_string);
        tracing::warn!(snapshot = key, error = %failure, cause, "snapshot reconcile failed");
        let (reason, unusable) = match failure.report_to() {
            ReportTo::Nowhere => return,
            ReportTo::Event(reason) => {
                let message = failure.to_string();
                return self.events.record(snapshot, EventType::Warning, reason, message);
            }
            ReportTo::Status(reason) => (reason, false),
            ReportTo::Unusable(reason) => (reason, true),
        };
        let message = failure.to_string();
        let patch = status::error(snapshot, &message, unusable, Timestamp::now());
        let Some(patch) = patch else { return };
        let saved = self.snapshots.patch(&snapshot.metadata, Part::Status, &patch).await;
        self.events.record(snapshot, EventType::Warning, reason, message);
        if let Err(error) = saved {
            tracing::warn!(snapshot = key, %error, "failed to write error to status");
        }
    }
}

/// The content and the source of a snapshot.
enum Start {
    /// Its content.
    Content(Arc<VolumeSnapshotContent>),
    /// Its source, or why there is none.
    Claim(Result<Intake, TakeRefusal>),
    /// Its content existed and is gone.
    Lost,
    Nothing,
}

impl Start {
    /// Whether the existing or planned content is deleted with the snapshot.
    fn is_deleted_with_snapshot(&self) -> bool {
        let policy = match self {
            Self::Content(content) => &content.spec.deletion_policy,
            Self::Claim(Ok(intake)) => &intake.class.deletion_policy,
            Self::Claim(Err(_)) | Self::Lost | Self::Nothing => return false,
        };
        policy == "Delete"
    }
}

/// Whether nothing is left to do for a snapshot.
fn is_settled(snapshot: &VolumeSnapshot) -> bool {
    snapshot.is_ready() && snapshot.bound_content().is_some()
}
