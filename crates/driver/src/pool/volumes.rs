//! Creates, clones and deletes volumes.

use std::sync::Arc;

use wharf_csi_sdk::Fingerprint;
use wharf_mount::{Filesystem, sync};

use super::{
    Mark, Pool, ensure_length, fresh_id, frozen::too_slow, remove, rules::Wanted, sharing::Origin,
};
use crate::{
    backend::{Backend, BackendKind, Shape},
    error::Error,
    limits::Limits,
    points::Point,
    record::{Blocks, CopyContent, Phase, Source, Volume},
    store::{Draft, State},
};

/// A volume to be created.
#[derive(Clone, Debug)]
pub struct NewVolume {
    /// ID, if the orchestrator chooses it; otherwise one is generated.
    pub id: Option<String>,
    /// Name that the orchestrator gave.
    pub name: String,
    /// Fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// Backend; `None` means that of the source, or the pool's default.
    pub backend: Option<BackendKind>,
    /// Size in bytes.
    pub capacity: u64,
    /// Whether blocks are allocated only when they are written.
    pub thin: bool,
    /// Filesystem to create if the first use requests none.
    pub filesystem: Option<Filesystem>,
    /// Source of the content.
    pub source: Option<Source>,
    /// I/O limits.
    pub limits: Limits,
    /// Whether this is an inline volume: created by its first publish, deleted with its last
    /// publication.
    pub ephemeral: bool,
}

/// Properties that a new volume inherits from its source.
#[derive(Clone)]
struct Inherited {
    content: CopyContent,
    family: Option<String>,
    backend: BackendKind,
    size: u64,
    blocks: Blocks,
}

/// Result of promising a volume.
enum Promise {
    /// The volume is promised, or complete.
    Kept(Arc<Volume>),
    /// The volume was promised before a crash and cannot be created any more: its remains must be
    /// removed.
    Broken(Arc<Volume>, Error),
}

impl Pool {
    /// Creates a volume, or continues after a crash. Idempotent by name.
    ///
    /// # Errors
    /// If the name belongs to another request, the source is missing or too large, or the pool is
    /// full.
    pub fn create_volume(&self, new: NewVolume) -> Result<Arc<Volume>, Error> {
        self.create_volume_from(new, self)
    }

    /// Like [`Self::create_volume`], with a source on the pool `origin`. If that is another pool,
    /// the volume is a copy that shares no blocks.
    ///
    /// # Errors
    /// See [`Self::create_volume`].
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

    /// Removes the promise that a request made before a crash and that cannot be fulfilled any
    /// more, such as a copy of a deleted source.
    pub fn give_up_volume(&self, name: &str, fingerprint: &Fingerprint) {
        let promised = self.store.read(|state| state.volumes.named(name).cloned());
        let same = |volume: &Arc<Volume>| volume.fingerprint.difference(fingerprint).is_none();
        if let Some(volume) = promised.filter(|it| it.phase == Phase::Creating).filter(same) {
            self.abandon_volume(&volume);
        }
    }

