//! The operation for a claim to be expanded.

mod failure;
mod status;
mod target;
mod triggers;

use std::{sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use wharf_cluster::{
    ApiFailure, EventType, Key, Part, PersistentVolume, PersistentVolumeClaim, Pod, Size,
};
use wharf_csi::ErrorClass;
use wharf_facts::annotation;
use wharf_proto::csi::{CapacityRange, ControllerExpandVolumeRequest};
use wharf_reconcile::{Attempt, Operation, Outcome, Reconciler, note_error};

use self::{
    failure::{ExpandRefusal, Failure},
    target::{grows, is_complete, is_in_controller, target},
};
use super::{AHEAD, Expansion, ResizerCore, claim_states::rest};
use crate::{capability, secret};

/// The most decisions per attempt after conflicting writes to the claim.
const ATTEMPTS: usize = 4;

/// What earlier attempts to expand a claim found out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ExpansionState {
    /// This process has marked the claim as being expanded, but has not called the driver since:
    /// another size may replace the marked one.
    unasked: bool,
    /// The driver has reported that it did not do what was requested, with a final error.
    failed: bool,
    /// The driver has reported that it does not expand volumes in use.
    in_use: bool,
    /// When the driver has reported that the size is infeasible.
    infeasible: Option<Instant>,
}

struct ExpansionOperation {
    shared: Arc<ResizerCore>,
    stop: CancellationToken,
}

/// The next step for a claim.
enum Next {
    /// No call of the driver.
    End(Outcome),
    /// Request this size, which the claim is marked with.
    Grow(Arc<PersistentVolumeClaim>, Size),
}

/// The driver's answer.
struct Grown {
    size: Size,
    /// Whether the node has to expand the filesystem.
    on_node: bool,
}

impl Operation<Key> for ExpansionOperation {
    async fn run(&self, key: Key, _: Attempt) -> Outcome {
        let work = self.shared.expand(&key);
        self.stop.run_until_cancelled(work).await.unwrap_or(Outcome::Done)
    }
}

impl ResizerCore {
    /// Expands claims until `stop`.
    pub(super) async fn expand_claims(self: &Arc<Self>, stop: &CancellationToken) {
        let caches = async {
            self.claims.store().synced().await;
            self.volumes.store().synced().await;
            if self.options.in_use {
                self.pods.synced().await;
            }
        };
        if stop.run_until_cancelled(caches).await.is_none() {
            return;
        }
        let operation = ExpansionOperation { shared: Arc::clone(self), stop: stop.clone() };
        let parallelism = self.options.workers.saturating_mul(AHEAD);
        let claims = Reconciler::start(self.config("expansions", parallelism), operation);
        let queue = claims.handle();
        let changes = self.subscribe_expansions(&queue);
        stop.run_until_cancelled(self.queue_due(&queue, |claim| self.is_expansion_due(claim)))
            .await;
        drop(changes);
        claims.drain(Duration::ZERO).await;
    }

    /// Whether a claim needs a step.
    fn is_expansion_due(&self, claim: &PersistentVolumeClaim) -> bool {
        let volume = self.volume_of(claim);
        volume.is_some_and(|volume| grows(claim) || self.is_settled(claim, &volume))
    }

    /// Whether the note of the earlier size is no longer needed.
    fn is_settled(&self, claim: &PersistentVolumeClaim, volume: &PersistentVolume) -> bool {
        let noted = volume.metadata.annotations.get(annotation::PRE_RESIZE_CAPACITY).is_some();
        self.options.annotate && noted && is_complete(claim, volume)
    }

    async fn expand(&self, key: &Key) -> Outcome {
        for _ in 0..ATTEMPTS {
            let Some(claim) = self.claims.store().get(key) else { return Outcome::Done };
            let Some(volume) = self.volume_of(&claim) else { return Outcome::Done };
            match self.advance(key, &claim, &volume).await {
                Ok(outcome) => return outcome,
                Err(Failure::Begin { source: ApiFailure::Conflict { .. }, .. }) => {
                    // The decision may be outdated: decide again.
                    if let Err(error) = self.claims.get(&claim.metadata).await {
                        note_error(&error);
                        tracing::warn!(claim = &**key, %error, "failed to read claim");
                        return Outcome::Retry;
                    }
                }
                Err(failure) if failure.is_gone() => return Outcome::Done,
                Err(failure) => {
                    note_error(&failure);
                    tracing::warn!(claim = &**key, volume = volume.metadata.name, error = %failure, "failed to expand volume, retrying");
                    if failure.is_told() {
                        let text = failure.to_string();
                        self.events.record(&*claim, EventType::Warning, "VolumeResizeFailed", text);
                    }
                    return Outcome::Retry;
                }
            }
        }
        Outcome::Retry
    }

