//! The operation for a claim that is to grow.

mod failure;
mod reasons;
mod status;
mod target;

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
    failure::{Failure, Refusal},
    target::{grows, is_complete, is_in_controller, target},
};
use super::{AHEAD, Expansion, Shared, notes::rest};
use crate::{capability, secret};

/// How often a growth is decided again because the claim was written to meanwhile.
const ATTEMPTS: usize = 4;

/// What earlier attempts to grow a claim found out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Growth {
    /// This process has marked the claim as growing, and has not asked the driver since: another size may take the place
    /// of the marked one.
    unasked: bool,
    /// The driver has said for certain that it did not do what was begun.
    failed: bool,
    /// It has said that it does not grow volumes in use.
    in_use: bool,
    /// When it has said that what is asked for cannot be.
    infeasible: Option<Instant>,
}

struct ExpansionOperation {
    shared: Arc<Shared>,
    stop: CancellationToken,
}

/// What comes next for a claim.
enum Next {
    /// Nothing is asked of the driver.
    End(Outcome),
    /// The driver is asked for this size, which the claim is marked with.
    Grow(Arc<PersistentVolumeClaim>, Size),
}

/// What the driver has made of a volume.
struct Grown {
    size: Size,
    /// Whether the node has something to do as well.
    on_node: bool,
}

impl Operation<Key> for ExpansionOperation {
    async fn run(&self, key: Key, _: Attempt) -> Outcome {
        let work = self.shared.expand(&key);
        self.stop.run_until_cancelled(work).await.unwrap_or(Outcome::Done)
    }
}

