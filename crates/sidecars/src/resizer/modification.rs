//! The operation for a claim whose volume is to have other attributes.

mod decide;
mod failure;
mod reasons;
mod status;

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
use super::{Shared, notes::rest};
use crate::secret;

/// How often a change is decided anew because the claim was written to meanwhile.
const ATTEMPTS: usize = 4;

/// What earlier attempts to change a claim's volume found out.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Verdict {
    /// The driver is known not to work on what was begun.
    settled: bool,
    /// When it has said that what is asked for cannot be.
    infeasible: Option<Instant>,
}

struct ModificationOperation {
    shared: Arc<Shared>,
    stop: CancellationToken,
}

impl Operation<Key> for ModificationOperation {
    async fn run(&self, key: Key, _: Attempt) -> Outcome {
        let work = self.shared.modify(&key);
        self.stop.run_until_cancelled(work).await.unwrap_or(Outcome::Done)
    }
}

impl Shared {
    /// Changes the volumes of claims until it is told to stop.
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
        stop.run_until_cancelled(self.look_again(&queue, |claim| self.is_modification_due(claim)))
            .await;
        drop(changes);
        claims.drain(Duration::ZERO).await;
    }

    /// Whether there is something to do for a claim.
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
                    // What was decided may be wrong by now.
                    if let Err(error) = self.claims.get(&claim.metadata).await {
                        note_error(&error);
                        tracing::warn!(claim = &**key, %error, "claim could not be read");
                        return Outcome::Retry;
                    }
                }
                Err(Failure::Mark { source: ApiFailure::NotFound { .. }, .. }) => {
                    return Outcome::Done;
                }
                Err(failure) => {
                    note_error(&failure);
                    tracing::warn!(claim = &**key, volume = volume.metadata.name, error = %failure, "volume was not modified, and is tried again");
                    if failure.is_told() {
                        let text = failure.to_string();
                        self.events.tell(&*claim, EventType::Warning, "VolumeModifyFailed", text);
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
        let verdict = self.changes.of(claim);
        // What cannot be is asked for again, but seldom.
        if is_same_wish(claim)
            && let Some(rest) = rest(verdict.infeasible, self.options.backoff.max)
        {
            return Ok(Outcome::RetryAfter(rest));
        }
        match next(claim, verdict.settled) {
            Step::Nothing => {}
            Step::Cancel => {
                let told = "Cancelled modify.";
                self.events.tell(&**claim, EventType::Normal, "VolumeModifyCanceled", told);
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
                        self.events.tell(&**claim, EventType::Warning, "VolumeModifyFailed", text);
                    }
                }
                Ok(class) => {
                    let patch = status::in_progress(claim, target, Timestamp::now());
                    let claim = self.mark(claim, &patch).await?;
                    // Nothing else is under way, or it would have to end first.
                    self.note(&claim, Verdict { settled: true, infeasible: None });
                    let name = &claim.metadata.name;
                    let text =
                        format!("external resizer is modifying volume {name} with vac {target}");
                    self.events.tell(&*claim, EventType::Normal, "VolumeModify", text);
                    self.reach(&claim, volume, &class).await?;
                }
            },
        }
        Ok(Outcome::Done)
    }

    /// The class of this name. One of another driver counts: the driver is asked, and refuses parameters that it does not
    /// know.
    fn class(&self, name: &str) -> Result<Arc<VolumeAttributesClass>, Failure> {
        self.classes.store().get(name).ok_or_else(|| Failure::NoClass(name.to_owned()))
    }

    /// Has the driver give the attributes of a class to a volume, and writes down what came of it.
    async fn reach(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        volume: &PersistentVolume,
        class: &VolumeAttributesClass,
    ) -> Result<(), Failure> {
        let call = self.call(claim, volume, class).await?;
        // From here on nobody knows, until there is an answer.
        self.changes.forget(claim);
        let mut controller = self.driver.controller();
        let send = |request| async move { controller.controller_modify_volume(request).await };
        let answer = self.driver.call("ControllerModifyVolume", send, call).await;
        let target = &class.metadata.name;
        if let Err(status) = answer {
            return Err(self.unmodified(claim, target, status).await?);
        }
        self.note(claim, Verdict { settled: true, infeasible: None });
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

    /// Notes what a refusal means for the next attempt, here and in the claim.
    async fn unmodified(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        target: &str,
        error: Status,
    ) -> Result<Failure, Failure> {
        let certain = class(&error, true) == ErrorClass::Final;
        let verdict = Verdict { settled: certain, infeasible: None };
        self.note(claim, verdict);
        let plan = |it: &PersistentVolumeClaim| {
            Some(status::failed(it, target, &error, certain, Timestamp::now()))
        };
        let saved = self.claims.edit(claim, Part::Status, plan).await;
        saved.map_err(|source| Failure::Mark { claim: claim.metadata.key(), source })?;
        // What nobody can see yet must not rest for long.
        let infeasible = status::is_infeasible(&error).then(Instant::now);
        self.note(claim, Verdict { infeasible, ..verdict });
        let still = match certain {
            true => String::new(),
            false => format!(". Still modifying to VAC {target}"),
        };
        Ok(Failure::Driver { status: Box::new(error), still })
    }

    /// The volume first: a claim that has its attributes is not looked at again.
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
        self.events.tell(&*claim, EventType::Normal, "VolumeModifySuccessful", text);
        tracing::info!(claim = claim.metadata.key(), class = target, "volume modified");
        Ok(())
    }

    fn note(&self, claim: &PersistentVolumeClaim, verdict: Verdict) {
        self.changes.note(claim, verdict, self.claims.store());
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

/// The secret that the provisioner noted for changes.
fn modify_secret(volume: &PersistentVolume) -> Option<SecretReference> {
    let noted = |key| volume.metadata.annotations.get(key).filter(|it| !it.is_empty());
    Some(SecretReference {
        name: noted(annotation::MODIFY_SECRET_NAME)?.to_owned(),
        namespace: noted(annotation::MODIFY_SECRET_NAMESPACE)?.to_owned(),
    })
}