    async fn advance(
        &self,
        key: &Key,
        claim: &Arc<PersistentVolumeClaim>,
        volume: &Arc<PersistentVolume>,
    ) -> Result<Outcome, Failure> {
        let volume = self.settle(claim, volume).await?;
        if let Next::End(outcome) = self.prepare(key, claim, &volume).await? {
            return Ok(outcome);
        }
        let permit = self.growing.acquire().await;
        // The wait may have been long: the claim may request less by now, be deleted, or have
        // another volume.
        let Some(claim) = self.claims.store().get(key) else { return Ok(Outcome::Done) };
        let Some(volume) = self.volume_of(&claim) else { return Ok(Outcome::Done) };
        let (claim, target) = match self.prepare(key, &claim, &volume).await? {
            Next::End(outcome) => return Ok(outcome),
            Next::Grow(claim, target) => (claim, target),
        };
        let text = format!("External resizer is resizing volume {}", volume.metadata.name);
        self.events.record(&*claim, EventType::Normal, "Resizing", text);
        let answer = self.grow(&claim, &volume, target).await;
        // Release the permit before the writes: the driver is free for the next call.
        drop(permit);
        match answer {
            Ok(grown) => {
                self.expansion_states.forget(&claim);
                self.finish(&claim, &volume, &grown).await?;
                Ok(Outcome::Done)
            }
            Err(refusal) => {
                self.refused(&claim, &refusal).await?;
                let driver = self.options.driver.clone();
                Err(Failure::Grow { volume: name(&volume), driver, source: refusal })
            }
        }
    }

    /// Decides whether the driver has to expand a claim's volume, and marks the claim with the
    /// size. A claim that is marked already is not written.
    async fn prepare(
        &self,
        key: &Key,
        claim: &Arc<PersistentVolumeClaim>,
        volume: &PersistentVolume,
    ) -> Result<Next, Failure> {
        if !grows(claim) {
            return Ok(Next::End(Outcome::Done));
        }
        let note = self.expansion_states.of(claim);
        let idle = note.failed || note.unasked;
        if claim.metadata.deleting && (idle || !is_in_controller(claim)) {
            return Ok(Next::End(Outcome::Done));
        }
        let in_controller = self.capabilities.expansion == Expansion::Controller;
        let Some(target) = target(claim, volume, in_controller, idle) else {
            return Ok(Next::End(Outcome::Done));
        };
        let is_marked = claim.status.allocated_resources.storage == Some(target);
        // An infeasible size is requested again, but rarely.
        if is_marked && let Some(rest) = rest(note.infeasible, self.options.backoff.max) {
            return Ok(Next::End(Outcome::RetryAfter(rest)));
        }
        let claim = self.begin(claim, target).await?;
        if !is_marked {
            let note =
                ExpansionState { unasked: true, in_use: note.in_use, ..ExpansionState::default() };
            self.expansion_states.note(&claim, note, self.claims.store());
        }
        if note.in_use && self.pods.is_indexed(Pod::BY_CLAIM, key) {
            let driver = self.options.driver.clone();
            return Err(Failure::InUse { claim: key.to_string(), driver });
        }
        Ok(Next::Grow(claim, target))
    }

    async fn settle(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &Arc<PersistentVolume>,
    ) -> Result<Arc<PersistentVolume>, Failure> {
        if !self.is_settled(claim, volume) {
            return Ok(Arc::clone(volume));
        }
        let patch = status::settled(volume);
        let settled = self.volumes.patch(&volume.metadata, Part::Main, &patch).await;
        settled.map_err(|source| Failure::Settle { volume: name(volume), source })
    }

    async fn begin(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        target: Size,
    ) -> Result<Arc<PersistentVolumeClaim>, Failure> {
        let Some(patch) = status::in_progress(claim, target, Timestamp::now()) else {
            return Ok(Arc::clone(claim));
        };
        let begun = self.claims.patch(&claim.metadata, Part::Status, &patch).await;
        begun.map_err(|source| Failure::Begin { claim: claim.metadata.key(), source })
    }

