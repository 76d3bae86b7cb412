//! The operation for one VolumeAttachment.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_cluster::{ApiFailure, Key, Part, Patch, PersistentVolume, VolumeAttachment};
use wharf_proto::csi::{ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest};
use wharf_reconcile::{Attempt, Operation, Outcome, note_error};

use super::{
    AttacherCore,
    decide::{AttachCapabilities, Step, next},
    failure::{AttachRefusal, Failure},
    fair_semaphore::{FairSemaphore, Permit},
    request::{self, AttachedVolume, AttachmentSource},
    status::{self, DetachNotes},
};
use crate::secret;

/// Attaches or detaches the volume of one VolumeAttachment.
pub(super) struct AttachmentOperation {
    pub(super) shared: Arc<AttacherCore>,
    pub(super) stop: CancellationToken,
}

impl Operation<Key> for AttachmentOperation {
    async fn run(&self, key: Key, attempt: Attempt) -> Outcome {
        let work = self.shared.reconcile(&key, &attempt.superseded);
        self.stop.run_until_cancelled(work).await.unwrap_or(Outcome::Done)
    }
}

impl AttacherCore {
    async fn reconcile(&self, key: &Key, superseded: &CancellationToken) -> Outcome {
        loop {
            let (step, attachment, _) = self.step(key).await;
            let (Some(semaphore), Some(attachment)) = (self.semaphore(step), attachment) else {
                return Outcome::Done;
            };
            let permit = tokio::select! {
                permit = semaphore.acquire(attachment.spec.node_name.as_str().into()) => permit,
                // Deleted or created again: it may belong to the other semaphore.
                () = superseded.cancelled() => return Outcome::Done,
            };
            // Objects may have changed during the wait.
            let (now, attachment, capabilities) = self.step(key).await;
            let Some(attachment) = attachment.filter(|_| now == step) else { continue };
            self.forced().remove(key);
            // Boxed to keep waiting tasks small: after a start every attachment waits here.
            return Box::pin(self.try_step(step, &attachment, capabilities, permit, superseded))
                .await;
        }
    }

    async fn try_step(
        &self,
        step: Step,
        attachment: &Arc<VolumeAttachment>,
        capabilities: Result<AttachCapabilities, Status>,
        permit: Permit,
        superseded: &CancellationToken,
    ) -> Outcome {
        match self.perform(step, attachment, capabilities, permit, superseded).await {
            Ok(()) => Outcome::Done,
            Err(failure) => {
                note_error(&failure);
                self.report_failure(step, attachment, &failure).await;
                Outcome::Retry
            }
        }
    }

    /// The next step for the attachment, and the driver's capabilities.
    async fn step(
        &self,
        key: &Key,
    ) -> (Step, Option<Arc<VolumeAttachment>>, Result<AttachCapabilities, Status>) {
        let attachment = self.attachments.store().get(key).filter(|it| self.serves(it));
        let Some(attachment) = attachment else {
            self.forced().remove(key);
            return (Step::Nothing, None, Ok(AttachCapabilities::default()));
        };
        let capabilities =
            Box::pin(self.driver.capabilities()).await.map(|it| AttachCapabilities::of(&it));
        // An unreachable driver counts as one that attaches, so that its absence shows in the
        // status.
        let publishes = capabilities.as_ref().map_or(true, |it| it.publishes);
        let forced = self.forced().contains(key);
        (next(&attachment, &self.finalizer, publishes, forced), Some(attachment), capabilities)
    }

    fn semaphore(&self, step: Step) -> Option<&Arc<FairSemaphore>> {
        match step {
            Step::Nothing => None,
            Step::Attach | Step::MarkAttached => Some(&self.attaching),
            Step::Detach => Some(&self.detaching),
        }
    }

    async fn perform(
        &self,
        step: Step,
        attachment: &Arc<VolumeAttachment>,
        capabilities: Result<AttachCapabilities, Status>,
        permit: Permit,
        superseded: &CancellationToken,
    ) -> Result<(), Failure> {
        let capabilities = capabilities?;
        match step {
            Step::Nothing => Ok(()),
            Step::MarkAttached => self.mark_attached(attachment, &BTreeMap::new()).await,
            Step::Attach => self.attach(attachment, capabilities, permit, superseded).await,
            Step::Detach => self.detach(attachment, permit).await,
        }
    }

