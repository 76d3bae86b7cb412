//! Volumes: created, cloned, deleted.

use std::sync::Arc;

use wharf_csi_sdk::Fingerprint;
use wharf_mount::{Filesystem, sync};

use super::cut::too_slow;
use super::rules::Wanted;
use super::sharing::Origin;
use super::{Mark, Pool, ensure_length, fresh_id, remove};
use crate::backend::{Backend, BackendKind, Shape};
use crate::error::Error;
use crate::limits::Limits;
use crate::points::Point;
use crate::record::{Blocks, CopyContent, Phase, Source, Volume};
use crate::store::{Draft, State};

/// A volume to be made.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// The id, where the orchestrator brings its own; else one is made up.
    pub id: Option<String>,
    /// The orchestrator's name.
    pub name: String,
    /// The request.
    pub fingerprint: Fingerprint,
    /// The kind of image; `None` is the source's, or the pool's default.
    pub backend: Option<BackendKind>,
    /// Its size in bytes.
    pub capacity: u64,
    /// Whether its space is taken only as it is written.
    pub thin: bool,
    /// The filesystem it gets when its first use asks for none.
    pub filesystem: Option<Filesystem>,
    /// Where its first bytes come from.
    pub source: Option<Source>,
    /// Limits of its device.
    pub limits: Limits,
    /// Made by its first publish and gone with its last.
    pub ephemeral: bool,
}

/// What a new volume takes over from its source.
#[derive(Clone)]
struct Heritage {
    content: CopyContent,
    family: Option<String>,
    backend: BackendKind,
    size: u64,
    blocks: Blocks,
}

/// What became of a request for a volume.
enum Promise {
    /// The volume is promised, or whole.
    Kept(Arc<Volume>),
    /// The volume was promised before a crash and cannot be made any more: nothing of it may stay.
    Broken(Arc<Volume>, Error),
}

impl Pool {
    /// Makes a volume, or goes on making it after a crash. Idempotent by name.
    ///
    /// # Errors
    /// When the name is taken by another request, the source is missing or too large, or the pool is full.
    pub fn create_volume(&self, new: NewVolume) -> Result<Arc<Volume>, Error> {
        self.create_volume_from(new, self)
    }

    /// As [`Self::create_volume`], with a source that is on the pool `origin`. Where that is another pool, the volume is a copy
    /// that shares nothing with its source.
    ///
    /// # Errors
    /// As [`Self::create_volume`].
    pub fn create_volume_from(&self, new: NewVolume, origin: &Self) -> Result<Arc<Volume>, Error> {
        if let Some(Source::Volume(id)) = &new.source {
            origin.settled_volume(id).map(drop).or_else(Error::unless_missing)?;
        }
        let volume = match self.promise_volume(new, origin)? {
            Promise::Kept(volume) => volume,
            Promise::Broken(volume, error) => {
                self.abandon_volume(&volume);
                return Err(error);
            }
        };
        if volume.phase != Phase::Creating {
            return Ok(volume);
        }
        self.reach(Point::CreatePromised)?;
        let blocks = match self.make_volume(&volume, origin) {
            Ok(blocks) => blocks,
            Err(error) => {
                self.abandon_volume(&volume);
                return Err(error);
            }
        };
        let id = volume.id.clone();
        let ready = self.store.update(move |draft| {
            let ready = draft.edit(&id, |volume: &mut Volume| {
                volume.phase = Phase::Ready;
                volume.blocks = blocks;
            });
            ready.ok_or_else(|| Error::no_volume(&id))
        })?;
        self.wake_unsharing(&ready.id, blocks, ready.source.is_some() && !ready.thin);
        self.reach(Point::CreateReady)?;
        Ok(ready)
    }

    /// Takes back what a request promised before a crash and cannot have any more, such as a copy of a source that is gone.
    pub fn give_up_volume(&self, name: &str, fingerprint: &Fingerprint) {
        let promised = self.store.read(|state| state.volumes.named(name).cloned());
        let same = |volume: &Arc<Volume>| volume.fingerprint.difference(fingerprint).is_none();
        if let Some(volume) = promised.filter(|it| it.phase == Phase::Creating).filter(same) {
            self.abandon_volume(&volume);
        }
    }

