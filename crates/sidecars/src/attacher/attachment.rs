//! The operation for one VolumeAttachment.

use std::{collections::BTreeMap, sync::Arc};

use jiff::Timestamp;
use tokio_util::sync::CancellationToken;
use tonic::Status;
use wharf_cluster::{ApiFailure, Key, Part, Patch, PersistentVolume, VolumeAttachment};
use wharf_proto::csi::{ControllerPublishVolumeRequest, ControllerUnpublishVolumeRequest};
use wharf_reconcile::{Attempt, Operation, Outcome, note_error};

use super::{
    Shared,
    decide::{Abilities, Step, next},
    failure::{Failure, Refusal},
    lane::{Lane, Turn},
    request::{self, AttachedVolume, Source},
    status::{self, DetachNotes},
};
use crate::secret;

/// Brings a VolumeAttachment to where it should be.
pub(super) struct AttachmentOperation {
    pub(super) shared: Arc<Shared>,
    pub(super) stop: CancellationToken,
}

impl Operation<Key> for AttachmentOperation {
    async fn run(&self, key: Key, attempt: Attempt) -> Outcome {
        let work = self.shared.bring(&key, &attempt.superseded);
        self.stop.run_until_cancelled(work).await.unwrap_or(Outcome::Done)
    }
}

impl Shared {
    async fn bring(&self, key: &Key, superseded: &CancellationToken) -> Outcome {
        loop {
            let (step, attachment, _) = self.step(key).await;
            let (Some(lane), Some(attachment)) = (self.lane(step), attachment) else {
                return Outcome::Done;
            };
            let turn = tokio::select! {
                turn = lane.enter(attachment.spec.node_name.as_str().into()) => turn,
                // Deleted or made anew: it may belong into the other lane.
                () = superseded.cancelled() => return Outcome::Done,
            };
            // Much may have happened since it lined up.
            let (now, attachment, abilities) = self.step(key).await;
            let Some(attachment) = attachment.filter(|_| now == step) else { continue };
            self.forced().remove(key);
            // Apart from those that wait: at a start that is every attachment there is, and all of this would be kept for
            // each of them.
            return Box::pin(self.try_step(step, &attachment, abilities, turn, superseded)).await;
        }
    }

    async fn try_step(
        &self,
        step: Step,
        attachment: &Arc<VolumeAttachment>,
        abilities: Result<Abilities, Status>,
        turn: Turn,
        superseded: &CancellationToken,
    ) -> Outcome {
        match self.perform(step, attachment, abilities, turn, superseded).await {
            Ok(()) => Outcome::Done,
            Err(failure) => {
                note_error(&failure);
                self.tell(step, attachment, &failure).await;
                Outcome::Retry
            }
        }
    }

    /// What the attachment needs now, and what the driver can do about it.
    async fn step(
        &self,
        key: &Key,
    ) -> (Step, Option<Arc<VolumeAttachment>>, Result<Abilities, Status>) {
        let attachment = self.attachments.store().get(key).filter(|it| self.serves(it));
        let Some(attachment) = attachment else {
            self.forced().remove(key);
            return (Step::Nothing, None, Ok(Abilities::default()));
        };
        let abilities = Box::pin(self.driver.capabilities()).await.map(|it| Abilities::of(&it));
        // A driver that is away is one that attaches, so that its absence shows in the status.
        let publishes = abilities.as_ref().map_or(true, |it| it.publishes);
        let forced = self.forced().contains(key);
        (next(&attachment, &self.finalizer, publishes, forced), Some(attachment), abilities)
    }

    fn lane(&self, step: Step) -> Option<&Arc<Lane>> {
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
        abilities: Result<Abilities, Status>,
        turn: Turn,
        superseded: &CancellationToken,
    ) -> Result<(), Failure> {
        let abilities = abilities?;
        match step {
            Step::Nothing => Ok(()),
            Step::MarkAttached => self.mark_attached(attachment, &BTreeMap::new()).await,
            Step::Attach => self.attach(attachment, abilities, turn, superseded).await,
            Step::Detach => self.detach(attachment, turn).await,
        }
    }

    /// All that can be checked is, before the finalizer makes the attachment wait for a detach.
    async fn attach(
        &self,
        attachment: &Arc<VolumeAttachment>,
        abilities: Abilities,
        turn: Turn,
        superseded: &CancellationToken,
    ) -> Result<(), Failure> {
        let volume;
        let (spec, csi, noted) = match Source::of(attachment)? {
            Source::Inline(spec, csi) => (spec, csi, None),
            Source::Named(name) => {
                let known = self.known(name)?;
                // A volume of an in-tree plugin is left as it is.
                request::csi(&known)?;
                volume = self.protect(known).await?;
                let csi = request::csi(&volume)?;
                (&volume.spec, csi, Some(AttachedVolume::of(csi)))
            }
        };
        let default_fs_type = &self.options.default_fs_type;
        let mut call = request::publish(spec, csi, abilities, default_fs_type)?;
        let reference = csi.controller_publish_secret_ref.as_deref();
        call.secrets = secret::read(&self.client, reference).await?;
        call.node_id = self.node_id(attachment)?;
        let notes = DetachNotes { node_id: call.node_id.clone(), volume: noted };

        let prepare = |it: &VolumeAttachment| match it.metadata.deleting {
            // It was deleted meanwhile, and nothing may be added to it.
            true => None,
            false => status::prepare(it, &self.finalizer, &notes),
        };
        let prepared = self.attachments.edit(attachment, Part::Main, prepare).await;
        let prepared = prepared.map_err(Failure::Save)?;
        if prepared.metadata.deleting {
            return Ok(());
        }
        // The driver may be busy with others for long.
        let call_turn = tokio::select! {
            turn = self.publishing.enter(prepared.spec.node_name.as_str().into()) => turn,
            () = superseded.cancelled() => return Ok(()),
        };
        if !self.is_wanted(&prepared) {
            return Ok(());
        }
        let published = self.publish(call).await?;
        // The driver is free for the next one.
        drop((call_turn, turn));
        self.mark_attached(&prepared, &published).await?;
        tracing::info!(
            attachment = prepared.metadata.name,
            node = prepared.spec.node_name.as_str(),
            "volume attached"
        );
        Ok(())
    }