    /// Checks all that can be checked before the finalizer is added, because from then on the
    /// attachment waits for a detach.
    async fn attach(
        &self,
        attachment: &Arc<VolumeAttachment>,
        capabilities: AttachCapabilities,
        permit: Permit,
        superseded: &CancellationToken,
    ) -> Result<(), Failure> {
        let volume;
        let (spec, csi, noted) = match AttachmentSource::of(attachment)? {
            AttachmentSource::Inline(spec, csi) => (spec, csi, None),
            AttachmentSource::Named(name) => {
                let known = self.volume_named(name)?;
                // A volume of an in-tree plugin is not changed.
                request::csi(&known)?;
                volume = self.protect(known).await?;
                let csi = request::csi(&volume)?;
                (&volume.spec, csi, Some(AttachedVolume::of(csi)))
            }
        };
        let default_fs_type = &self.options.default_fs_type;
        let mut call = request::publish(spec, csi, capabilities, default_fs_type)?;
        let reference = csi.controller_publish_secret_ref.as_deref();
        call.secrets = secret::read(&self.client, reference).await?;
        call.node_id = self.node_id(attachment)?;
        let notes = DetachNotes { node_id: call.node_id.clone(), volume: noted };

        let prepare = |it: &VolumeAttachment| match it.metadata.deleting {
            // Nothing may be added to an object that is being deleted.
            true => None,
            false => status::prepare(it, &self.finalizer, &notes),
        };
        let prepared = self.attachments.edit(attachment, Part::Main, prepare).await;
        let prepared = prepared.map_err(Failure::Save)?;
        if prepared.metadata.deleting {
            return Ok(());
        }
        // The driver may be busy with other volumes for long.
        let call_permit = tokio::select! {
            permit = self.publishing.acquire(prepared.spec.node_name.as_str().into()) => permit,
            () = superseded.cancelled() => return Ok(()),
        };
        if !self.is_wanted(&prepared) {
            return Ok(());
        }
        let published = self.publish(call).await?;
        // Release the permits before the write: the driver is free for the next call.
        drop((call_permit, permit));
        self.mark_attached(&prepared, &published).await?;
        tracing::info!(
            attachment = prepared.metadata.name,
            node = prepared.spec.node_name.as_str(),
            "volume attached"
        );
        Ok(())
    }

    /// Whether an attachment still exists and is not being deleted. If not, its change has queued
    /// it again.
    fn is_wanted(&self, attachment: &VolumeAttachment) -> bool {
        let now = self.attachments.store().get(&attachment.metadata.name);
        now.is_some_and(|now| now.metadata.uid == attachment.metadata.uid && !now.metadata.deleting)
    }

    /// Detaches the volume from the node that it was attached to. The PersistentVolume and the
    /// CSINode may be gone; a new node of the same name is not touched.
    async fn detach(
        &self,
        attachment: &Arc<VolumeAttachment>,
        permit: Permit,
    ) -> Result<(), Failure> {
        let volume = self.attached_volume(attachment)?;
        let call = ControllerUnpublishVolumeRequest {
            secrets: secret::read(&self.client, volume.secret.as_ref()).await?,
            volume_id: volume.handle,
            node_id: self.attached_node_id(attachment)?,
        };
        self.unpublish(call).await?;
        drop(permit);
        self.mark_detached(attachment).await.map_err(Failure::MarkDetached)?;
        tracing::info!(
            attachment = attachment.metadata.name,
            node = attachment.spec.node_name.as_str(),
            "volume detached"
        );
        Ok(())
    }

    fn volume_named(&self, volume: &str) -> Result<Arc<PersistentVolume>, AttachRefusal> {
        let known = self.volumes.store().get(volume);
        known.ok_or_else(|| AttachRefusal::UnknownVolume(volume.to_owned()))
    }

    /// Adds the finalizer to the PersistentVolume, so that it exists for as long as the volume may
    /// be attached.
    async fn protect(
        &self,
        volume: Arc<PersistentVolume>,
    ) -> Result<Arc<PersistentVolume>, Failure> {
        let refuse_deleting = |volume: &PersistentVolume| match volume.metadata.deleting {
            true => Err(AttachRefusal::VolumeDeleting(volume.metadata.name.clone())),
            false => Ok(()),
        };
        refuse_deleting(&volume)?;
        let plan = |it: &PersistentVolume| {
            let wanted = !it.metadata.deleting && !it.metadata.has_finalizer(&self.finalizer);
            wanted.then(|| Patch::add_finalizer(&it.metadata, &self.finalizer))
        };
        let volume =
            self.volumes.edit(&volume, Part::Main, plan).await.map_err(Failure::Protect)?;
        refuse_deleting(&volume)?;
        Ok(volume)
    }

    /// The node ID of an attachment, from the CSINode.
    fn node_id(&self, attachment: &VolumeAttachment) -> Result<String, AttachRefusal> {
        let name = &attachment.spec.node_name;
        request::node_id(&self.options.driver, name, self.nodes.get(name).as_deref())
    }