    /// Deletes a volume; one that does not exist is deleted.
    ///
    /// # Errors
    /// When it is in use, or the disk fails; then a retry goes on.
    pub fn delete_volume(&self, id: &str) -> Result<(), Error> {
        let Ok(volume) = self.volume(id) else { return Ok(()) };
        deletable(&volume)?;
        // Records may be wrong, after a rebuild or a mount by hand: the kernel is asked while the volume is still whole.
        self.lock_image(&volume)?.ensure_detached("deleted")?;
        let key = id.to_owned();
        let going = self.store.update(move |draft| {
            let Some(volume) = draft.volumes.get(&key) else { return Ok(None) };
            deletable(volume)?;
            Ok::<_, Error>(draft.edit(&key, |volume: &mut Volume| volume.phase = Phase::Deleting))
        })?;
        let Some(volume) = going else { return Ok(()) };
        self.reach(Point::DeleteBegun)?;
        self.finish_delete(&volume)
    }

    /// The rest of a deletion, whose record says so already.
    pub(super) fn finish_delete(&self, volume: &Volume) -> Result<(), Error> {
        remove(&self.layout.in_the_making(&volume.image))?;
        self.delete_image(volume)?;
        remove(&self.layout.undo(&volume.image))?;
        sync::folder(&self.layout.volumes())?;
        self.reach(Point::DeleteUnlinked)?;
        let id = volume.id.clone();
        self.store.update(move |draft| {
            draft.remove::<Volume>(&id);
            Ok::<_, Error>(())
        })?;
        self.reach(Point::DeleteDone)?;
        Ok(())
    }

