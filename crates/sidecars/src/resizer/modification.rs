//! The operation for a claim whose volume is to be modified.

mod decide;
mod failure;
mod status;
mod triggers;

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use jiff::Timestamp;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_cluster::{
    ApiFailure, EventType, Key, Part, Patch, PersistentVolume, PersistentVolumeClaim,
    SecretReference, VolumeAttributesClass,
};
use wharf_csi::{ErrorClass, class};
use wharf_facts::{annotation, context};
use wharf_proto::csi::ControllerModifyVolumeRequest;
use wharf_reconcile::{Attempt, Operation, Outcome, Reconciler, note_error};

use self::{
    decide::{Step, is_same_wish, next},
    failure::Failure,
};
use super::{ResizerCore, claim_states::rest};
use crate::secret;

/// The most decisions per attempt after conflicting writes to the claim.
const ATTEMPTS: usize = 4;

/// What earlier attempts to modify a claim's volume found out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct ModificationState {
    /// The driver is known not to work on the last request.
    settled: bool,
    /// When the driver has reported that the class is infeasible.
    infeasible: Option<Instant>,
}

struct ModificationOperation {
    shared: Arc<ResizerCore>,
    stop: CancellationToken,
}

impl Operation<Key> for ModificationOperation {
    async fn run(&self, key: Key, _: Attempt) -> Outcome {
        let work = self.shared.modify(&key);
        self.stop.run_until_cancelled(work).await.unwrap_or(Outcome::Done)
    }
}

impl ResizerCore {
    /// Modifies the volumes of claims until `stop`.
    pub(super) async fn modify_claims(self: &Arc<Self>, stop: &CancellationToken) {
        let caches = async {
            self.claims.store().synced().await;
            self.volumes.store().synced().await;
            self.classes.store().synced().await;
        };
        if stop.run_until_cancelled(caches).await.is_none() {
            return;
        }
        let operation = ModificationOperation { shared: Arc::clone(self), stop: stop.clone() };
        let claims =
            Reconciler::start(self.config("modifications", self.options.workers), operation);
        let queue = claims.handle();
        let changes = self.subscribe_modifications(&queue);
        stop.run_until_cancelled(self.queue_due(&queue, |claim| self.is_modification_due(claim)))
            .await;
        drop(changes);
        claims.drain(Duration::ZERO).await;
    }

    /// Whether a claim needs a step.
    fn is_modification_due(&self, claim: &PersistentVolumeClaim) -> bool {
        next(claim, false) != Step::Nothing && self.volume_of(claim).is_some()
    }

    async fn modify(&self, key: &Key) -> Outcome {
        for _ in 0..ATTEMPTS {
            let Some(claim) = self.claims.store().get(key) else { return Outcome::Done };
            let Some(volume) = self.volume_of(&claim) else { return Outcome::Done };
            match self.change(&claim, &volume).await {
                Ok(outcome) => return outcome,
                Err(Failure::Mark { source: ApiFailure::Conflict { .. }, .. }) => {
                    // The decision may be outdated: decide again.
                    if let Err(error) = self.claims.get(&claim.metadata).await {
                        note_error(&error);
                        tracing::warn!(claim = &**key, %error, "failed to read claim");
                        return Outcome::Retry;
                    }
                }
                Err(Failure::Mark { source: ApiFailure::NotFound { .. }, .. }) => {
                    return Outcome::Done;
                }
                Err(failure) => {
                    note_error(&failure);
                    tracing::warn!(claim = &**key, volume = volume.metadata.name, error = %failure, "failed to modify volume, retrying");
                    if failure.is_told() {
                        let text = failure.to_string();
                        self.events.record(&*claim, EventType::Warning, "VolumeModifyFailed", text);
                    }
                    return Outcome::Retry;
                }
            }
        }
        Outcome::Retry
    }

    async fn change(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        volume: &PersistentVolume,
    ) -> Result<Outcome, Failure> {
        let state = self.changes.of(claim);
        // An infeasible class is requested again, but rarely.
        if is_same_wish(claim)
            && let Some(rest) = rest(state.infeasible, self.options.backoff.max)
        {
            return Ok(Outcome::RetryAfter(rest));
        }
        match next(claim, state.settled) {
            Step::Nothing => {}
            Step::Cancel => {
                let text = "Cancelled modify.";
                self.events.record(&**claim, EventType::Normal, "VolumeModifyCanceled", text);
                self.mark(claim, &status::cancelled(claim)).await?;
            }
            Step::GoOn(target) => {
                let class = self.class(target)?;
                self.reach(claim, volume, &class).await?;
            }
            Step::Begin(target) => match self.class(target) {
                Err(missing) => {
                    if let Some(patch) = status::pending(claim) {
                        self.mark(claim, &patch).await?;
                        let text = missing.to_string();
                        self.events.record(
                            &**claim,
                            EventType::Warning,
                            "VolumeModifyFailed",
                            text,
                        );
                    }
                }
                Ok(class) => {
                    let patch = status::in_progress(claim, target, Timestamp::now());
                    let claim = self.mark(claim, &patch).await?;
                    // No other modification is in progress, or it would have to end first.
                    self.note(&claim, ModificationState { settled: true, infeasible: None });
                    let name = &claim.metadata.name;
                    let text =
                        format!("external resizer is modifying volume {name} with vac {target}");
                    self.events.record(&*claim, EventType::Normal, "VolumeModify", text);
                    self.reach(&claim, volume, &class).await?;
                }
            },
        }
        Ok(Outcome::Done)
    }

