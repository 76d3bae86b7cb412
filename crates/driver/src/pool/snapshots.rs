//! Takes and deletes snapshots.

use std::{
    sync::Arc,
    thread::{self, ScopedJoinHandle},
};

use wharf_csi_sdk::Fingerprint;
use wharf_mount::sync;

use super::{
    Mark, Pool, fresh_id,
    frozen::{FrozenVolume, too_slow},
    now, remove,
    rules::{Rules, Wanted},
    sharing::Origin,
};
use crate::{
    backend::{BackendKind, Shape},
    devices::CopyLock,
    error::Error,
    points::Point,
    record::{Blocks, Group, Phase, Snapshot, Volume},
    store::Draft,
};

/// A snapshot to be created.
#[derive(Clone, Debug)]
pub struct NewSnapshot {
    /// Name that the orchestrator gave.
    pub name: String,
    /// Fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// ID of the volume.
    pub volume: String,
}

impl Pool {
    /// Takes a snapshot. Idempotent by name.
    ///
    /// # Errors
    /// If the name belongs to a snapshot of another volume, the volume is missing or cannot be
    /// frozen, or the pool is full.
    pub fn create_snapshot(&self, new: NewSnapshot) -> Result<Arc<Snapshot>, Error> {
        // A missing volume is detected below, unless the snapshot exists.
        self.settled_volume(&new.volume).map(drop).or_else(Error::unless_missing)?;
        // Flush the volume and the promise in parallel.
        let (flushed, promised) = thread::scope(|scope| {
            let unmade = self.volume_to_flush(&new);
            let flush = unmade.map(|volume| scope.spawn(move || self.flush(&volume)));
            let promised = self.promise_snapshot(new);
            (flush.map_or(Ok(()), joined), promised)
        });
        let snapshot = promised?;
        if snapshot.phase != Phase::Creating {
            return Ok(snapshot);
        }
        self.reach(Point::SnapshotPromised)?;
        let made = flushed
            .and_then(|()| self.make_snapshot(&snapshot))
            .inspect_err(|_| self.forget_snapshots(&[&snapshot]))?;
        let ready = self.store.update(move |draft| {
            let id = made.id.clone();
            draft.put(made);
            draft.snapshots.get(&id).cloned().ok_or_else(|| Error::no_snapshot(&id))
        })?;
        self.wake_unsharing(&ready.id, ready.blocks, !ready.is_thin());
        self.reach(Point::SnapshotReady)?;
        Ok(ready)
    }

    /// Deletes a snapshot. Succeeds if it does not exist.
    ///
    /// # Errors
    /// If it belongs to a group, or the disk fails; then a retry continues.
    pub fn delete_snapshot(&self, id: &str) -> Result<(), Error> {
        let key = id.to_owned();
        let going = self.store.update(move |draft| {
            if let Some(group) =
                draft.snapshots.get(&key).and_then(|snapshot| snapshot.group.clone())
            {
                return Err(Error::GroupMember { snapshot: key, group });
            }
            Ok(draft.edit(&key, |snapshot: &mut Snapshot| snapshot.phase = Phase::Deleting))
        })?;
        let Some(snapshot) = going else { return Ok(()) };
        self.reach(Point::SnapshotDeleteBegun)?;
        self.finish_snapshot_delete(&snapshot)
    }

    /// Finishes a deletion that is recorded.
    pub(super) fn finish_snapshot_delete(&self, snapshot: &Snapshot) -> Result<(), Error> {
        self.unlink_snapshot(snapshot)?;
        sync::folder(&self.layout.snapshots())?;
        self.reach(Point::SnapshotDeleteUnlinked)?;
        let id = snapshot.id.clone();
        self.store.update(move |draft| {
            draft.remove::<Snapshot>(&id);
            Ok::<_, Error>(())
        })?;
        self.reach(Point::SnapshotDeleteDone)?;
        Ok(())
    }