    /// The node ID of the ControllerPublishVolume call; if the attachment does not note it, the ID
    /// from the CSINode.
    pub(super) fn attached_node_id(
        &self,
        attachment: &VolumeAttachment,
    ) -> Result<String, AttachRefusal> {
        match request::noted_node_id(attachment) {
            Some(noted) => Ok(noted.to_owned()),
            None => self.node_id(attachment),
        }
    }

    /// The volume of the ControllerPublishVolume call; if the attachment does not note it, that of
    /// the PersistentVolume.
    pub(super) fn attached_volume(
        &self,
        attachment: &VolumeAttachment,
    ) -> Result<AttachedVolume, AttachRefusal> {
        match (AttachmentSource::of(attachment)?, AttachedVolume::noted_on(attachment)) {
            (AttachmentSource::Inline(_, csi), _) => Ok(AttachedVolume::of(csi)),
            (AttachmentSource::Named(_), Some(noted)) => Ok(noted),
            (AttachmentSource::Named(name), None) => {
                Ok(AttachedVolume::of(request::csi(&*self.volume_named(name)?)?))
            }
        }
    }

    async fn publish(
        &self,
        call: ControllerPublishVolumeRequest,
    ) -> Result<BTreeMap<String, String>, Status> {
        let mut controller = self.driver.controller();
        let send = |request| async move { controller.controller_publish_volume(request).await };
        let answer = self.driver.call("ControllerPublishVolume", send, call).await?;
        Ok(answer.publish_context)
    }

    async fn unpublish(&self, call: ControllerUnpublishVolumeRequest) -> Result<(), Status> {
        let mut controller = self.driver.controller();
        let send = |request| async move { controller.controller_unpublish_volume(request).await };
        self.driver.call("ControllerUnpublishVolume", send, call).await.map(drop)
    }

    async fn mark_attached(
        &self,
        attachment: &VolumeAttachment,
        published: &BTreeMap<String, String>,
    ) -> Result<(), Failure> {
        let patch = status::attached(attachment, published);
        let marked = self.attachments.patch(&attachment.metadata, Part::Status, &patch).await;
        marked.map(drop).map_err(Failure::MarkAttached)
    }

    /// Removes the finalizer first: an attachment that is being deleted and has no finalizer counts
    /// as detached, whatever its status, while one with a finalizer would be detached again.
    async fn mark_detached(&self, attachment: &Arc<VolumeAttachment>) -> Result<(), ApiFailure> {
        let release = |it: &VolumeAttachment| status::release(it, &self.finalizer);
        let released = match self.attachments.edit(attachment, Part::Main, release).await {
            Err(ApiFailure::NotFound { .. }) => return Ok(()),
            released => released?,
        };
        let gone = released.metadata.deleting && released.metadata.finalizers.is_empty();
        let held = attachment.metadata.has_finalizer(&self.finalizer);
        if gone || !held && !released.status.attached {
            return Ok(());
        }
        let patch = status::detached(&released);
        match self.attachments.patch(&released.metadata, Part::Status, &patch).await {
            Ok(_) | Err(ApiFailure::NotFound { .. }) => Ok(()),
            Err(failure) => Err(failure),
        }
    }

    /// Writes the failure to the status, unless only a write after a successful call failed.
    async fn report_failure(&self, step: Step, attachment: &VolumeAttachment, failure: &Failure) {
        let (name, node) = (&attachment.metadata.name, attachment.spec.node_name.as_str());
        tracing::warn!(attachment = name, node, ?step, error = %failure, "failed to reconcile attachment, retrying");
        let patch = match (step, failure) {
            (_, Failure::MarkAttached(_)) | (Step::Nothing | Step::MarkAttached, _) => return,
            (Step::Attach, _) => status::attach_error(attachment, failure, Timestamp::now()),
            (Step::Detach, _) => status::detach_error(attachment, failure, Timestamp::now()),
        };
        let saved = self.attachments.patch(&attachment.metadata, Part::Status, &patch).await;
        if let Err(error) = saved {
            tracing::warn!(attachment = name, %error, "failed to write error to status");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use kube::{Client, Config};
    use wharf_csi::{Driver, DriverOptions};

    use super::*;
    use crate::{
        Caches,
        attacher::{Attacher, AttacherOptions},
    };

    /// Ten thousand of these operations start at once.
    #[tokio::test]
    async fn one_that_waits_takes_little_memory() {
        let client = Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let driver = Driver::new(Path::new("/none.sock"), DriverOptions::default());
        let options = AttacherOptions::new("csi.example.com".to_owned());
        let attacher = Attacher::new(options, client, driver, Caches::of("csi.example.com"));
        let (key, superseded) = (Key::from("a"), CancellationToken::new());
        let size = size_of_val(&attacher.0.reconcile(&key, &superseded));
        assert!(size <= 1024, "{size} bytes");
    }
}
