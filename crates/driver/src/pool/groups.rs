//! Group snapshots: snapshots of several volumes, taken at one moment.
//!
//! All filesystems are frozen before the first image is copied. So no snapshot has a write that
//! depends on a write missing in another snapshot.

use std::{sync::Arc, thread};

use wharf_csi_sdk::Fingerprint;
use wharf_mount::sync;

use super::{
    Mark, NewSnapshot, Pool, fresh_id,
    frozen::{FrozenVolume, too_slow},
    now, remove, rename,
    rules::Wanted,
    snapshots::{promised, wanted},
};
use crate::{
    devices::CopyLock,
    error::Error,
    points::Point,
    record::{Group, Phase, Snapshot, Volume},
};

/// A group to be created.
#[derive(Clone, Debug)]
pub struct NewGroup {
    /// Name that the orchestrator gave.
    pub name: String,
    /// Fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// IDs of the volumes.
    pub volumes: Vec<String>,
}

type Members = Vec<(Arc<Volume>, Arc<Snapshot>)>;

impl Pool {
    /// Takes snapshots of several volumes at one moment. Idempotent by name.
    ///
    /// # Errors
    /// If the name belongs to other volumes, a volume is missing or cannot be frozen, or the pool
    /// is full. Then no snapshot is taken.
    pub fn create_group(&self, new: NewGroup) -> Result<Arc<Group>, Error> {
        for volume in &new.volumes {
            self.settled_volume(volume).map(drop).or_else(Error::unless_missing)?;
        }
        let group = self.promise_group(new)?;
        if group.phase != Phase::Creating {
            return Ok(group);
        }
        self.reach(Point::GroupPromised)?;
        let members = self.members(&group)?;
        let cut = match self.cut(&members) {
            Ok(cut) => cut,
            Err(error) => {
                self.forget_group(&group)?;
                return Err(error);
            }
        };
        let ready = self.name_and_keep(&group, &members, cut)?;
        for (_, snapshot) in &members {
            let blocks = self.snapshot(&snapshot.id).map_or(snapshot.blocks, |it| it.blocks);
            self.wake_unsharing(&snapshot.id, blocks, !snapshot.is_thin());
        }
        self.reach(Point::GroupReady)?;
        Ok(ready)
    }

    /// Deletes a group and its snapshots. Succeeds if it does not exist.
    ///
    /// # Errors
    /// If the disk fails; then a retry continues.
    pub fn delete_group(&self, id: &str) -> Result<(), Error> {
        let key = id.to_owned();
        let going = self.store.update(move |draft| {
            let group = draft.edit(&key, |group: &mut Group| group.phase = Phase::Deleting);
            for id in group.iter().flat_map(|group| &group.snapshots) {
                draft.edit(id, |snapshot: &mut Snapshot| snapshot.phase = Phase::Deleting);
            }
            Ok::<_, Error>(group)
        })?;
        let Some(group) = going else { return Ok(()) };
        self.reach(Point::GroupDeleteBegun)?;
        self.forget_group(&group)?;
        self.reach(Point::GroupDeleteDone)?;
        Ok(())
    }

    /// Removes everything that exists of a group.
    pub(super) fn forget_group(&self, group: &Group) -> Result<(), Error> {
        let snapshots: Vec<_> = self.store.read(|state| {
            group.snapshots.iter().filter_map(|id| state.snapshots.get(id).cloned()).collect()
        });
        for snapshot in &snapshots {
            self.unlink_snapshot(snapshot)?;
            self.reach(Point::GroupDeleteUnlinkedOne)?;
        }
        sync::folder(&self.layout.snapshots())?;
        let group = group.clone();
        self.store.update(move |draft| {
            for id in &group.snapshots {
                draft.remove::<Snapshot>(id);
            }
            draft.remove::<Group>(&group.id);
            Ok(())
        })
    }

    fn promise_group(&self, new: NewGroup) -> Result<Arc<Group>, Error> {
        let id = self.new_id("group")?;
        let ids = (0..new.volumes.len())
            .map(|_| Ok((self.new_id("snap")?, fresh_id("")?)))
            .collect::<Result<Vec<_>, Error>>()?;
        let rules = self.rules();
        self.store.update(move |draft| {
            if let Some(group) = draft.groups.named(&new.name) {
                return resume(group, &new);
            }
            let group = Group {
                id: id.clone(),
                name: new.name,
                fingerprint: new.fingerprint.clone(),
                snapshots: ids.iter().map(|(id, _)| id.clone()).collect(),
                size: ids.len(),
                phase: Phase::Creating,
                cut: 0,
            };
            let mut all = Wanted::default();
            let mut snapshots = Vec::new();
            for (volume, (snapshot, image)) in new.volumes.into_iter().zip(ids) {
                let new = NewSnapshot {
                    // Members have no name from the orchestrator; their IDs are unique.
                    name: snapshot.clone(),
                    fingerprint: new.fingerprint.clone(),
                    volume,
                };
                let snapshot = promised(draft, &rules, &new, snapshot, image, Some(&group))?;
                let one = wanted(&snapshot);
                all.promised += one.promised;
                all.thin = all.thin.or(one.thin);
                snapshots.push(snapshot);
            }
            rules.room_for(draft, all)?;
            for snapshot in snapshots {
                draft.put(snapshot);
            }
            draft.put(group);
            draft.groups.get(&id).cloned().ok_or_else(|| not_found(&id))
        })
    }

