//! Creates one volume.

use std::{pin::pin, sync::Arc};

use serde_json::Value;
use tokio::time::timeout;
use tonic::Status;
use wharf_cluster::{Kind, PersistentVolumeClaim, StorageClass};
use wharf_proto::csi::{CreateVolumeRequest, DeleteVolumeRequest, Volume};

use super::{
    ProvisionerCore,
    decide::{Reaction, reaction},
    failure::{Failure, Mismatch},
    ledger::{Asked, Begun, Stage},
    persistent_volume::{Made, persistent_volume},
    plan::Plan,
    request::is_for_readers,
};
use crate::secret;

/// Attempts to delete a volume that differs from the request.
const CLEANUPS: usize = 5;

impl ProvisionerCore {
    /// Calls CreateVolume and describes the result. `None` if the claim changed before the call:
    /// its change has queued it again.
    pub(super) async fn provision(
        &self,
        claim: &Arc<PersistentVolumeClaim>,
        class: &Arc<StorageClass>,
    ) -> Result<Option<Value>, Failure> {
        let planned = self.plan(claim, class, None).await;
        let before = self.ledger.asked(&claim.metadata.uid);
        let is_repeated = before.is_some();
        let (plan, class) = match (planned, before) {
            // An answer to a different request would not report the state of the first volume.
            (Ok(plan), Some(first)) if !first.plan.is_same_class(&plan) => self.again(first).await,
            (Ok(plan), _) => (Arc::new(plan), Arc::clone(class)),
            // Parts of the plan may be gone with the claim, or its class may be refused by now, and
            // only the driver can report the state of the volume.
            (Err(failure), Some(first)) => {
                tracing::debug!(claim = claim.title(), error = %failure, "repeating the request as it was");
                self.again(first).await
            }
            (Err(failure), None) => return Err(failure),
        };
        if !is_repeated && !self.is_current(claim) {
            return Ok(None);
        }
        // Whatever fails from here on, the driver may be working on the volume until it reports
        // otherwise.
        let asked = Asked { class: Arc::clone(&class), plan: Arc::clone(&plan) };
        self.ledger.begin(Begun { claim: Arc::clone(claim), stage: Stage::Asked(asked) });
        if is_repeated {
            // An earlier attempt to mark the claim may have failed.
            self.mark(claim).await;
        }
        let volume = self.make(claim, &plan).await?;
        let asked = plan.call.capacity_range.map_or(0, |range| range.required_bytes);
        let size = if volume.capacity_bytes == 0 { asked } else { volume.capacity_bytes };
        Ok(Some(persistent_volume(&Made {
            name: &plan.call.name,
            driver: &self.options.driver,
            identity: &self.identity,
            claim,
            class: &class,
            fs_type: &plan.fs_type,
            secrets: &plan.secrets,
            read_only: self.options.read_only_for_readers && is_for_readers(&plan.call),
            placed: plan.placed,
            attributes_class: plan.attributes_class.as_deref(),
            volume: &volume,
            size,
        })))
    }

    /// The earlier request, with the current secrets.
    pub(super) async fn again(
        &self,
        Asked { class, plan }: Asked,
    ) -> (Arc<Plan>, Arc<StorageClass>) {
        let mut plan = (*plan).clone();
        // Secrets may have changed; if they are gone, the earlier ones are used.
        if let Ok(now) = secret::read(&self.client, plan.secrets.provisioner.as_ref()).await {
            plan.call.secrets = now;
        }
        (Arc::new(plan), class)
    }

    /// Whether the claim is unchanged since it was read: reading the parts of a plan may take long.
    fn is_current(&self, claim: &PersistentVolumeClaim) -> bool {
        let now = self.claims.store().get(&claim.metadata.key());
        reaction(Some(claim), now.as_deref(), &self.options.driver) == Reaction::None
    }

    /// The volume if it fulfils the request.
    async fn make(&self, claim: &PersistentVolumeClaim, plan: &Plan) -> Result<Volume, Failure> {
        let call = &plan.call;
        let mut answer = pin!(self.create_volume(call.clone()));
        let answer = match timeout(self.options.mark_after, &mut answer).await {
            Ok(answer) => answer,
            Err(_) => tokio::join!(answer, self.mark(claim)).0,
        };
        let volume = answer?.unwrap_or_default();
        let Some(mismatch) = mismatch(call, &volume) else { return Ok(volume) };
        let cleanup = self.clean_up(call, volume.volume_id).await.err();
        let (name, cleanup) = (call.name.clone(), cleanup.map(Box::new));
        Err(Failure::Mismatch { mismatch, name, cleanup })
    }

    pub(super) async fn create_volume(
        &self,
        call: CreateVolumeRequest,
    ) -> Result<Option<Volume>, Status> {
        let mut controller = self.driver.controller();
        let send = |request| async move { controller.create_volume(request).await };
        let answer = self.driver.call("CreateVolume", send, call).await?;
        Ok(answer.volume)
    }

    async fn clean_up(&self, call: &CreateVolumeRequest, volume_id: String) -> Result<(), Status> {
        if volume_id.is_empty() {
            return Ok(());
        }
        let call = DeleteVolumeRequest { volume_id, secrets: call.secrets.clone() };
        let mut outcome = Ok(());
        for _ in 0..CLEANUPS {
            outcome = self.delete_volume(call.clone()).await;
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }
}

/// How the volume differs from the request.
fn mismatch(call: &CreateVolumeRequest, volume: &Volume) -> Option<Mismatch> {
    let asked = call.capacity_range.map_or(0, |range| range.required_bytes);
    // A size of zero means that the driver does not report it.
    if volume.capacity_bytes != 0 && volume.capacity_bytes < asked {
        return Some(Mismatch::TooSmall { made: volume.capacity_bytes, asked });
    }
    if call.volume_content_source.is_some() && volume.content_source.is_none() {
        return Some(Mismatch::Empty);
    }
    volume.volume_id.is_empty().then_some(Mismatch::Nameless)
}

#[cfg(test)]
mod tests {
    use wharf_proto::csi::{CapacityRange, VolumeContentSource};

    use super::*;

    #[test]
    fn a_volume_is_compared_with_the_wish() {
        let call = CreateVolumeRequest {
            capacity_range: Some(CapacityRange { required_bytes: 10, limit_bytes: 0 }),
            ..CreateVolumeRequest::default()
        };
        let volume = |capacity_bytes| Volume {
            volume_id: "v".to_owned(),
            capacity_bytes,
            ..Volume::default()
        };
        for enough in [0, 10, 11] {
            assert_eq!(mismatch(&call, &volume(enough)), None, "{enough}");
        }
        let small = Mismatch::TooSmall { made: 9, asked: 10 };
        assert_eq!(mismatch(&call, &volume(9)), Some(small));
        let copied = CreateVolumeRequest {
            volume_content_source: Some(VolumeContentSource::default()),
            ..call.clone()
        };
        assert_eq!(mismatch(&copied, &volume(10)), Some(Mismatch::Empty));
        let nameless = Volume { volume_id: String::new(), ..volume(10) };
        assert_eq!(mismatch(&call, &nameless), Some(Mismatch::Nameless));
    }
}