    /// Deletes a volume. Succeeds if it does not exist.
    ///
    /// # Errors
    /// If it is in use, or the disk fails; then a retry continues.
    pub fn delete_volume(&self, id: &str) -> Result<(), Error> {
        let Ok(volume) = self.volume(id) else { return Ok(()) };
        deletable(&volume)?;
        // Records may be wrong after a rebuild or a manual mount: ask the kernel while the volume
        // is still complete.
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

    /// Finishes a deletion that is recorded.
    pub(super) fn finish_delete(&self, volume: &Volume) -> Result<(), Error> {
        remove(&self.layout.partial_image(&volume.image))?;
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
        let foreign = self.inherit_foreign(&new, origin);
        let (reflink, copy_on_write) = (self.reflink, self.copy_on_write);
        let plan = move |draft: &Draft<'_>, id: String, image: String, new: NewVolume| {
            rules.allow_kind(new.thin, new.ephemeral)?;
            let inherited = match &foreign {
                Some(Ok(foreign)) => foreign.clone(),
                Some(Err(id)) => return Err(id.error()),
                None => inherit(draft, new.source.as_ref(), default)?,
            };
            if new.capacity < inherited.size {
                return Err(Error::OutOfRange(format!(
                    "capacity {} is smaller than its source's {} bytes",
                    new.capacity, inherited.size
                )));
            }
            let only_copies = copy_on_write && !new.thin;
            let usual = if only_copies { BackendKind::ImageCopy } else { inherited.backend };
            let backend = new.backend.unwrap_or(usual);
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
            let family = inherited.family.filter(|_| backend == BackendKind::ImageReflink);
            let unshared = family.as_ref().is_some_and(|family| {
                let origin = Origin { family, blocks: inherited.blocks };
                rules.sharing_policy().must_unshare(draft, origin, !new.thin)
            });
            let promised = match (new.thin, unshared) {
                (false, _) => new.capacity,
                (true, true) => inherited.size,
                (true, false) => 0,
            };
            rules.room_for(draft, Wanted { promised, thin: new.thin.then_some(new.capacity) })?;
            let blocks = match unshared {
                true => Blocks::Unsharing { bytes: inherited.size },
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
                content: inherited.content.into(),
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
            // The source may have been expanded, written or deleted since: promise everything but
            // the ID again.
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

    /// Creates the image of a volume. Returns the state of its blocks.
    fn make_volume(&self, volume: &Volume, origin: &Self) -> Result<Blocks, Error> {
        let partial = self.layout.partial_image(&volume.image);
        remove(&partial)?;
        let shape = Shape { size: volume.capacity, thin: volume.thin };
        let backend = self.copier(volume, origin);
        let blocks = match volume.blocks {
            Blocks::Unsharing { bytes } => {
                self.make_reserve(&volume.image, bytes)?;
                // Make it thin: its holes are allocated after the reserve has freed what the copy
                // does not need.
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

    /// Creates the image of a volume with the content of its source.
    fn fill_volume(&self, volume: &Volume, origin: &Self, shape: Shape) -> Result<(), Error> {
        let partial = self.layout.partial_image(&volume.image);
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
                    // After a kill, a start that finds this pool may not find the pool of the copy:
                    // record the freeze here.
                    origin.edit_volume(id, |source| source.frozen_for_copy = true)?;
                }
                let frozen = origin.prepare_copy(&lock, &source, backend)?;
                self.reach(Point::CloneFrozen)?;
                let copied = backend.copy(&origin.image(&source), &partial, shape, frozen.limit());
                let copied = copied.map_err(|error| too_slow(error, id, frozen.limit()));
                frozen.release()?;
                if foreign {
                    origin.edit_volume(id, |source| source.frozen_for_copy = false)?;
                }
                copied
            }
        }
    }

    /// Deletes the image and the reserve of a volume.
    fn delete_image(&self, volume: &Volume) -> Result<(), Error> {
        let image = self.lock_image(volume)?;
        self.remove_reserve(&volume.image)?;
        image.delete()
    }

    /// Returns the backend that copies the source of a volume: blocks can be shared within a pool
    /// only.
    fn copier(&self, volume: &Volume, origin: &Self) -> &'static dyn Backend {
        match std::ptr::eq(self, origin) {
            true => self.backend(volume.backend),
            false => self.backend(BackendKind::ImageCopy),
        }
    }

    /// Properties inherited from a source on another pool; `None` if the source is on this pool, or
    /// there is none.
    fn inherit_foreign(
        &self,
        new: &NewVolume,
        origin: &Self,
    ) -> Option<Result<Inherited, Missing>> {
        let source = new.source.as_ref().filter(|_| !std::ptr::eq(self, origin))?;
        let default = self.default_backend();
        let found = origin.store.read(|state| inherit(state, Some(source), default));
        let foreign = |found| Inherited { family: None, backend: default, ..found };
        Some(found.map(foreign).map_err(|_| Missing(source.clone())))
    }

    /// Removes the promise of a volume. What cannot be undone now is undone at the next start.
    fn abandon_volume(&self, volume: &Volume) {
        let id = volume.id.clone();
        let undone = remove(&self.layout.partial_image(&volume.image))
            .and_then(|()| self.delete_image(volume))
            .and_then(|()| {
                self.store.update(move |draft| {
                    draft.remove::<Volume>(&id);
                    Ok::<_, Error>(())
                })
            });
        if let Err(error) = undone {
            tracing::warn!(volume = volume.id, %error, "failed to remove promise of failed volume");
        }
    }
}

/// Puts a record, and returns it.
fn put(draft: &mut Draft<'_>, volume: Volume) -> Arc<Volume> {
    let kept = Arc::new(volume.clone());
    draft.put(volume);
    kept
}

/// Refuses a name that belongs to another request.
fn resume(volume: &Volume, new: &NewVolume) -> Result<(), Error> {
    if volume.phase == Phase::Deleting {
        return Err(Error::Pending(format!("volume {} of that name is being deleted", volume.id)));
    }
    match volume.fingerprint.difference(&new.fingerprint) {
        None => Ok(()),
        Some(part) => Err(Error::Exists(format!(
            "volume {} has this name, and its request differs in {part}",
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

fn inherit(
    draft: &State,
    source: Option<&Source>,
    default: BackendKind,
) -> Result<Inherited, Error> {
    Ok(match source {
        None => Inherited {
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
            Inherited {
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
            Inherited {
                content: volume.content.into(),
                family: Some(volume.family.clone()),
                backend: volume.backend,
                size: volume.capacity,
                blocks: volume.blocks,
            }
        }
    })
}

/// Refuses a volume that is in use according to its record.
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