    fn members(&self, group: &Group) -> Result<Members, Error> {
        let member = |id: &String| {
            let snapshot = self.snapshot(id)?;
            Ok((self.volume(&snapshot.volume)?, snapshot))
        };
        group.snapshots.iter().map(member).collect()
    }

    /// Freezes and copies all volumes. Returns the moment at which all were frozen.
    fn cut(&self, members: &Members) -> Result<i128, Error> {
        for (_, snapshot) in members {
            remove(&self.layout.partial_image(&snapshot.image))?;
            self.reserve_for(snapshot)?;
        }
        // Lock all before the first freeze: no filesystem may stay frozen while another's repair is
        // awaited.
        let volumes: Vec<&Volume> = members.iter().map(|(volume, _)| volume.as_ref()).collect();
        let locks = self.lock_copies(&volumes)?;
        // A freeze waits for a flush: in parallel they take as long as the slowest.
        let frozen = in_parallel(members, &locks, |lock, volume, snapshot| {
            self.freeze_for_copy(lock, volume, self.backend(snapshot.backend))
        })?;
        self.reach(Point::GroupFrozen)?;
        let moment = now();
        let limits: Vec<_> = frozen.iter().map(FrozenVolume::limit).collect();
        let copied = thread::scope(|scope| {
            let copies: Vec<_> = members
                .iter()
                .zip(limits.into_iter().zip(&locks))
                .map(|((volume, snapshot), (limit, lock))| {
                    scope.spawn(move || {
                        self.reach(Point::GroupCutting)?;
                        let copied = self.copy_image(lock, volume, snapshot, limit);
                        copied.map_err(|error| too_slow(error, &volume.id, limit))?;
                        self.reach(Point::GroupCutOne)
                    })
                })
                .collect();
            join(copies)
        });
        if copied.is_ok() {
            self.reach(Point::GroupCut)?;
        }
        for frozen in frozen {
            frozen.release()?;
        }
        self.reach(Point::GroupThawed)?;
        copied.map(|_| moment)
    }

    fn name_and_keep(
        &self,
        group: &Group,
        members: &Members,
        cut: i128,
    ) -> Result<Arc<Group>, Error> {
        let group = Group { phase: Phase::Ready, cut, ..group.clone() };
        let ready = members.iter().map(|(_, snapshot)| {
            let blocks = self.blocks_of(snapshot)?;
            Ok(Snapshot { phase: Phase::Ready, cut, blocks, ..Snapshot::clone(snapshot) })
        });
        let ready = ready.collect::<Result<Vec<_>, Error>>()?;
        for snapshot in &ready {
            let partial = self.layout.partial_image(&snapshot.image);
            Mark::snapshot(snapshot, Some(&group)).write(&partial)?;
            rename(&partial, &self.layout.snapshot(&snapshot.image))?;
            self.reach(Point::GroupRenamedOne)?;
        }
        sync::folder(&self.layout.snapshots())?;
        self.reach(Point::GroupRenamed)?;
        self.store.update(move |draft| {
            for snapshot in ready {
                draft.put(snapshot);
            }
            let id = group.id.clone();
            draft.put(group);
            draft.groups.get(&id).cloned().ok_or_else(|| not_found(&id))
        })
    }
}

fn in_parallel<T: Send>(
    members: &Members,
    locks: &[CopyLock<'_>],
    work: impl Fn(&CopyLock<'_>, &Volume, &Snapshot) -> Result<T, Error> + Sync,
) -> Result<Vec<T>, Error> {
    thread::scope(|scope| {
        let work = &work;
        join(
            members
                .iter()
                .zip(locks)
                .map(|((volume, snapshot), lock)| scope.spawn(move || work(lock, volume, snapshot)))
                .collect(),
        )
    })
}

/// Joins all threads, then returns the first error.
fn join<T>(threads: Vec<thread::ScopedJoinHandle<'_, Result<T, Error>>>) -> Result<Vec<T>, Error> {
    let results: Vec<_> = threads
        .into_iter()
        .map(|thread| {
            thread
                .join()
                .unwrap_or_else(|_| Err(Error::Precondition("a copy panicked; see the log".into())))
        })
        .collect();
    results.into_iter().collect()
}

fn resume(group: &Arc<Group>, new: &NewGroup) -> Result<Arc<Group>, Error> {
    if group.phase == Phase::Deleting {
        return Err(Error::Pending(format!("group {} of that name is being deleted", group.id)));
    }
    match group.fingerprint.difference(&new.fingerprint) {
        // The state file was lost while the group was created or deleted, or images were lost
        // since.
        None if !group.is_whole() => Err(Error::Precondition(format!(
            "group {id} has {} of {} snapshots, the others are lost or were never taken: delete it by `wharf csi group rm {id} \
             --snapshot {}`, and call again",
            group.snapshots.len(),
            group.size,
            group.snapshots.join(" --snapshot "),
            id = group.id
        ))),
        None => Ok(group.clone()),
        Some(part) => Err(Error::Exists(format!(
            "group {} has this name, and its request differs in {part}",
            group.id
        ))),
    }
}

fn not_found(id: &str) -> Error {
    Error::NotFound { kind: "group", id: id.to_owned() }
}