    fn promise_volume(&self, new: NewVolume, origin: &Self) -> Result<Promise, Error> {
        let id = new.id.clone().map_or_else(|| self.new_id("vol"), Ok)?;
        let image = fresh_id("")?;
        let rules = self.rules();
        let default = self.default_backend();
        let foreign = self.foreign_heritage(&new, origin);
        let (reflink, copy_on_write) = (self.reflink, self.copy_on_write);
        let plan = move |draft: &Draft<'_>, id: String, image: String, new: NewVolume| {
            rules.allow_kind(new.thin, new.ephemeral)?;
            let heritage = match &foreign {
                Some(Ok(foreign)) => foreign.clone(),
                Some(Err(id)) => return Err(id.error()),
                None => heritage(draft, new.source.as_ref(), default)?,
            };
            if new.capacity < heritage.size {
                return Err(Error::OutOfRange(format!(
                    "capacity {} is smaller than its source's {} bytes",
                    new.capacity, heritage.size
                )));
            }
            let only_copies = copy_on_write && !new.thin;
            let inherited = if only_copies { BackendKind::ImageCopy } else { heritage.backend };
            let backend = new.backend.unwrap_or(inherited);
            if only_copies && backend == BackendKind::ImageReflink {
                return Err(Error::invalid(
                    "parameters.backend",
                    "image-copy, or thin: on btrfs a thick volume keeps its space only if it shares no blocks",
                ));
            }
            if backend == BackendKind::ImageReflink && !reflink {
                return Err(Error::invalid(
                    "parameters.backend",
                    "image-copy, since the pool's filesystem cannot share blocks",
                ));
            }
            // Only a copy that shares blocks joins its source's family.
            let family = heritage.family.filter(|_| backend == BackendKind::ImageReflink);
            let unshared = family.as_ref().is_some_and(|family| {
                let origin = Origin { family, blocks: heritage.blocks };
                rules.ground().must_unshare(draft, origin, !new.thin)
            });
            let promised = match (new.thin, unshared) {
                (false, _) => new.capacity,
                (true, true) => heritage.size,
                (true, false) => 0,
            };
            rules.room_for(draft, Wanted { promised, thin: new.thin.then_some(new.capacity) })?;
            let blocks = match unshared {
                true => Blocks::Unsharing { bytes: heritage.size },
                false => Blocks::Shared,
            };
            let family = family.filter(|_| !unshared);
            Ok(Volume {
                family: family.unwrap_or_else(|| id.clone()),
                id,
                name: new.name,
                image,
                fingerprint: new.fingerprint,
                backend,
                capacity: new.capacity,
                filesystem: new.filesystem,
                thin: new.thin,
                phase: Phase::Creating,
                content: heritage.content.into(),
                source: new.source,
                limits: new.limits,
                attachments: Default::default(),
                stage: None,
                publications: Default::default(),
                ephemeral: new.ephemeral,
                frozen_for_copy: false,
                blocks,
            })
        };
        self.store.update(move |draft| {
            let Some(old) = draft.volumes.named(&new.name).cloned() else {
                if draft.volumes.get(&id).is_some() {
                    return Err(Error::Exists(format!("volume {id} has that id and another name")));
                }
                let volume = plan(draft, id, image, new)?;
                return Ok(Promise::Kept(put(draft, volume)));
            };
            resume(&old, &new)?;
            if old.phase != Phase::Creating {
                return Ok(Promise::Kept(old));
            }
            // Its source may have grown, been written to or gone since: all but the id is promised again.
            draft.remove::<Volume>(&old.id);
            match plan(draft, old.id.clone(), old.image.clone(), new) {
                Ok(volume) => Ok(Promise::Kept(put(draft, volume))),
                Err(error) => {
                    put(draft, Volume::clone(&old));
                    Ok(Promise::Broken(old, error))
                }
            }
        })
    }

    /// Makes the image of a volume, and says whose its blocks are.
    fn make_volume(&self, volume: &Volume, origin: &Self) -> Result<Blocks, Error> {
        let partial = self.layout.in_the_making(&volume.image);
        remove(&partial)?;
        let shape = Shape { size: volume.capacity, thin: volume.thin };
        let backend = self.copier(volume, origin);
        let blocks = match volume.blocks {
            Blocks::Unsharing { bytes } => {
                self.make_reserve(&volume.image, bytes)?;
                // The space of its holes is taken when the reserve has given back what the copy does not share.
                self.fill_volume(volume, origin, Shape { thin: true, ..shape })?;
                let blocks = self.trim_reserve(&volume.image, &partial)?;
                backend.grow(&partial, shape)?;
                blocks
            }
            blocks => {
                self.fill_volume(volume, origin, shape)?;
                blocks
            }
        };
        self.reach(Point::CreateMade)?;
        let mark = Mark::volume(&Volume { phase: Phase::Ready, blocks, ..volume.clone() });
        let points = [Point::CreateMarked, Point::CreateRenamed];
        self.put_in_place(&mark, &partial, &self.image(volume), backend, points)?;
        Ok(blocks)
    }

    /// Makes the image of a volume with the bytes of its source.
    fn fill_volume(&self, volume: &Volume, origin: &Self, shape: Shape) -> Result<(), Error> {
        let partial = self.layout.in_the_making(&volume.image);
        let backend = self.copier(volume, origin);
        match &volume.source {
            None => backend.provision(&partial, shape),
            Some(Source::Snapshot(id)) => {
                let snapshot = origin.snapshot(id)?;
                let source = origin.layout.snapshot(&snapshot.image);
                ensure_length(&source, snapshot.size, &format!("snapshot {id}"))?;
                backend.copy(&source, &partial, shape, None)
            }
            Some(Source::Volume(id)) => {
                let source = origin.volume(id)?;
                let lock = origin.lock_copy(&source)?;
                let foreign = !std::ptr::eq(self, origin);
                if foreign {
                    // Whoever finds this pool after a kill may not find the one that the copy is on.
                    origin.edit_volume(id, |source| source.frozen_for_copy = true)?;
                }
                let still = origin.ready_to_copy(&lock, &source, backend)?;
                self.reach(Point::CloneFrozen)?;
                let copied = backend.copy(&origin.image(&source), &partial, shape, still.limit());
                let copied = copied.map_err(|error| too_slow(error, id, still.limit()));
                still.release()?;
                if foreign {
                    origin.edit_volume(id, |source| source.frozen_for_copy = false)?;
                }
                copied
            }
        }
    }

    /// Deletes the image of a volume and the space that is held for it.
    fn delete_image(&self, volume: &Volume) -> Result<(), Error> {
        let image = self.lock_image(volume)?;
        self.remove_reserve(&volume.image)?;
        image.delete()
    }

    /// How a volume gets the bytes of its source: blocks are shared within a pool only.
    fn copier(&self, volume: &Volume, origin: &Self) -> &'static dyn Backend {
        match std::ptr::eq(self, origin) {
            true => self.backend(volume.backend),
            false => self.backend(BackendKind::ImageCopy),
        }
    }

    /// What a volume takes over from a source on another pool; `None` if its source is here, or it has none.
    fn foreign_heritage(
        &self,
        new: &NewVolume,
        origin: &Self,
    ) -> Option<Result<Heritage, Missing>> {
        let source = new.source.as_ref().filter(|_| !std::ptr::eq(self, origin))?;
        let default = self.default_backend();
        let found = origin.store.read(|state| heritage(state, Some(source), default));
        let foreign = |found| Heritage { family: None, backend: default, ..found };
        Some(found.map(foreign).map_err(|_| Missing(source.clone())))
    }

    /// Takes the promise of a volume back. What cannot be undone now is undone at the next start.
    fn abandon_volume(&self, volume: &Volume) {
        let id = volume.id.clone();
        let undone = remove(&self.layout.in_the_making(&volume.image))
            .and_then(|()| self.delete_image(volume))
            .and_then(|()| {
                self.store.update(move |draft| {
                    draft.remove::<Volume>(&id);
                    Ok::<_, Error>(())
                })
            });
        if let Err(error) = undone {
            tracing::warn!(volume = volume.id, %error, "a volume that could not be made is still promised");
        }
    }
}

