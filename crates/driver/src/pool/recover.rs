//! What a start finds after a crash, and what it makes of it.

use std::collections::{BTreeMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use wharf_mount::sync;

use super::{Pool, now, remove};
use crate::backend::BackendKind;
use crate::error::Error;
use crate::record::{Blocks, Group, Phase, Snapshot, Source, Volume};

/// What a start had to do.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Operations that were finished or undone.
    pub settled: usize,
    /// Volumes, snapshots and groups whose images were whole and whose records did not say so.
    pub kept: Vec<String>,
    /// Images that no record and no mark of their own knows; they are in quarantine now.
    pub quarantined: Vec<PathBuf>,
    /// Volumes and snapshots whose image is gone.
    pub missing: Vec<String>,
    /// What could not be settled, and why; the next call for the object tries again.
    pub open: Vec<String>,
}

/// Records that were not at rest.
#[derive(Default)]
struct Unsettled {
    volumes: Vec<Arc<Volume>>,
    snapshots: Vec<Arc<Snapshot>>,
    groups: Vec<Arc<Group>>,
}

impl Pool {
    /// Settles what a crash cut short. A failure of one object never keeps the others from being served.
    pub(super) fn recover(&self) -> Result<Recovery, Error> {
        let mut recovery = Recovery::default();
        self.adapt_backends()?;
        for file in entries(&self.layout.partial())? {
            self.clear_away(&file);
        }
        let perhaps_frozen = self.frozen_perhaps(&self.unsettled());
        let kept = self.keep_whole_images()?;
        // Only now is it known which images there are, and from here on it matters which of them are attached.
        self.devices.scan(&self.places())?;
        recovery.kept = kept.ids;
        let mut unsettled = self.unsettled();
        self.leave_unreadable(&mut unsettled, &kept.unreadable);
        let mut settle = |id: &str, result: Result<(), Error>| match result {
            Ok(()) => recovery.settled += 1,
            Err(error) => recovery.open.push(format!("{id}: {error}")),
        };
        // First of all let everybody write again.
        for volume in perhaps_frozen {
            settle(&volume.id, self.thaw_after_crash(&volume));
        }
        self.roll_back_all(&mut settle)?;
        self.remove_stray_reserves()?;
        for group in &unsettled.groups {
            settle(&group.id, self.forget_group(group));
        }
        for snapshot in unsettled.snapshots.iter().filter(|snapshot| snapshot.group.is_none()) {
            settle(&snapshot.id, self.settle_snapshot(snapshot));
        }
        for volume in &unsettled.volumes {
            settle(&volume.id, self.settle_volume(volume));
        }
        self.compare_images(&mut recovery, &kept.unreadable)?;
        Ok(recovery)
    }

    /// Leaves snapshots and groups in the making as they are whose images cannot be read: they may be whole, and a caller may
    /// have been told of them.
    fn leave_unreadable(&self, unsettled: &mut Unsettled, unreadable: &[PathBuf]) {
        if unreadable.is_empty() {
            return;
        }
        let may_be_whole = |snapshot: &Snapshot| {
            snapshot.phase == Phase::Creating
                && unreadable.contains(&self.layout.snapshot(&snapshot.image))
        };
        unsettled.snapshots.retain(|snapshot| !may_be_whole(snapshot));
        self.store.read(|state| {
            let is_member =
                |id: &String| state.snapshots.get(id).is_some_and(|it| may_be_whole(it));
            unsettled.groups.retain(|group| !group.snapshots.iter().any(is_member));
        });
    }

    /// On a filesystem that cannot share blocks, where somebody copied the pool to, all images are copies with blocks of their
    /// own.
    fn adapt_backends(&self) -> Result<(), Error> {
        if self.reflink {
            return Ok(());
        }
        let adapted = self.store.update(|draft| {
            let reflink = BackendKind::ImageReflink;
            let volumes = draft.volumes.iter().filter(|it| it.backend == reflink);
            let volumes: Vec<String> = volumes.map(|it| it.id.clone()).collect();
            let cuts = draft.snapshots.iter().filter(|it| it.backend == reflink);
            let cuts: Vec<String> = cuts.map(|it| it.id.clone()).collect();
            for id in &volumes {
                draft.edit(id, |volume: &mut Volume| {
                    (volume.backend, volume.blocks) = (BackendKind::ImageCopy, Blocks::Own);
                    volume.family.clone_from(&volume.id);
                });
            }
            for id in &cuts {
                draft.edit(id, |snapshot: &mut Snapshot| {
                    (snapshot.backend, snapshot.blocks) = (BackendKind::ImageCopy, Blocks::Own);
                });
            }
            Ok::<_, Error>(volumes.len() + cuts.len())
        })?;
        if adapted > 0 {
            tracing::warn!(
                images = adapted,
                "the pool was moved to a filesystem that cannot share blocks: snapshots are copies from now on"
            );
        }
        Ok(())
    }