    pub(super) fn unlink_snapshot(&self, snapshot: &Snapshot) -> Result<(), Error> {
        remove(&self.layout.partial_image(&snapshot.image))?;
        let image = self.devices.lock(&self.layout.snapshot(&snapshot.image), false)?;
        self.remove_reserve(&snapshot.image)?;
        image.delete()
    }

    /// Removes the promises of snapshots that could not be taken.
    pub(super) fn forget_snapshots(&self, snapshots: &[&Snapshot]) {
        let unlinked = snapshots.iter().try_for_each(|snapshot| self.unlink_snapshot(snapshot));
        let ids: Vec<_> = snapshots.iter().map(|snapshot| snapshot.id.clone()).collect();
        let forgotten = unlinked.and_then(|()| {
            self.store.update(move |draft| {
                for id in &ids {
                    draft.remove::<Snapshot>(id);
                }
                Ok::<_, Error>(())
            })
        });
        if let Err(error) = forgotten {
            tracing::warn!(%error, "failed to remove promise of failed snapshot");
        }
    }

    fn promise_snapshot(&self, new: NewSnapshot) -> Result<Arc<Snapshot>, Error> {
        let (id, image) = (self.new_id("snap")?, fresh_id("")?);
        let rules = self.rules();
        self.store.update(move |draft| {
            let (id, image) = match draft.snapshots.named(&new.name).cloned() {
                None => (id, image),
                Some(snapshot) => {
                    let snapshot = resume(&snapshot, &new.volume)?;
                    if snapshot.phase != Phase::Creating {
                        return Ok(snapshot);
                    }
                    // The volume may have been expanded or deleted since: promise everything but
                    // the ID again.
                    draft.remove::<Snapshot>(&snapshot.id);
                    (snapshot.id.clone(), snapshot.image.clone())
                }
            };
            let snapshot = promised(draft, &rules, &new, id, image, None)?;
            rules.room_for(draft, wanted(&snapshot))?;
            let id = snapshot.id.clone();
            draft.put(snapshot);
            draft.snapshots.get(&id).cloned().ok_or_else(|| Error::no_snapshot(&id))
        })
    }

    /// The volume of a snapshot that is still to be taken, if the copy is instant and therefore
    /// begins with a flush.
    fn volume_to_flush(&self, new: &NewSnapshot) -> Option<Arc<Volume>> {
        let made = |snapshot: &Arc<Snapshot>| snapshot.phase != Phase::Creating;
        self.store.read(|state| {
            let volume = state.volumes.get(&new.volume)?;
            let is_made = state.snapshots.named(&new.name).is_some_and(made);
            let flushes = !is_made && self.backend(volume.backend).instant();
            flushes.then(|| Arc::clone(volume))
        })
    }

    /// Takes a snapshot of a volume, which was flushed if its copy is instant.
    fn make_snapshot(&self, snapshot: &Snapshot) -> Result<Snapshot, Error> {
        let volume = self.volume(&snapshot.volume)?;
        let partial = self.layout.partial_image(&snapshot.image);
        remove(&partial)?;
        let backend = self.backend(snapshot.backend);
        let lock = self.lock_copy(&volume)?;
        self.reserve_for(snapshot)?;
        let frozen = match backend.instant() {
            true => FrozenVolume::not_frozen(),
            false => self.freeze_for_copy(&lock, &volume, backend)?,
        };
        self.reach(Point::SnapshotFrozen)?;
        let cut = Snapshot { cut: now(), ..snapshot.clone() };
        let limit = frozen.limit();
        self.copy_image(&lock, &volume, &cut, limit)
            .map_err(|error| too_slow(error, &volume.id, limit))?;
        self.reach(Point::SnapshotCut)?;
        frozen.release()?;
        drop(lock);
        self.reach(Point::SnapshotThawed)?;
        let blocks = self.blocks_of(&cut)?;
        let ready = Snapshot { phase: Phase::Ready, blocks, ..cut };
        let place = self.layout.snapshot(&ready.image);
        let points = [Point::SnapshotMarked, Point::SnapshotRenamed];
        self.put_in_place(&Mark::snapshot(&ready, None), &partial, &place, backend, points)?;
        Ok(ready)
    }