/// Puts a record, and gives it as it is kept.
fn put(draft: &mut Draft<'_>, volume: Volume) -> Arc<Volume> {
    let kept = Arc::new(volume.clone());
    draft.put(volume);
    kept
}

/// Refuses a name that another request has taken.
fn resume(volume: &Volume, new: &NewVolume) -> Result<(), Error> {
    if volume.phase == Phase::Deleting {
        return Err(Error::Pending(format!("volume {} of that name is being deleted", volume.id)));
    }
    match volume.fingerprint.difference(&new.fingerprint) {
        None => Ok(()),
        Some(part) => Err(Error::Exists(format!(
            "volume {} has that name and was asked for with another {part}",
            volume.id
        ))),
    }
}

/// A source that does not exist.
#[derive(Clone)]
struct Missing(Source);

impl Missing {
    fn error(&self) -> Error {
        match &self.0 {
            Source::Volume(id) => Error::no_volume(id),
            Source::Snapshot(id) => Error::no_snapshot(id),
        }
    }
}

fn heritage(
    draft: &State,
    source: Option<&Source>,
    default: BackendKind,
) -> Result<Heritage, Error> {
    Ok(match source {
        None => Heritage {
            content: CopyContent::Blank,
            family: None,
            backend: default,
            size: 0,
            blocks: Blocks::Shared,
        },
        Some(Source::Snapshot(id)) => {
            let snapshot =
                draft.snapshots.get(id).filter(|snapshot| snapshot.phase == Phase::Ready);
            let snapshot = snapshot.ok_or_else(|| Error::no_snapshot(id))?;
            Heritage {
                content: snapshot.content,
                family: Some(snapshot.family.clone()),
                backend: snapshot.backend,
                size: snapshot.size,
                blocks: snapshot.blocks,
            }
        }
        Some(Source::Volume(id)) => {
            let volume = draft.volumes.get(id).filter(|volume| volume.phase == Phase::Ready);
            let volume = volume.ok_or_else(|| Error::no_volume(id))?;
            Heritage {
                content: volume.content.into(),
                family: Some(volume.family.clone()),
                backend: volume.backend,
                size: volume.capacity,
                blocks: volume.blocks,
            }
        }
    })
}

/// Refuses a volume that a record says is in use.
pub(super) fn deletable(volume: &Volume) -> Result<(), Error> {
    let refuse = |how: String| Err(Error::Precondition(format!("volume {} {how}", volume.id)));
    if let Some(node) = volume.attachments.keys().next() {
        return refuse(format!("is published to node {node}: unpublish it first"));
    }
    if let Some(stage) = &volume.stage {
        return refuse(format!("is staged at {}: unstage it first", stage.path.display()));
    }
    if let Some(target) = volume.publications.keys().next() {
        return refuse(format!("is published at {}: unpublish it first", target.display()));
    }
    Ok(())
}
