//! Publishing: the staged volume at a pod's target path.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use wharf_mount::loopdev::HeldLoop;
use wharf_mount::mount;
use wharf_mount::mountinfo::{self, Mount};

use super::dead::Undo;
use super::stage::mounted_from;
use super::target::{make_target, remove_target};
use super::{NodeVolumes, StageRequest};
use crate::error::Error;
use crate::points::Point;
use crate::record::{Access, Publication, Usage, Volume};

/// A volume to be published.
#[derive(Clone, Debug)]
pub struct Publish {
    /// The volume's id.
    pub volume: String,
    /// Where it is staged.
    pub staging_path: PathBuf,
    /// The target path; its parent exists.
    pub target: PathBuf,
    /// How it will be used.
    pub usage: Usage,
    /// Whether the target may only be read.
    pub read_only: bool,
    /// The pod that uses it, where the orchestrator says so.
    pub pod_uid: Option<String>,
}

impl NodeVolumes {
    /// Publishes a staged volume at a target. What is there already stays as it is.
    ///
    /// # Errors
    /// When the volume is not staged, published there otherwise, or elsewhere and made for one user.
    pub fn publish(&self, request: &Publish) -> Result<(), Error> {
        self.refuse_symlinks(&request.target)?;
        if request.target == request.staging_path {
            let expected = "another path than staging_target_path";
            return Err(Error::invalid("target_path", expected));
        }
        let volume = self.pool.whole_volume(&request.volume)?;
        self.refuse_foreign_target(Some(&volume), &request.target, &request.usage.access)?;
        let volume = self.promise_publication(request)?;
        self.is_redone(&volume.id, Undo::Publication(request.target.clone()));
        let complete = |publication: &Publication| publication.complete;
        let published = self.show(&volume, request);
        if published.is_err() && !volume.publications.get(&request.target).is_some_and(complete) {
            // An orchestrator that takes the error for final never unpublishes.
            if let Err(error) = self.unpublish(&request.volume, &request.target) {
                tracing::warn!(volume = volume.id, %error, "a publication that failed is not undone");
            }
        }
        published
    }

    fn show(&self, volume: &Volume, request: &Publish) -> Result<(), Error> {
        self.pool.reach(Point::PublishPromised)?;
        match &request.usage.access {
            Access::Mount { .. } => self.show_filesystem(volume, request)?,
            Access::Block => self.show_device(volume, request)?,
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

    fn show_filesystem(&self, volume: &Volume, request: &Publish) -> Result<(), Error> {
        self.ensure_staged(volume)?;
        let image = self.pool.lock_image(volume)?;
        let device = image.attach(staged_read_only(volume))?;
        self.bind(volume, &device, &request.staging_path, request)
    }

    /// Binds the node of the volume's device. A read-only bind of a node does not keep anyone from writing: the device
    /// itself has to.
    fn show_device(&self, volume: &Volume, request: &Publish) -> Result<(), Error> {
        let image = self.pool.lock_image(volume)?;
        let read_only = request.read_only || staged_read_only(volume);
        self.refuse_two_devices(volume, request, read_only)?;
        let device = image.attach(read_only)?;
        self.bind(volume, &device, &device.path, request)
    }

    /// Binds `source` to the target, and makes sure that it shows the volume's device.
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

    /// A reader's device has a page cache of its own and would show old data beside a writer's: an image has one device.
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

    /// Undoes a publication; a volume that is not published there is unpublished. An ephemeral volume goes with its last.
    ///
    /// # Errors
    /// When the target is in use.
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
        // A crash may have left more than one mount on top of each other.
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

    /// Mounts the staged filesystem again if someone took it away: a bind of the empty folder would swallow a pod's data.
    fn ensure_staged(&self, volume: &Volume) -> Result<(), Error> {
        let Some(stage) = &volume.stage else { return Ok(()) };
        for device in self.pool.devices().find(&self.pool.image(volume))? {
            if mounted_from(&device, &stage.path)? {
                return Ok(());
            }
        }
        tracing::warn!(volume = volume.id, path = %stage.path.display(), "staged and not mounted: mounting again");
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

    /// Whether the volume is mounted at `target`; what is mounted there and is not the volume is an error.
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
        // The volume was published here, and its device went away since.
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

    /// Gives a staged block volume back the device that it was staged with, once nobody needs another.
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
            // A stranger must not hang a pod's teardown.
            Err(error @ Error::Precondition(_)) => {
                tracing::warn!(volume = volume.id, %error, "failed to give a volume its device back");
                Ok(())
            }
            attached => attached.map(drop),
        }
    }
}

fn staged_read_only(volume: &Volume) -> bool {
    volume.stage.as_ref().is_some_and(|stage| stage.read_only)
}

/// Refuses a publication with another SELinux label than that of the staged filesystem, which all of its targets share.
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

/// Whether a mount shows some loop device: a filesystem on it, or its node.
fn shows_a_loop(mount: &Mount) -> bool {
    let is_loop = |name: &str| {
        let number = name.strip_prefix("loop").unwrap_or_default();
        !number.is_empty() && number.bytes().all(|byte| byte.is_ascii_digit())
    };
    let node = mount.root.to_str().and_then(|node| node.strip_prefix('/')).unwrap_or_default();
    // The node of a device that was taken away is gone from its folder.
    let node = node.strip_suffix("//deleted").unwrap_or(node);
    mount.source.strip_prefix("/dev/").is_some_and(is_loop) || is_loop(node)
}