impl Shared {
    /// Grows claims until it is told to stop.
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
        stop.run_until_cancelled(self.look_again(&queue, |claim| self.is_expansion_due(claim)))
            .await;
        drop(changes);
        claims.drain(Duration::ZERO).await;
    }

    /// Whether there is something to do for a claim.
    fn is_expansion_due(&self, claim: &PersistentVolumeClaim) -> bool {
        let volume = self.volume_of(claim);
        volume.is_some_and(|volume| grows(claim) || self.is_settled(claim, &volume))
    }

    /// Whether the note of the size before a growth has served its purpose.
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
                    // What was decided may be wrong by now.
                    if let Err(error) = self.claims.get(&claim.metadata).await {
                        note_error(&error);
                        tracing::warn!(claim = &**key, %error, "claim could not be read");
                        return Outcome::Retry;
                    }
                }
                Err(failure) if failure.is_gone() => return Outcome::Done,
                Err(failure) => {
                    note_error(&failure);
                    tracing::warn!(claim = &**key, volume = volume.metadata.name, error = %failure, "volume did not grow, and is tried again");
                    if failure.is_told() {
                        let text = failure.to_string();
                        self.events.tell(&*claim, EventType::Warning, "VolumeResizeFailed", text);
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
        // The wait may have been long: the claim may ask for less by now, be deleted, or have another volume.
        let Some(claim) = self.claims.store().get(key) else { return Ok(Outcome::Done) };
        let Some(volume) = self.volume_of(&claim) else { return Ok(Outcome::Done) };
        let (claim, target) = match self.prepare(key, &claim, &volume).await? {
            Next::End(outcome) => return Ok(outcome),
            Next::Grow(claim, target) => (claim, target),
        };
        let text = format!("External resizer is resizing volume {}", volume.metadata.name);
        self.events.tell(&*claim, EventType::Normal, "Resizing", text);
        let answer = self.grow(&claim, &volume, target).await;
        // The driver is free for the next one.
        drop(permit);
        match answer {
            Ok(grown) => {
                self.growths.forget(&claim);
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

    /// Decides whether the driver is to grow a claim's volume, and marks the claim with the size. A claim that is marked
    /// already is not written to.
    async fn prepare(
        &self,
        key: &Key,
        claim: &Arc<PersistentVolumeClaim>,
        volume: &PersistentVolume,
    ) -> Result<Next, Failure> {
        if !grows(claim) {
            return Ok(Next::End(Outcome::Done));
        }
        let note = self.growths.of(claim);
        let idle = note.failed || note.unasked;
        if claim.metadata.deleting && (idle || !is_in_controller(claim)) {
            return Ok(Next::End(Outcome::Done));
        }
        let in_controller = self.abilities.expansion == Expansion::Controller;
        let Some(target) = target(claim, volume, in_controller, idle) else {
            return Ok(Next::End(Outcome::Done));
        };
        let is_marked = claim.status.allocated_resources.storage == Some(target);
        // What cannot be is asked for again, but seldom.
        if is_marked && let Some(rest) = rest(note.infeasible, self.options.backoff.max) {
            return Ok(Next::End(Outcome::RetryAfter(rest)));
        }
        let claim = self.begin(claim, target).await?;
        if !is_marked {
            let note = Growth { unasked: true, in_use: note.in_use, ..Growth::default() };
            self.growths.note(&claim, note, self.claims.store());
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

    /// Has the driver grow the volume. Where that is done on the node alone, there is nothing to ask it for.
    async fn grow(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
        target: Size,
    ) -> Result<Grown, Refusal> {
        if self.abilities.expansion != Expansion::Controller {
            return Ok(Grown { size: target, on_node: true });
        }
        let csi = volume.spec.csi.as_ref().ok_or(Refusal::InTree)?;
        let reference = csi.controller_expand_secret_ref.as_deref();
        let multi_writer = self.abilities.single_node_multi_writer;
        let call = ControllerExpandVolumeRequest {
            volume_id: csi.volume_handle.clone(),
            capacity_range: Some(CapacityRange { required_bytes: target.0, limit_bytes: 0 }),
            secrets: secret::read(&self.client, reference).await?,
            volume_capability: Some(capability::of(&volume.spec, &csi.fs_type, multi_writer)?),
        };
        // From here on the driver may be at work on this size, until it answers.
        let note = Growth { unasked: false, failed: false, ..self.growths.of(claim) };
        self.growths.note(claim, note, self.claims.store());
        let mut controller = self.driver.controller();
        let send = |request| async move { controller.controller_expand_volume(request).await };
        let answer = self.driver.call("ControllerExpandVolume", send, call).await?;
        // A driver that leaves the size out has at least done what it was told.
        let size = if answer.capacity_bytes > 0 { Size(answer.capacity_bytes) } else { target };
        Ok(Grown { size, on_node: answer.node_expansion_required })
    }

    /// The volume first: a claim must not have more than its volume.
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
        // The node may be done by now, after an attempt whose answer was lost.
        if !on_node || status::is_node_pending(&written) {
            self.events.tell(&*written, EventType::Normal, reason, text);
        }
        tracing::info!(claim = claim.metadata.key(), volume = volume.metadata.name, %size, on_node, "volume has grown");
        Ok(())
    }

    /// Notes what a refusal means for the next attempt, here and in the claim.
    async fn refused(
        &self,
        claim: &PersistentVolumeClaim,
        refusal: &Refusal,
    ) -> Result<(), Failure> {
        if !refusal.is_answer() {
            return Ok(());
        }
        let in_use = refusal.is_in_use() && self.options.in_use;
        let note = |note| self.growths.note(claim, note, self.claims.store());
        if refusal.class() != ErrorClass::Final {
            note(Growth { in_use, ..Growth::default() });
            return Ok(());
        }
        let growth = Growth { failed: true, in_use, ..Growth::default() };
        note(growth);
        let infeasible = refusal.is_infeasible();
        let patch = status::failed(claim, &refusal.to_string(), infeasible, Timestamp::now());
        let saved = self.claims.patch(&claim.metadata, Part::Status, &patch).await;
        saved.map_err(|source| Failure::Save {
            claim: claim.metadata.key(),
            refusal: refusal.to_string(),
            source,
        })?;
        // What nobody can see yet must not rest for long.
        note(Growth { infeasible: infeasible.then(Instant::now), ..growth });
        Ok(())
    }
}

fn name(volume: &PersistentVolume) -> String {
    volume.metadata.name.clone()
}
