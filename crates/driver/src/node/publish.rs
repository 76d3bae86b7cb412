//! Publishes a staged volume at a pod's target path.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use wharf_mount::{
    loopdev::HeldLoop,
    mount,
    mountinfo::{self, Mount},
};

use super::{
    NodeVolumes, StageRequest,
    dead::Undo,
    stage::mounted_from,
    target::{make_target, remove_target},
};
use crate::{
    error::Error,
    points::Point,
    record::{Access, Publication, Usage, Volume},
};

/// A publish request.
#[derive(Clone, Debug)]
pub struct Publish {
    /// ID of the volume.
    pub volume: String,
    /// Path at which it is staged.
    pub staging_path: PathBuf,
    /// Target path; its parent exists.
    pub target: PathBuf,
    /// How the volume will be used.
    pub usage: Usage,
    /// Whether the target is read-only.
    pub read_only: bool,
    /// UID of the pod, if the orchestrator sends it.
    pub pod_uid: Option<String>,
}

impl NodeVolumes {
    /// Publishes a staged volume at a target. A no-op if it is published there already.
    ///
    /// # Errors
    /// If the volume is not staged, is published there in another way, or is published elsewhere
    /// and allows one target.
    pub fn publish(&self, request: &Publish) -> Result<(), Error> {
        self.refuse_symlinks(&request.target)?;
        if request.target == request.staging_path {
            let expected = "another path than staging_target_path";
            return Err(Error::invalid("target_path", expected));
        }
        let volume = self.pool.whole_volume(&request.volume)?;
        self.refuse_foreign_target(Some(&volume), &request.target, &request.usage.access)?;
        let volume = self.promise_publication(request)?;
        self.discard_undo(&volume.id, Undo::Publication(request.target.clone()));
        let complete = |publication: &Publication| publication.complete;
        let published = self.run_publish(&volume, request);
        if published.is_err() && !volume.publications.get(&request.target).is_some_and(complete) {
            // Undo it: an orchestrator that treats the error as final does not unpublish.
            if let Err(error) = self.unpublish(&request.volume, &request.target) {
                tracing::warn!(volume = volume.id, %error, "failed to undo failed publish");
            }
        }
        published
    }

    fn run_publish(&self, volume: &Volume, request: &Publish) -> Result<(), Error> {
        self.pool.reach(Point::PublishPromised)?;
        match &request.usage.access {
            Access::Mount { .. } => self.publish_filesystem(volume, request)?,
            Access::Block => self.publish_device(volume, request)?,
        }
        self.pool.reach(Point::PublishMounted)?;
        self.apply_limits(volume);
        let target = request.target.clone();
        self.pool.edit_volume(&request.volume, move |volume| {
            if let Some(publication) = volume.publications.get_mut(&target) {
                publication.complete = true;
            }
        })?;
        self.pool.reach(Point::PublishDone)?;
        Ok(())
    }

    fn publish_filesystem(&self, volume: &Volume, request: &Publish) -> Result<(), Error> {
        self.ensure_staged(volume)?;
        let image = self.pool.lock_image(volume)?;
        let device = image.attach(staged_read_only(volume))?;
        self.bind(volume, &device, &request.staging_path, request)
    }

    /// Binds the node of the volume's device. A read-only bind mount of a node does not prevent
    /// writes: the device itself must be read-only.
    fn publish_device(&self, volume: &Volume, request: &Publish) -> Result<(), Error> {
        let image = self.pool.lock_image(volume)?;
        let read_only = request.read_only || staged_read_only(volume);
        self.refuse_two_devices(volume, request, read_only)?;
        let device = image.attach(read_only)?;
        self.bind(volume, &device, &device.path, request)
    }

    /// Binds `source` to the target, and verifies that the target shows the volume's device.
    fn bind(
        &self,
        volume: &Volume,
        device: &HeldLoop,
        source: &Path,
        request: &Publish,
    ) -> Result<(), Error> {
        let target = &request.target;
        make_target(target, &request.usage.access)?;
        self.pool.reach(Point::PublishTargetMade)?;
        if self.is_ours(Some(volume), target)? {
            return Ok(());
        }
        mount::bind(source, target, request.read_only)?;
        if mounted_from(device, target)? {
            return Ok(());
        }
        mount::unmount(target)?;
        Err(Error::Pending(format!(
            "{} did not show the device of volume {}: call again",
            source.display(),
            volume.id
        )))
    }

