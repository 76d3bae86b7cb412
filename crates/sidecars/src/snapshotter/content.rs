//! The operation for one VolumeSnapshotContent.

use std::{sync::Arc, time::SystemTime};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_cluster::{ApiFailure, EventType, Key, Part, VolumeSnapshotClass, VolumeSnapshotContent};
use wharf_proto::csi::controller_service_capability::rpc;
use wharf_reconcile::{Attempt, Operation, Outcome, note_error};

use super::{
    SnapshotterCore,
    decide::{Step, is_being_created, is_settling, next},
    failure::{Failure, text},
    request::{self, Taken},
    status,
};
/// Creates, checks or deletes the snapshot of one VolumeSnapshotContent.
pub(super) struct ContentOperation {
    pub(super) shared: Arc<SnapshotterCore>,
    pub(super) stop: CancellationToken,
}

impl Operation<Key> for ContentOperation {
    async fn run(&self, key: Key, _: Attempt) -> Outcome {
        let work = self.shared.reconcile(&key);
        self.stop.run_until_cancelled(work).await.unwrap_or(Outcome::Done)
    }
}

/// Whether the driver has finished.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Finished,
    UnderWay,
}

impl SnapshotterCore {
    async fn reconcile(&self, key: &Key) -> Outcome {
        let content = self.contents.store().get(key).filter(|it| self.serves(it));
        let Some(content) = content else { return Outcome::Done };
        let step = next(&content);
        let done = match step {
            Step::Nothing => return Outcome::Done,
            Step::Create => self.create(&content).await,
            Step::Check => self.check(&content).await,
            Step::Unmark => self.unmark(&content).await.map(|_| Progress::Finished),
            Step::Delete => self.delete(&content).await,
            Step::Release => self.release(&content).await,
        };
        match done {
            Ok(Progress::Finished) => Outcome::Done,
            Ok(Progress::UnderWay) => Outcome::Retry,
            Err(failure) => {
                note_error(&failure);
                self.report_failure(step, &content, &failure).await;
                Outcome::Retry
            }
        }
    }

    /// Checks all that can be checked before the content is marked, because from then on it waits
    /// for an answer of the driver.
    async fn create(&self, content: &Arc<VolumeSnapshotContent>) -> Result<Progress, Failure> {
        let name = &content.metadata.name;
        let input = |refusal| Failure::Input { content: name.clone(), refusal: Box::new(refusal) };
        let (names, metadata) = (&self.options.names, self.options.extra_create_metadata);
        let call = |class: &VolumeSnapshotClass| request::create(content, class, names, metadata);
        let as_class_says = self.class(content).map_err(input).and_then(|class| call(&class));
        let mut call = match as_class_says {
            Ok(call) => call,
            // The driver may have the snapshot, and reports it only if the request is repeated
            // unchanged.
            Err(failure) => call(&self.first_class(content).ok_or(failure)?)?,
        };
        call.secrets = self.secrets(content).await.map_err(input)?;
        let volume = call.source_volume_id.clone();

        let is_repeated = is_being_created(&content.metadata);
        let mark = |it: &VolumeSnapshotContent| match next(it) {
            Step::Create => status::mark(it, &call.parameters),
            // Deleted meanwhile, or taken over by another process.
            _ => None,
        };
        let marked = self.contents.edit(content, Part::Main, mark).await;
        let marked = marked.map_err(|failure| Failure::Mark { content: name.clone(), failure })?;
        if next(&marked) != Step::Create {
            return Ok(Progress::Finished);
        }
        if let Some(noted) = status::noted_parameters(&marked) {
            call.parameters.retain(|key, _| status::is_metadata(key));
            call.parameters.extend(noted);
        }
        call.parameters = self.asked.first(content, call.parameters);
        match self.create_snapshot(call).await {
            Ok(snapshot) => {
                let taken = Taken::of(snapshot, SystemTime::now());
                if taken.ready {
                    self.asked.settled(content);
                }
                let saved = self.save(&marked, &taken).await?;
                self.unmark(&saved).await?;
                tracing::info!(
                    content = name,
                    handle = taken.handle,
                    ready = taken.ready,
                    "snapshot taken"
                );
                Ok(progress(taken.ready))
            }
            Err(status) => {
                if is_settling(&status, is_repeated) {
                    self.asked.settled(content);
                    self.unmark(&marked).await?;
                }
                Err(Failure::Create { volume, status: Box::new(status) })
            }
        }
    }

    /// The parameters of the first call for a content, if they are known and it had no final
    /// answer.
    fn first_class(&self, content: &VolumeSnapshotContent) -> Option<VolumeSnapshotClass> {
        if !is_being_created(&content.metadata) {
            return None;
        }
        let asked = self.asked.of(content).or_else(|| status::noted_parameters(content))?;
        let of_class = asked.iter().filter(|(key, _)| !status::is_metadata(key));
        let parameters = of_class.map(|(key, value)| (key.as_str(), value.as_str())).collect();
        Some(VolumeSnapshotClass { parameters, ..VolumeSnapshotClass::default() })
    }