    fn unsettled(&self) -> Unsettled {
        self.store.read(|state| Unsettled {
            volumes: state
                .volumes
                .iter()
                .filter(|row| row.phase != Phase::Ready)
                .cloned()
                .collect(),
            snapshots: state
                .snapshots
                .iter()
                .filter(|row| row.phase != Phase::Ready)
                .cloned()
                .collect(),
            groups: state.groups.iter().filter(|row| row.phase != Phase::Ready).cloned().collect(),
        })
    }

    fn thaw_after_crash(&self, volume: &Volume) -> Result<(), Error> {
        self.thaw(volume)?;
        if volume.frozen_for_copy {
            self.edit_volume(&volume.id, |volume| volume.frozen_for_copy = false)?;
        }
        Ok(())
    }

    /// Volumes that were being copied, and so may be frozen still.
    fn frozen_perhaps(&self, unsettled: &Unsettled) -> Vec<Arc<Volume>> {
        let cut = unsettled.snapshots.iter().filter(|snapshot| snapshot.phase == Phase::Creating);
        let cloned = unsettled.volumes.iter().filter_map(|volume| match &volume.source {
            Some(Source::Volume(id)) if volume.phase == Phase::Creating => Some(id),
            _ => None,
        });
        let ids: HashSet<&String> = cut.map(|snapshot| &snapshot.volume).chain(cloned).collect();
        self.store.read(|state| {
            let copied_elsewhere = state.volumes.iter().filter(|volume| volume.frozen_for_copy);
            let here = ids.into_iter().filter_map(|id| state.volumes.get(id));
            let volumes: BTreeMap<_, _> =
                here.chain(copied_elsewhere).map(|volume| (&volume.id, volume.clone())).collect();
            volumes.into_values().collect()
        })
    }

    fn settle_snapshot(&self, snapshot: &Snapshot) -> Result<(), Error> {
        if snapshot.phase == Phase::Creating {
            self.forget_snapshots(&[snapshot]);
            return Ok(());
        }
        self.finish_snapshot_delete(snapshot)
    }

    fn settle_volume(&self, volume: &Volume) -> Result<(), Error> {
        match volume.phase {
            Phase::Deleting => self.finish_delete(volume),
            Phase::Expanding { to } => self.finish_expand(volume, to).map(|_| ()),
            // The id is kept for the retry, which makes the image anew.
            Phase::Creating | Phase::Ready => Ok(()),
        }
    }

    /// Puts images without a record aside and names records without an image.
    fn compare_images(&self, recovery: &mut Recovery, unreadable: &[PathBuf]) -> Result<(), Error> {
        let mut images: HashSet<PathBuf> = entries(&self.layout.volumes())?.into_iter().collect();
        images.extend(entries(&self.layout.snapshots())?);
        self.store.read(|state| {
            for volume in state.volumes.iter() {
                if !images.remove(&self.image(volume)) && volume.phase == Phase::Ready {
                    recovery.missing.push(volume.id.clone());
                }
            }
            for snapshot in state.snapshots.iter() {
                if !images.remove(&self.layout.snapshot(&snapshot.image))
                    && snapshot.phase == Phase::Ready
                {
                    recovery.missing.push(snapshot.id.clone());
                }
            }
        });
        for orphan in images {
            if unreadable.contains(&orphan) {
                let reason = "it cannot be read now, and no record knows it";
                recovery.open.push(format!("{}: {reason}", orphan.display()));
                continue;
            }
            match self.put_aside(&orphan) {
                Ok(aside) => recovery.quarantined.push(aside),
                Err(error) => recovery.open.push(format!("{}: {error}", orphan.display())),
            }
        }
        if !recovery.quarantined.is_empty() {
            sync::folder(&self.layout.quarantine())?;
        }
        Ok(())
    }

    /// Removes a file that a crash left. A folder is somebody else's: it is put into quarantine. Neither stops a start.
    pub(super) fn clear_away(&self, path: &Path) {
        let is_folder = fs::symlink_metadata(path).is_ok_and(|there| there.is_dir());
        let cleared = match is_folder {
            true => self.put_aside(path).map(|aside| {
                tracing::warn!(folder = %path.display(), quarantine = %aside.display(), "put foreign folder into quarantine");
            }),
            false => remove(path),
        };
        if let Err(error) = cleared {
            tracing::warn!(path = %path.display(), %error, "failed to clear the pool of a foreign file");
        }
    }

    /// Moves a file or folder into quarantine, under a name that is free there.
    fn put_aside(&self, path: &Path) -> Result<PathBuf, Error> {
        let name = path.file_name().unwrap_or_default();
        let mut aside = self.layout.quarantine().join(name);
        if fs::symlink_metadata(&aside).is_ok() {
            aside = self.layout.quarantine().join(format!("{}-{}", name.to_string_lossy(), now()));
        }
        fs::rename(path, &aside).map_err(Error::file("put aside", path))?;
        Ok(aside)
    }
}

/// Everything in a folder.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(folder).map_err(Error::file("list", folder))?;
    entries
        .map(|entry| entry.map(|entry| entry.path()).map_err(Error::file("list", folder)))
        .collect()
}
