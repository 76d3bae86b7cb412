//! Recovers a pool after a crash.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
};

use wharf_mount::sync;

use super::{Pool, now, remove};
use crate::{
    backend::BackendKind,
    error::Error,
    record::{Blocks, Group, Phase, Snapshot, Source, Volume},
};

/// Result of a recovery.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Recovery {
    /// Number of operations that were finished or undone.
    pub settled: usize,
    /// IDs of objects whose images were complete but whose records were not.
    pub kept: Vec<String>,
    /// Images without a record or a mark of their own, now in quarantine.
    pub quarantined: Vec<PathBuf>,
    /// IDs of volumes and snapshots whose images are missing.
    pub missing: Vec<String>,
    /// Operations that could not be settled, with the reason; the next call for the object retries.
    pub open: Vec<String>,
}

/// Records with an unfinished operation.
#[derive(Default)]
struct Unsettled {
    volumes: Vec<Arc<Volume>>,
    snapshots: Vec<Arc<Snapshot>>,
    groups: Vec<Arc<Group>>,
}

impl Pool {
    /// Settles operations that a crash interrupted. A failure for one object does not affect
    /// others.
    pub(super) fn recover(&self) -> Result<Recovery, Error> {
        let mut recovery = Recovery::default();
        self.adapt_backends()?;
        for file in entries(&self.layout.partial())? {
            self.clear_away(&file);
        }
        let perhaps_frozen = self.frozen_perhaps(&self.unsettled());
        let kept = self.keep_whole_images()?;
        // Only now all images are known, and the next steps need to know which are attached.
        self.devices.scan(&self.places())?;
        recovery.kept = kept.ids;
        let mut unsettled = self.unsettled();
        self.leave_unreadable(&mut unsettled, &kept.unreadable);
        let mut settle = |id: &str, result: Result<(), Error>| match result {
            Ok(()) => recovery.settled += 1,
            Err(error) => recovery.open.push(format!("{id}: {error}")),
        };
        // First thaw filesystems that writers may be waiting for.
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

    /// Skips snapshots and groups that were being created and whose images cannot be read: they may
    /// be complete and known to a caller.
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

    /// If the pool was copied to a filesystem that cannot share blocks, records all images as
    /// copies with their own blocks.
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
                "filesystem cannot share blocks, switched images to backend image-copy"
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

    /// Volumes that were being copied, and so may still be frozen.
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
            // Keep the ID for the retry, which creates the image again.
            Phase::Creating | Phase::Ready => Ok(()),
        }
    }

    /// Moves images without a record into quarantine, and reports records without an image.
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
            match self.quarantine(&orphan) {
                Ok(aside) => recovery.quarantined.push(aside),
                Err(error) => recovery.open.push(format!("{}: {error}", orphan.display())),
            }
        }
        if !recovery.quarantined.is_empty() {
            sync::folder(&self.layout.quarantine())?;
        }
        Ok(())
    }

    /// Removes a file that a crash left. A folder is foreign and moved into quarantine. Failures
    /// are only logged.
    pub(super) fn clear_away(&self, path: &Path) {
        let is_folder = fs::symlink_metadata(path).is_ok_and(|there| there.is_dir());
        let cleared = match is_folder {
            true => self.quarantine(path).map(|aside| {
                tracing::warn!(folder = %path.display(), quarantine = %aside.display(), "moved foreign folder into quarantine");
            }),
            false => remove(path),
        };
        if let Err(error) = cleared {
            tracing::warn!(path = %path.display(), %error, "failed to remove foreign file from pool");
        }
    }

    /// Moves a file or folder into quarantine, under a free name.
    fn quarantine(&self, path: &Path) -> Result<PathBuf, Error> {
        let name = path.file_name().unwrap_or_default();
        let mut aside = self.layout.quarantine().join(name);
        if fs::symlink_metadata(&aside).is_ok() {
            aside = self.layout.quarantine().join(format!("{}-{}", name.to_string_lossy(), now()));
        }
        fs::rename(path, &aside).map_err(Error::file("put aside", path))?;
        Ok(aside)
    }
}

/// Lists a folder.
pub(super) fn entries(folder: &Path) -> Result<Vec<PathBuf>, Error> {
    let entries = fs::read_dir(folder).map_err(Error::file("list", folder))?;
    entries
        .map(|entry| entry.map(|entry| entry.path()).map_err(Error::file("list", folder)))
        .collect()
}
