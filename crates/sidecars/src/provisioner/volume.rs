//! The operation for one PersistentVolume.

use std::{collections::BTreeMap, sync::Arc};

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_cluster::{
    ApiFailure, Attributes, EventType, Key, Part, Patch, PersistentVolume, SecretReference,
    VolumeAttachment,
};
use wharf_facts::{annotation, finalizer};
use wharf_proto::csi::DeleteVolumeRequest;
use wharf_reconcile::{Attempt, Operation, Outcome, note_error};

use super::{
    ProvisionerCore,
    decide::{VolumeNeed, volume_need},
    failure::Failure,
    secrets::{SecretKind, SecretRefusal, Subject},
    topology::is_within,
};
use crate::secret;

/// Keeps a finalizer on a PersistentVolume for as long as its volume exists, and deletes both.
pub(super) struct VolumeOperation(pub(super) Arc<ProvisionerCore>, pub(super) CancellationToken);

impl Operation<Key> for VolumeOperation {
    async fn run(&self, key: Key, _: Attempt) -> Outcome {
        let Self(shared, stop) = self;
        stop.run_until_cancelled(shared.reconcile_volume(&key)).await.unwrap_or(Outcome::Done)
    }
}

impl ProvisionerCore {
    /// The next step of this provisioner for a volume.
    pub(super) fn volume_need(&self, volume: &PersistentVolume) -> VolumeNeed {
        volume_need(volume, &self.options.driver)
    }

    async fn reconcile_volume(&self, key: &Key) -> Outcome {
        let Some(volume) = self.volumes.store().get(key) else { return Outcome::Done };
        let need = self.volume_need(&volume);
        let written = match need {
            VolumeNeed::Nothing => return Outcome::Done,
            VolumeNeed::Deletion => return self.delete(&volume).await,
            VolumeNeed::Protection => self.protect(&volume).await,
            VolumeNeed::Release => self.release(&volume, VolumeNeed::Release).await,
        };
        match written {
            Ok(_) | Err(ApiFailure::NotFound { .. }) => Outcome::Done,
            Err(error) => {
                note_error(&error);
                tracing::warn!(volume = &**key, ?need, %error, "failed to write finalizer of PersistentVolume, retrying");
                Outcome::Retry
            }
        }
    }

    async fn protect(
        &self,
        volume: &Arc<PersistentVolume>,
    ) -> Result<Arc<PersistentVolume>, ApiFailure> {
        let plan = |it: &PersistentVolume| {
            let wanted = self.volume_need(it) == VolumeNeed::Protection;
            wanted.then(|| Patch::add_finalizer(&it.metadata, finalizer::PROVISIONER))
        };
        self.volumes.edit(volume, Part::Main, plan).await
    }

    /// Removes the finalizer of a PersistentVolume if the need for that is unchanged.
    async fn release(
        &self,
        volume: &Arc<PersistentVolume>,
        reason: VolumeNeed,
    ) -> Result<Arc<PersistentVolume>, ApiFailure> {
        let plan = |it: &PersistentVolume| match self.volume_need(it) == reason {
            true => Patch::remove_finalizer(&it.metadata, finalizer::PROVISIONER),
            false => None,
        };
        self.volumes.edit(volume, Part::Main, plan).await
    }

    async fn delete(&self, volume: &Arc<PersistentVolume>) -> Outcome {
        let Some(csi) = &volume.spec.csi else { return Outcome::Done };
        if self.is_elsewhere(volume) {
            return Outcome::Done;
        }
        let name = &volume.metadata.name;
        let began = Instant::now();
        let deleted = async {
            self.delete_behind(volume, &csi.volume_handle).await?;
            self.delete_object(volume).await.map_err(Failure::DeleteObject)
        };
        match deleted.await {
            Ok(()) => {
                self.options.metrics.deleted(volume, Some(began.elapsed()));
                if let (Some(capacities), Some(affinity)) =
                    (&self.capacities, &volume.spec.node_affinity)
                {
                    capacities.refresh(Some(affinity), &volume.spec.storage_class_name);
                }
                tracing::info!(volume = name, handle = csi.volume_handle, "volume deleted");
                Outcome::Done
            }
            Err(failure) => {
                note_error(&failure);
                self.options.metrics.deleted(volume, None);
                tracing::warn!(volume = name, error = %failure, "failed to delete volume, retrying");
                if !matches!(failure, Failure::DeleteObject(_)) {
                    let message = failure.to_string();
                    self.events.record(
                        &**volume,
                        EventType::Warning,
                        "VolumeFailedDelete",
                        message,
                    );
                }
                Outcome::Retry
            }
        }
    }