    /// Refuses a second device of an image: a read-only device has its own page cache and would
    /// show stale data next to a writable one.
    fn refuse_two_devices(
        &self,
        volume: &Volume,
        request: &Publish,
        read_only: bool,
    ) -> Result<(), Error> {
        let volume = self.pool.volume(&volume.id)?;
        let staged = staged_read_only(&volume);
        let other = volume.publications.iter().find(|(target, publication)| {
            **target != request.target && (publication.read_only || staged) != read_only
        });
        let Some((target, _)) = other else { return Ok(()) };
        let how = if read_only { "for writing" } else { "only for reading" };
        Err(Error::Precondition(format!(
            "volume {} is published at {} {how}, and a block volume has one device on a node, which writes or only reads: \
             unpublish it there first",
            volume.id,
            target.display()
        )))
    }

    /// Undoes a publication. Succeeds if the volume is not published there. Deletes an inline
    /// volume with its last publication.
    ///
    /// # Errors
    /// If the target is in use.
    pub fn unpublish(&self, id: &str, target: &Path) -> Result<(), Error> {
        self.refuse_symlinks(target)?;
        let volume = self.pool.volume(id).ok();
        let known = volume.as_ref().is_some_and(|volume| volume.publications.contains_key(target));
        if known {
            let key = target.to_owned();
            self.record_undo(id, move |volume| {
                if let Some(publication) = volume.publications.get_mut(&key) {
                    publication.complete = false;
                }
            })?;
        }
        self.pool.reach(Point::UnpublishPromised)?;
        // A crash may have left several mounts on top of each other.
        while self.is_ours(volume.as_deref(), target)? {
            mount::unmount(target)?;
        }
        self.pool.reach(Point::UnpublishUnmounted)?;
        remove_target(target)?;
        self.pool.reach(Point::UnpublishTargetGone)?;
        let Some(volume) = volume else { return Ok(()) };
        let kept = self.record_undone(&volume.id, Undo::Publication(target.to_owned()))?;
        let Some(volume) = kept else { return Ok(()) };
        self.pool.reach(Point::UnpublishForgotten)?;
        self.settle_device(&volume)?;
        self.pool.reach(Point::UnpublishDone)?;
        if volume.ephemeral && volume.publications.is_empty() {
            self.delete_or_leave(&volume)?;
        }
        Ok(())
    }

    /// Mounts the staged filesystem again if it was unmounted: a bind mount of the empty folder
    /// would hide a pod's writes.
    fn ensure_staged(&self, volume: &Volume) -> Result<(), Error> {
        let Some(stage) = &volume.stage else { return Ok(()) };
        for device in self.pool.devices().find(&self.pool.image(volume))? {
            if mounted_from(&device, &stage.path)? {
                return Ok(());
            }
        }
        tracing::warn!(volume = volume.id, path = %stage.path.display(), "mounting staged volume again");
        self.stage(&StageRequest {
            volume: volume.id.clone(),
            path: stage.path.clone(),
            usage: stage.usage.clone(),
        })
    }

    fn promise_publication(&self, request: &Publish) -> Result<Arc<Volume>, Error> {
        let volume = self.pool.whole_volume(&request.volume)?;
        if !volume
            .stage
            .as_ref()
            .is_some_and(|stage| stage.complete && stage.path == request.staging_path)
        {
            return Err(Error::Precondition(format!(
                "volume {} is not staged at {}: stage it first",
                volume.id,
                request.staging_path.display()
            )));
        }
        refuse_other_label(&volume, &request.usage)?;
        let wanted = Publication {
            usage: request.usage.clone(),
            read_only: request.read_only,
            pod_uid: request.pod_uid.clone(),
            complete: false,
        };
        if let Some(there) = volume.publications.get(&request.target) {
            if (Publication { complete: false, ..there.clone() }) != wanted {
                return Err(Error::Exists(format!(
                    "volume {} is published at {} for another use: unpublish it first",
                    volume.id,
                    request.target.display()
                )));
            }
            return Ok(volume);
        }
        if let Some(other) = volume.publications.keys().next()
            && !request.usage.mode.is_multi_target()
        {
            return Err(Error::Precondition(format!(
                "volume {} is published at {}, and its access mode allows one target",
                volume.id,
                other.display()
            )));
        }
        let target = request.target.clone();
        self.pool.edit_volume(&volume.id, move |volume| {
            volume.publications.insert(target, wanted);
        })
    }