    /// The class of this name. One of another driver counts: the driver is called, and refuses
    /// unknown parameters.
    fn class(&self, name: &str) -> Result<Arc<VolumeAttributesClass>, Failure> {
        self.classes.store().get(name).ok_or_else(|| Failure::NoClass(name.to_owned()))
    }

    /// Has the driver apply the parameters of a class to a volume, and writes the result.
    async fn reach(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        volume: &PersistentVolume,
        class: &VolumeAttributesClass,
    ) -> Result<(), Failure> {
        let call = self.call(claim, volume, class).await?;
        // From here on the state is unknown until an answer.
        self.changes.forget(claim);
        let mut controller = self.driver.controller();
        let send = |request| async move { controller.controller_modify_volume(request).await };
        let answer = self.driver.call("ControllerModifyVolume", send, call).await;
        let target = &class.metadata.name;
        if let Err(status) = answer {
            return Err(self.unmodified(claim, target, status).await?);
        }
        self.note(claim, ModificationState { settled: true, infeasible: None });
        self.complete(claim, volume, target).await?;
        self.changes.forget(claim);
        Ok(())
    }

    async fn call(
        &self,
        claim: &PersistentVolumeClaim,
        volume: &PersistentVolume,
        class: &VolumeAttributesClass,
    ) -> Result<ControllerModifyVolumeRequest, Failure> {
        let name = || volume.metadata.name.clone();
        let csi = volume.spec.csi.as_ref().ok_or_else(|| Failure::InTree(name()))?;
        let named = modify_secret(volume);
        let reference = named.as_ref().or(csi.controller_expand_secret_ref.as_deref());
        let mut mutable_parameters: BTreeMap<String, String> = class.parameters.to_map();
        if self.options.extra_metadata {
            let namespace = claim.metadata.namespace.clone().unwrap_or_default();
            mutable_parameters.extend([
                (context::PVC_NAME.to_owned(), claim.metadata.name.clone()),
                (context::PVC_NAMESPACE.to_owned(), namespace),
                (context::PV_NAME.to_owned(), name()),
            ]);
        }
        Ok(ControllerModifyVolumeRequest {
            volume_id: csi.volume_handle.clone(),
            secrets: secret::read(&self.client, reference).await?,
            mutable_parameters,
        })
    }

    /// Records a failure for the next attempt, here and in the claim.
    async fn unmodified(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        target: &str,
        error: Status,
    ) -> Result<Failure, Failure> {
        let certain = class(&error, true) == ErrorClass::Final;
        let state = ModificationState { settled: certain, infeasible: None };
        self.note(claim, state);
        let plan = |it: &PersistentVolumeClaim| {
            Some(status::failed(it, target, &error, certain, Timestamp::now()))
        };
        let saved = self.claims.edit(claim, Part::Status, plan).await;
        saved.map_err(|source| Failure::Mark { claim: claim.metadata.key(), source })?;
        // A failure that could not be written to the claim must not wait for long.
        let infeasible = status::is_infeasible(&error).then(Instant::now);
        self.note(claim, ModificationState { infeasible, ..state });
        let still = match certain {
            true => String::new(),
            false => format!(". Still modifying to VAC {target}"),
        };
        Ok(Failure::Driver { status: Box::new(error), still })
    }

    /// Writes the volume first: a claim that has its class is not processed again.
    async fn complete(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        volume: &PersistentVolume,
        target: &str,
    ) -> Result<(), Failure> {
        let patch = status::class(volume, target);
        let written = self.volumes.patch(&volume.metadata, Part::Main, &patch).await;
        written.map_err(|source| Failure::Volume { claim: claim.metadata.key(), source })?;
        let claim = self.mark(claim, &status::completed(claim, target)).await?;
        let name = &claim.metadata.name;
        let text =
            format!("external resizer modified volume {name} with vac {target} successfully");
        self.events.record(&*claim, EventType::Normal, "VolumeModifySuccessful", text);
        tracing::info!(claim = claim.metadata.key(), class = target, "volume modified");
        Ok(())
    }

    fn note(&self, claim: &PersistentVolumeClaim, state: ModificationState) {
        self.changes.note(claim, state, self.claims.store());
    }

    async fn mark(
        &self,
        claim: &PersistentVolumeClaim,
        patch: &Patch,
    ) -> Result<Arc<PersistentVolumeClaim>, Failure> {
        let marked = self.claims.patch(&claim.metadata, Part::Status, patch).await;
        marked.map_err(|source| Failure::Mark { claim: claim.metadata.key(), source })
    }
}

/// The secret that the provisioner noted for ControllerModifyVolume.
fn modify_secret(volume: &PersistentVolume) -> Option<SecretReference> {
    let noted = |key| volume.metadata.annotations.get(key).filter(|it| !it.is_empty());
    Some(SecretReference {
        name: noted(annotation::MODIFY_SECRET_NAME)?.to_owned(),
        namespace: noted(annotation::MODIFY_SECRET_NAMESPACE)?.to_owned(),
    })
}
