//! Writes the outcome of an attempt to create a volume.

use std::sync::Arc;

use serde::Deserialize;
use serde_json::Value;
use tokio::time::Instant;
use wharf_cluster::{
    ApiFailure, EventType, Kind, NodeAffinity, PersistentVolumeClaim, StorageClass,
};
use wharf_facts::annotation::SELECTED_NODE;
use wharf_reconcile::{Outcome, note_error};

use super::{
    ProvisionerCore,
    decide::selected_node,
    failure::Failure,
    ledger::{Begun, Stage},
    state::{State, is_infeasible, is_settling},
};

impl ProvisionerCore {
    /// Creates the PersistentVolume, and keeps the volume for the next attempt if that fails: it
    /// must not be lost.
    pub(super) async fn save(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        object: &Arc<Value>,
        began: Instant,
    ) -> Outcome {
        let uid = &claim.metadata.uid;
        let name = object["metadata"]["name"].as_str().unwrap_or_default();
        match self.volumes.create(object).await {
            // A PersistentVolume of this name has the same volume.
            Ok(_) | Err(ApiFailure::Conflict { .. }) => {}
            Err(error) => {
                note_error(&error);
                tracing::warn!(
                    claim = claim.title(),
                    volume = name,
                    %error,
                    "failed to create PersistentVolume, retrying"
                );
                // Only the note of the request leads the next leader to the volume.
                self.mark(claim).await;
                if let Some(asked) = self.ledger.asked(uid) {
                    let stage = Stage::Made { asked, object: Arc::clone(object), began };
                    self.ledger.begin(Begun { claim: Arc::clone(claim), stage });
                }
                return Outcome::Retry;
            }
        }
        self.ledger.forget(uid);
        self.refresh_capacity(&object["spec"]["nodeAffinity"], claim.class());
        self.options.metrics.provisioned(claim, Some(began.elapsed()));
        let message = format!("Successfully provisioned volume {name}");
        self.events.record(&**claim, EventType::Normal, "ProvisioningSucceeded", message);
        tracing::info!(claim = claim.title(), volume = name, "volume provisioned");
        self.release_source_of(claim, true).await;
        match self.marked(claim) {
            Some(marked) => self.unmark(&marked).await,
            None => Outcome::Done,
        }
    }

    /// Reports the failure, and decides the next step.
    pub(super) async fn fail(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        class: &StorageClass,
        failure: &Failure,
    ) -> Outcome {
        note_error(failure);
        let uid = &claim.metadata.uid;
        let movable = selected_node(claim).is_some() && self.has_places().await;
        let state = failure.state(movable);
        self.options.metrics.provisioned(claim, None);
        if state == State::InBackground {
            tracing::warn!(claim = claim.title(), error = %failure, "CreateVolume has no final answer");
            self.mark(claim).await;
        } else {
            tracing::warn!(claim = claim.title(), ?state, error = %failure, "failed to create volume for claim");
        }
        let infeasible = failure.code().is_some_and(is_infeasible);
        let message = match infeasible {
            true => format!(
                "Volume provisioning failed with infeasible error. Retries will be delayed. {failure}"
            ),
            false => failure.to_string(),
        };
        self.events.record(&**claim, EventType::Warning, "ProvisioningFailed", message);
        if state != State::NoChange {
            self.refresh_capacity(&Value::Null, claim.class());
        }
        match state {
            State::InBackground | State::NoChange => return Outcome::Retry,
            State::Finished | State::Reschedule => {
                let marked = self.marked(claim);
                // The answer may be about a request other than the one without a final answer, or
                // no call was made.
                let is_settled = |marked: &Arc<PersistentVolumeClaim>| {
                    failure.code().is_some_and(is_settling) && self.is_noted(marked)
                };
                let is_ended = self.ledger.is_ended_by(uid, failure.code());
                if is_ended && marked.as_ref().is_none_or(is_settled) {
                    self.ledger.end(uid);
                    self.ledger.forget_memory(uid);
                    self.release_source_of(claim, false).await;
                    if let Some(marked) = marked {
                        // If the write fails, it is repeated after the next answer.
                        self.unmark(&marked).await;
                    }
                }
            }
        }
        if infeasible {
            let pause = self.options.backoff.max;
            self.ledger.slow_down(uid, &class.metadata.uid, pause);
            return Outcome::RetryAfter(pause);
        }
        if state == State::Reschedule && selected_node(claim).is_some() {
            return self.reschedule(claim).await;
        }
        Outcome::Retry
    }

    fn refresh_capacity(&self, affinity: &Value, class: Option<&str>) {
        if let Some(capacities) = &self.capacities {
            let affinity: Option<NodeAffinity> = NodeAffinity::deserialize(affinity).ok();
            capacities.refresh(affinity.as_ref(), class.unwrap_or_default());
        }
    }

    async fn has_places(&self) -> bool {
        self.capabilities().await.is_ok_and(|capabilities| capabilities.topology)
    }

    /// Asks the scheduler to select another node.
    async fn reschedule(&self, claim: &Arc<PersistentVolumeClaim>) -> Outcome {
        let of = &claim.metadata;
        let updated = self.claims.update(of, |document| {
            let metadata = &mut document["metadata"];
            if metadata["uid"] == of.uid.as_str()
                && let Some(annotations) = metadata["annotations"].as_object_mut()
            {
                annotations.remove(SELECTED_NODE);
            }
        });
        match updated.await {
            Ok(_) => {
                tracing::info!(
                    claim = claim.title(),
                    "asking the scheduler to select another node"
                );
                Outcome::Done
            }
            Err(error) => {
                note_error(&error);
                tracing::warn!(claim = claim.title(), %error, "failed to ask the scheduler for another node");
                Outcome::Retry
            }
        }
    }
}