    /// Whether an attachment is still to be made; a change that says no has it looked at again.
    fn is_wanted(&self, attachment: &VolumeAttachment) -> bool {
        let now = self.attachments.store().get(&attachment.metadata.name);
        now.is_some_and(|now| now.metadata.uid == attachment.metadata.uid && !now.metadata.deleting)
    }

    /// Detaches the volume from the node that it was attached to. Neither the PersistentVolume nor the CSINode has to be
    /// there any more, and a node that was made again under its name is not touched.
    async fn detach(&self, attachment: &Arc<VolumeAttachment>, turn: Turn) -> Result<(), Failure> {
        let volume = self.attached_volume(attachment)?;
        let call = ControllerUnpublishVolumeRequest {
            secrets: secret::read(&self.client, volume.secret.as_ref()).await?,
            volume_id: volume.handle,
            node_id: self.attached_node_id(attachment)?,
        };
        self.unpublish(call).await?;
        drop(turn);
        self.mark_detached(attachment).await.map_err(Failure::MarkDetached)?;
        tracing::info!(
            attachment = attachment.metadata.name,
            node = attachment.spec.node_name.as_str(),
            "volume detached"
        );
        Ok(())
    }

    fn known(&self, volume: &str) -> Result<Arc<PersistentVolume>, Refusal> {
        let known = self.volumes.store().get(volume);
        known.ok_or_else(|| Refusal::UnknownVolume(volume.to_owned()))
    }

    /// Sees to it that the volume does not go while it may be attached.
    async fn protect(
        &self,
        volume: Arc<PersistentVolume>,
    ) -> Result<Arc<PersistentVolume>, Failure> {
        let refuse_deleting = |volume: &PersistentVolume| match volume.metadata.deleting {
            true => Err(Refusal::VolumeDeleting(volume.metadata.name.clone())),
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

    /// The id of an attachment's node, as its CSINode says now.
    fn node_id(&self, attachment: &VolumeAttachment) -> Result<String, Refusal> {
        let name = &attachment.spec.node_name;
        request::node_id(&self.options.driver, name, self.nodes.get(name).as_deref())
    }

    /// The id of the node that the driver was asked to attach the volume to; without a note of it, that of the node as it is
    /// now.
    pub(super) fn attached_node_id(
        &self,
        attachment: &VolumeAttachment,
    ) -> Result<String, Refusal> {
        match request::noted_node_id(attachment) {
            Some(noted) => Ok(noted.to_owned()),
            None => self.node_id(attachment),
        }
    }

    /// The volume that the driver was asked to attach; without a note of it, that of the PersistentVolume.
    pub(super) fn attached_volume(
        &self,
        attachment: &VolumeAttachment,
    ) -> Result<AttachedVolume, Refusal> {
        match (Source::of(attachment)?, AttachedVolume::noted_on(attachment)) {
            (Source::Inline(_, csi), _) => Ok(AttachedVolume::of(csi)),
            (Source::Named(_), Some(noted)) => Ok(noted),
            (Source::Named(name), None) => {
                Ok(AttachedVolume::of(request::csi(&*self.known(name)?)?))
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

    /// The finalizer goes first: an attachment that is deleted and has none counts as detached, whatever its status says,
    /// while one that has it would be detached once more.
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

    /// Says in the status why it did not work. What was done and could not be written down is no error of the volume.
    async fn tell(&self, step: Step, attachment: &VolumeAttachment, failure: &Failure) {
        let (name, node) = (&attachment.metadata.name, attachment.spec.node_name.as_str());
        tracing::warn!(attachment = name, node, ?step, error = %failure, "attachment failed and is tried again");
        let patch = match (step, failure) {
            (_, Failure::MarkAttached(_)) | (Step::Nothing | Step::MarkAttached, _) => return,
            (Step::Attach, _) => status::attach_error(attachment, failure, Timestamp::now()),
            (Step::Detach, _) => status::detach_error(attachment, failure, Timestamp::now()),
        };
        let saved = self.attachments.patch(&attachment.metadata, Part::Status, &patch).await;
        if let Err(error) = saved {
            tracing::warn!(attachment = name, %error, "the error could not be saved in the status");
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

    /// Ten thousand of them are started at once.
    #[tokio::test]
    async fn one_that_waits_takes_little_memory() {
        let client = Client::try_from(Config::new("http://127.0.0.1:1".parse().unwrap())).unwrap();
        let driver = Driver::new(Path::new("/none.sock"), DriverOptions::default());
        let options = AttacherOptions::new("csi.example.com".to_owned());
        let attacher = Attacher::new(options, client, driver, Caches::of("csi.example.com"));
        let (key, superseded) = (Key::from("a"), CancellationToken::new());
        let size = size_of_val(&attacher.0.bring(&key, &superseded));
        assert!(size <= 1024, "{size} bytes");
    }
}