    /// Whether the volume is mounted at `target`. Any other mount there is an error.
    pub(super) fn is_ours(&self, volume: Option<&Volume>, target: &Path) -> Result<bool, Error> {
        if mountinfo::root_at(target)?.is_none() {
            return Ok(false);
        }
        let devices = match volume {
            Some(volume) => self.pool.devices().find(&self.pool.image(volume))?,
            None => Vec::new(),
        };
        for device in &devices {
            if mounted_from(device, target)? {
                return Ok(true);
            }
        }
        let Some(mount) = mountinfo::at(target)? else { return Ok(false) };
        let Some(volume) = volume else {
            return Err(Error::Precondition(format!(
                "{} is a mount of {}, and the volume is not known: unmount it by hand",
                target.display(),
                mount.source
            )));
        };
        // The volume was published here, and its device has been removed since.
        if devices.is_empty() && volume.publications.contains_key(target) && shows_a_loop(&mount) {
            return Ok(true);
        }
        Err(Error::Precondition(format!(
            "{} is a mount of {}, not of volume {}: unmount it by hand",
            target.display(),
            mount.source,
            volume.id
        )))
    }

    /// Restores the device that a block volume was staged with, once no publication needs another.
    fn settle_device(&self, volume: &Volume) -> Result<(), Error> {
        let image = self.pool.lock_image(volume)?;
        // Another target may have been published since.
        let volume = self.pool.volume(&volume.id)?;
        let Some(stage) = &volume.stage else { return Ok(()) };
        let settled = stage.usage.access != Access::Block || !volume.publications.is_empty();
        if settled || !self.pool.image(&volume).exists() {
            return Ok(());
        }
        match image.attach(stage.read_only) {
            // A foreign process must not block a pod's teardown.
            Err(error @ Error::Precondition(_)) => {
                tracing::warn!(volume = volume.id, %error, "failed to restore device of staged volume");
                Ok(())
            }
            attached => attached.map(drop),
        }
    }
}

fn staged_read_only(volume: &Volume) -> bool {
    volume.stage.as_ref().is_some_and(|stage| stage.read_only)
}

/// Refuses a publication with another SELinux label than the staged filesystem's, which all targets
/// share.
fn refuse_other_label(volume: &Volume, asked: &Usage) -> Result<(), Error> {
    let Some(stage) = &volume.stage else { return Ok(()) };
    let (staged, asked) = (stage.usage.selinux_label(), asked.selinux_label());
    if staged == asked {
        return Ok(());
    }
    let named = |label: Option<&str>| label.map_or("no label".to_owned(), |it| format!("{it:?}"));
    Err(Error::Precondition(format!(
        "volume {} is staged at {} with {} as its SELinux label (mount flag context=), and {} is asked for: a filesystem has \
         one label on a node; unstage it first",
        volume.id,
        stage.path.display(),
        named(staged),
        named(asked)
    )))
}

/// Whether a mount shows a loop device: a filesystem on it, or its node.
fn shows_a_loop(mount: &Mount) -> bool {
    let is_loop = |name: &str| {
        let number = name.strip_prefix("loop").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let node = mount.root.to_str().and_then(|node| node.strip_prefix('/')).unwrap_or_default();
    // The node of a removed device is gone from its folder.
    let node = node.strip_suffix("//deleted").unwrap_or(node);
    mount.source.strip_prefix("/dev/").is_some_and(is_loop) || is_loop(node)
}