    async fn check(&self, content: &Arc<VolumeSnapshotContent>) -> Result<Progress, Failure> {
        let handle = content.spec.source.snapshot_handle.clone().unwrap_or_default();
        let failed = |status: Status| Failure::Check {
            content: content.metadata.name.clone(),
            status: Box::new(status),
        };
        let secrets = self.list_secrets(content).await.map_err(Failure::Refused)?;
        let capabilities = self.driver.capabilities().await.map_err(failed)?;
        let now = SystemTime::now();
        let taken = if capabilities.controller.contains(&rpc::Type::ListSnapshots) {
            match self.find_snapshot(&handle, secrets).await.map_err(failed)? {
                Some(snapshot) => Taken { handle, ..Taken::of(snapshot, now) },
                None => {
                    let content = content.metadata.name.clone();
                    return Err(Failure::Missing { content, handle });
                }
            }
        } else {
            Taken::believed(&handle, now)
        };
        self.save(content, &taken).await?;
        Ok(progress(taken.ready))
    }

    async fn delete(&self, content: &Arc<VolumeSnapshotContent>) -> Result<Progress, Failure> {
        let name = &content.metadata.name;
        let failed =
            |event, reason: String| Failure::Delete { content: name.clone(), event, reason };
        let secrets = self
            .secrets(content)
            .await
            .map_err(|refusal| failed("Failed to get snapshot credentials", refusal.to_string()))?;
        let handle = content.status.as_ref().and_then(|status| status.snapshot_handle.clone());
        let deleted = self.delete_snapshot(handle.unwrap_or_default(), secrets).await;
        deleted.map_err(|status| failed("Failed to delete snapshot", text(&status)))?;
        tracing::info!(content = name, "snapshot deleted");

        // A content that is deleted with its last finalizer needs no status.
        let mut current = Arc::clone(content);
        if current.metadata.finalizers.len() != 1 {
            let patch = status::deleted(content);
            let cleared = self.contents.patch(&content.metadata, Part::Status, &patch).await;
            current = match cleared {
                Err(ApiFailure::NotFound { .. }) => return Ok(Progress::Finished),
                cleared => cleared.map_err(|failure| {
                    failed("Failed to clear content status", failure.to_string())
                })?,
            };
        }
        self.release(&current).await
    }

    async fn release(&self, content: &Arc<VolumeSnapshotContent>) -> Result<Progress, Failure> {
        match self.contents.edit(content, Part::Main, status::release).await {
            Ok(_) | Err(ApiFailure::NotFound { .. }) => Ok(Progress::Finished),
            Err(failure) => {
                Err(Failure::Release { content: content.metadata.name.clone(), failure })
            }
        }
    }

    async fn unmark(
        &self,
        content: &Arc<VolumeSnapshotContent>,
    ) -> Result<Arc<VolumeSnapshotContent>, Failure> {
        let unmarked = self.contents.edit(content, Part::Main, status::unmark).await;
        let name = || content.metadata.name.clone();
        unmarked.map_err(|failure| Failure::Unmark { content: name(), failure })
    }

    async fn save(
        &self,
        content: &Arc<VolumeSnapshotContent>,
        taken: &Taken,
    ) -> Result<Arc<VolumeSnapshotContent>, Failure> {
        let Some(patch) = status::taken(content, taken) else { return Ok(Arc::clone(content)) };
        let saved = self.contents.patch(&content.metadata, Part::Status, &patch).await;
        let name = || content.metadata.name.clone();
        saved.map_err(|failure| Failure::Save { content: name(), failure })
    }

    /// Reports the failure in the status and in an event.
    async fn report_failure(
        &self,
        step: Step,
        content: &Arc<VolumeSnapshotContent>,
        failure: &Failure,
    ) {
        let name = &content.metadata.name;
        tracing::warn!(content = name, ?step, error = %failure, "failed to reconcile snapshot, retrying");
        let (reason, message) = match (step, failure) {
            (Step::Delete, Failure::Delete { event, .. }) => {
                let kind = EventType::Warning;
                return self.events.record(&**content, kind, "SnapshotDeleteError", *event);
            }
            (Step::Create, _) if content.status.is_none() => {
                ("SnapshotCreationFailed", format!("Failed to create snapshot: {failure}"))
            }
            (Step::Create | Step::Check, _) => (
                "SnapshotContentCheckandUpdateFailed",
                format!("Failed to check and update snapshot content: {failure}"),
            ),
            _ => return,
        };
        let Some(patch) = status::error(content, &message, Timestamp::now()) else { return };
        let saved = self.contents.patch(&content.metadata, Part::Status, &patch).await;
        self.events.record(&**content, EventType::Warning, reason, message);
        if let Err(error) = saved {
            tracing::warn!(content = name, %error, "failed to write error to status");
        }
    }
}

fn progress(ready: bool) -> Progress {
    if ready { Progress::Finished } else { Progress::UnderWay }
}