    /// Has the driver expand the volume. Without controller expansion no call is made.
    async fn grow(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
        target: Size,
    ) -> Result<Grown, ExpandRefusal> {
        if self.capabilities.expansion != Expansion::Controller {
            return Ok(Grown { size: target, on_node: true });
        }
        let csi = volume.spec.csi.as_ref().ok_or(ExpandRefusal::InTree)?;
        let reference = csi.controller_expand_secret_ref.as_deref();
        let multi_writer = self.capabilities.single_node_multi_writer;
        let call = ControllerExpandVolumeRequest {
            volume_id: csi.volume_handle.clone(),
            capacity_range: Some(CapacityRange { required_bytes: target.0, limit_bytes: 0 }),
            secrets: secret::read(&self.client, reference).await?,
            volume_capability: Some(capability::of(&volume.spec, &csi.fs_type, multi_writer)?),
        };
        // From here on the driver may be working on this size, until it answers.
        let note =
            ExpansionState { unasked: false, failed: false, ..self.expansion_states.of(claim) };
        self.expansion_states.note(claim, note, self.claims.store());
        let mut controller = self.driver.controller();
        let send = |request| async move { controller.controller_expand_volume(request).await };
        let answer = self.driver.call("ControllerExpandVolume", send, call).await?;
        // A driver that returns no size has expanded at least to the requested one.
        let size = if answer.capacity_bytes > 0 { Size(answer.capacity_bytes) } else { target };
        Ok(Grown { size, on_node: answer.node_expansion_required })
    }

    /// Writes the volume first: a claim must not have more than its volume.
    async fn finish(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        volume: &PersistentVolume,
        grown: &Grown,
    ) -> Result<(), Failure> {
        let &Grown { size, on_node } = grown;
        let before = claim.status.capacity.storage.unwrap_or_default();
        let patch =
            status::capacity(volume, size, (on_node && self.options.annotate).then_some(before));
        let resized = self.volumes.patch(&volume.metadata, Part::Main, &patch).await;
        resized.map_err(|source| Failure::Resized { volume: name(volume), source })?;
        let plan = |it: &PersistentVolumeClaim| match on_node {
            true => status::node_pending(it, size, Timestamp::now()),
            false => Some(status::finished(it, size)),
        };
        let written = self.claims.edit(claim, Part::Status, plan).await;
        let written =
            written.map_err(|source| Failure::Finish { claim: claim.metadata.key(), source })?;
        let (reason, text) = match on_node {
            true => ("FileSystemResizeRequired", "Require file system resize of volume on node"),
            false => ("VolumeResizeSuccessful", "Resize volume succeeded"),
        };
        // The node may have finished by now, after an attempt whose answer was lost.
        if !on_node || status::is_node_pending(&written) {
            self.events.record(&*written, EventType::Normal, reason, text);
        }
        tracing::info!(claim = claim.metadata.key(), volume = volume.metadata.name, %size, on_node, "volume expanded");
        Ok(())
    }

    /// Records a failure for the next attempt, here and in the claim.
    async fn refused(
        &self,
        claim: &PersistentVolumeClaim,
        refusal: &ExpandRefusal,
    ) -> Result<(), Failure> {
        if !refusal.is_answer() {
            return Ok(());
        }
        let in_use = refusal.is_in_use() && self.options.in_use;
        let note = |note| self.expansion_states.note(claim, note, self.claims.store());
        if refusal.class() != ErrorClass::Final {
            note(ExpansionState { in_use, ..ExpansionState::default() });
            return Ok(());
        }
        let state = ExpansionState { failed: true, in_use, ..ExpansionState::default() };
        note(state);
        let infeasible = refusal.is_infeasible();
        let patch = status::failed(claim, &refusal.to_string(), infeasible, Timestamp::now());
        let saved = self.claims.patch(&claim.metadata, Part::Status, &patch).await;
        saved.map_err(|source| Failure::Save {
            claim: claim.metadata.key(),
            refusal: refusal.to_string(),
            source,
        })?;
        // A failure that could not be written to the claim must not wait for long.
        note(ExpansionState { infeasible: infeasible.then(Instant::now), ..state });
        Ok(())
    }
}

fn name(volume: &PersistentVolume) -> String {
    volume.metadata.name.clone()
}
