//! Publishing: the staged volume at a pod's target path.

use std::fs::{self, File};
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wharf_mount::mount;
use wharf_mount::mountinfo;

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
        let volume = self.promise_publication(request)?;
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
        let source = match &request.usage.access {
            Access::Mount { .. } => {
                self.ensure_staged(volume)?;
                request.staging_path.clone()
            }
            // A read-only bind of a device does not keep anyone from writing: the device itself has to.
            Access::Block => {
                let staged = volume.stage.as_ref().is_some_and(|stage| stage.read_only);
                self.attach(volume, request.read_only || staged)?.path
            }
        };
        make_target(&request.target, &request.usage.access)?;
        self.pool.reach(Point::PublishTargetMade)?;
        if !self.is_ours(Some(volume), &request.target)? {
            mount::bind(&source, &request.target, request.read_only)?;
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
            self.pool.edit_volume(id, move |volume| {
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
        let key = target.to_owned();
        let volume = self.pool.edit_volume(&volume.id, move |volume| {
            volume.publications.remove(&key);
        })?;
        self.detach_unused(&volume)?;
        self.pool.reach(Point::UnpublishDone)?;
        if volume.ephemeral && volume.publications.is_empty() {
            return self.delete_ephemeral(&volume);
        }
        Ok(())
    }

    /// Mounts the staged filesystem again if someone took it away: a bind of the empty folder would swallow a pod's data.
    fn ensure_staged(&self, volume: &Volume) -> Result<(), Error> {
        let Some(stage) = &volume.stage else { return Ok(()) };
        if mountinfo::at(&stage.path)?.is_some() {
            return Ok(());
        }
        tracing::warn!(volume = volume.id, path = %stage.path.display(), "staged and not mounted: mounted again");
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
    fn is_ours(&self, volume: Option<&Volume>, target: &Path) -> Result<bool, Error> {
        let Some(mount) = mountinfo::at(target)? else { return Ok(false) };
        let Some(volume) = volume else {
            return Err(Error::Precondition(format!(
                "{} is a mount of {}, and the volume is not known: unmount it by hand",
                target.display(),
                mount.source
            )));
        };
        for device in self.pool.loops(volume)? {
            let node = Path::new("/").join(device.path.file_name().unwrap_or_default());
            if super::stage::mounted_from(&device, target)? || mount.root == node {
                return Ok(true);
            }
        }
        Err(Error::Precondition(format!(
            "{} is a mount of {}, not of volume {}: unmount it by hand",
            target.display(),
            mount.source,
            volume.id
        )))
    }

    /// The device for reading goes with the last publication that needs it, unless it is the staged one.
    fn detach_unused(&self, volume: &Volume) -> Result<(), Error> {
        let staged = volume.stage.as_ref().is_some_and(|stage| stage.read_only);
        let published = volume.publications.values().any(|publication| publication.read_only);
        if staged || published { Ok(()) } else { self.detach(volume, true) }
    }
}

/// Makes the target: a folder for a filesystem, a file for a device.
fn make_target(target: &Path, access: &Access) -> Result<(), Error> {
    let made = match access {
        Access::Mount { .. } => fs::create_dir(target),
        Access::Block => File::options().write(true).create_new(true).open(target).map(drop),
    };
    match made {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(Error::file("create target", target)(error))
        }
        _ => Ok(()),
    }
}

/// Removes the target, never anything in it.
fn remove_target(target: &Path) -> Result<(), Error> {
    let removed = match fs::symlink_metadata(target) {
        Ok(there) if there.is_dir() => fs::remove_dir(target),
        Ok(there) if there.is_file() && there.len() == 0 => fs::remove_file(target),
        Ok(_) => Err(std::io::Error::other("neither an empty file nor an empty folder")),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != ErrorKind::NotFound => {
            Err(Error::file("remove target", target)(error))
        }
        _ => Ok(()),
    }
}