    /// Whether the driver of another node has to delete it.
    fn is_elsewhere(&self, volume: &PersistentVolume) -> bool {
        let affinity = volume.spec.node_affinity.as_deref();
        self.place.as_ref().is_some_and(|place| !is_within(affinity, place))
    }

    /// Deletes the volume of a PersistentVolume.
    async fn delete_behind(&self, volume: &PersistentVolume, handle: &str) -> Result<(), Failure> {
        let capabilities = self.capabilities().await?;
        capabilities.check_volumes()?;
        let secrets = self.deletion_secrets(volume).await?;
        if capabilities.publishes {
            self.check_detached(volume)?;
        }
        let call = DeleteVolumeRequest { volume_id: handle.to_owned(), secrets };
        Ok(self.delete_volume(call).await?)
    }

    fn check_detached(&self, volume: &PersistentVolume) -> Result<(), Failure> {
        let name = &volume.metadata.name;
        match self.attachments.indexed(VolumeAttachment::BY_VOLUME, name).first() {
            None => Ok(()),
            Some(attachment) => {
                let node = attachment.spec.node_name.clone();
                Err(Failure::Attached { volume: name.clone(), node: node.into() })
            }
        }
    }

    pub(super) async fn delete_volume(&self, call: DeleteVolumeRequest) -> Result<(), Status> {
        let mut controller = self.driver.controller();
        let send = |request| async move { controller.delete_volume(request).await };
        self.driver.call("DeleteVolume", send, call).await.map(drop)
    }

    /// A missing secret does not prevent the deletion: the driver decides.
    async fn deletion_secrets(
        &self,
        volume: &PersistentVolume,
    ) -> Result<BTreeMap<String, String>, Failure> {
        let reference = self.deletion_secret(volume)?;
        match secret::read(&self.client, reference.as_ref()).await {
            Ok(secrets) => Ok(secrets),
            Err(error) => {
                let volume = &volume.metadata.name;
                tracing::error!(volume, %error, "deleting volume without its secret");
                Ok(BTreeMap::new())
            }
        }
    }

    /// The secret that the volume names, or else its class.
    fn deletion_secret(
        &self,
        volume: &PersistentVolume,
    ) -> Result<Option<SecretReference>, SecretRefusal> {
        let annotations = &volume.metadata.annotations;
        let name = annotations.get(annotation::DELETION_SECRET_NAME);
        let namespace = annotations.get(annotation::DELETION_SECRET_NAMESPACE);
        if let (Some(name), Some(namespace)) = (name, namespace) {
            let reference =
                SecretReference { name: name.to_owned(), namespace: namespace.to_owned() };
            return Ok(Some(reference).filter(|_| !name.is_empty() && !namespace.is_empty()));
        }
        let class = self.classes.get(&volume.spec.storage_class_name);
        let (Some(class), Some(claim)) = (class, &volume.spec.claim_ref) else { return Ok(None) };
        let subject = Subject {
            volume: &volume.metadata.name,
            claim: &claim.name,
            namespace: &claim.namespace,
            annotations: &Attributes::default(),
        };
        SecretKind::Provisioner.reference(&class.parameters, subject)
    }

    /// Removes the finalizer last, from the object as the deletion left it.
    async fn delete_object(&self, volume: &Arc<PersistentVolume>) -> Result<(), ApiFailure> {
        let left = match self.volumes.delete(&volume.metadata).await {
            Ok(Some(left)) => left,
            Ok(None) | Err(ApiFailure::NotFound { .. }) => return Ok(()),
            Err(failure) => return Err(failure),
        };
        match self.release(&left, VolumeNeed::Deletion).await {
            Ok(_) | Err(ApiFailure::NotFound { .. }) => Ok(()),
            Err(failure) => Err(failure),
        }
    }
}