    /// Makes the reserve of a snapshot that must be unshared. Call it before the snapshot is taken.
    pub(super) fn reserve_for(&self, snapshot: &Snapshot) -> Result<(), Error> {
        match snapshot.blocks.is_unsharing() {
            true => self.make_reserve(&snapshot.image, snapshot.size),
            false => Ok(()),
        }
    }

    /// Returns the state of a new snapshot's blocks. Frees the part of its reserve that is not
    /// needed.
    pub(super) fn blocks_of(&self, snapshot: &Snapshot) -> Result<Blocks, Error> {
        match snapshot.blocks.is_unsharing() {
            true => self.trim_reserve(&snapshot.image, &self.layout.partial_image(&snapshot.image)),
            false => Ok(snapshot.blocks),
        }
    }

    /// Copies a frozen or flushed volume into a snapshot's image.
    pub(super) fn copy_image(
        &self,
        _lock: &CopyLock<'_>,
        volume: &Volume,
        snapshot: &Snapshot,
        limit: Option<std::time::Duration>,
    ) -> Result<(), Error> {
        // A thin copy has the size of its source, and no blocks where nothing was written.
        let shape = Shape { size: snapshot.size, thin: true };
        let partial = self.layout.partial_image(&snapshot.image);
        self.backend(snapshot.backend).copy(&self.image(volume), &partial, shape, limit)
    }
}

/// Joins a thread and propagates its panic.
fn joined<T>(thread: ScopedJoinHandle<'_, T>) -> T {
    thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
}

/// Builds the record of a promised snapshot.
pub(super) fn promised(
    draft: &Draft<'_>,
    rules: &Rules,
    new: &NewSnapshot,
    id: String,
    image: String,
    group: Option<&Group>,
) -> Result<Snapshot, Error> {
    let volume = draft.volumes.get(&new.volume).filter(|volume| volume.phase == Phase::Ready);
    let volume = volume.ok_or_else(|| Error::no_volume(&new.volume))?;
    let origin = Origin { family: &volume.family, blocks: volume.blocks };
    let unshared = volume.backend == BackendKind::ImageReflink
        && rules.sharing_policy().must_unshare(draft, origin, false);
    let (blocks, family) = match unshared {
        true => (Blocks::Unsharing { bytes: volume.capacity }, id.clone()),
        false => (Blocks::Shared, volume.family.clone()),
    };
    Ok(Snapshot {
        id,
        name: new.name.clone(),
        image,
        fingerprint: new.fingerprint.clone(),
        backend: volume.backend,
        volume: volume.id.clone(),
        size: volume.capacity,
        reserved: if volume.thin { 0 } else { volume.capacity },
        phase: Phase::Creating,
        content: volume.content.into(),
        family,
        cut: 0,
        group: group.map(|group| group.id.clone()),
        blocks,
    })
}

/// The space that a snapshot needs.
pub(super) fn wanted(snapshot: &Snapshot) -> Wanted {
    let held = if snapshot.blocks.is_unsharing() { snapshot.size } else { 0 };
    Wanted { promised: snapshot.reserved.max(held), thin: snapshot.is_thin().then_some(0) }
}

fn resume(snapshot: &Arc<Snapshot>, volume: &str) -> Result<Arc<Snapshot>, Error> {
    if snapshot.volume != volume {
        return Err(Error::Exists(format!(
            "snapshot {} has this name and is of volume {}",
            snapshot.id, snapshot.volume
        )));
    }
    if snapshot.phase == Phase::Deleting {
        return Err(Error::Pending(format!(
            "snapshot {} of that name is being deleted",
            snapshot.id
        )));
    }
    Ok(snapshot.clone())
}
