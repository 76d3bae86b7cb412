//! Recovers complete images that the state file does not record as ready.
//!
//! An image gets its mark and its final path just before the state file records it as ready. If its
//! record is missing or incomplete, the driver was killed in between, or the state file lost its
//! last commit; in the second case a caller knows the image. So images with a complete mark are
//! recorded, never deleted or moved into quarantine.

use std::{
    collections::{BTreeMap, HashSet},
    fs,
    path::{Path, PathBuf},
};

use wharf_mount::{
    Filesystem,
    probe::{self, Signature},
};

use super::{Layout, Mark, Pool, identity::short_of, recover::entries};
use crate::{
    error::Error,
    files,
    record::{Content, Group, Phase, Snapshot, Volume},
    store::Draft,
};

/// The records in the images' marks.
#[derive(Default)]
pub(super) struct Marked {
    pub(super) volumes: Vec<Volume>,
    pub(super) snapshots: Vec<Snapshot>,
    /// Groups, with those of their snapshots that were found.
    pub(super) groups: BTreeMap<String, Group>,
    /// Images without a mark of their own.
    pub(super) unmarked: Vec<PathBuf>,
    /// Images that the disk cannot read now. They are unknown and stay unchanged.
    pub(super) unreadable: Vec<PathBuf>,
}

/// Result of recording complete images.
#[derive(Default)]
pub(super) struct Kept {
    /// IDs of volumes, snapshots and groups that were recorded.
    pub(super) ids: Vec<String>,
    /// Images that may be complete but cannot be read now.
    pub(super) unreadable: Vec<PathBuf>,
}

impl Marked {
    /// Reads the marks of those images in `layout` for which `concerns` returns true.
    pub(super) fn read(layout: &Layout, concerns: impl Fn(&Path) -> bool) -> Result<Self, Error> {
        let mut marked = Self::default();
        let images = [entries(&layout.volumes())?, entries(&layout.snapshots())?].concat();
        for image in images.into_iter().filter(|image| concerns(image)) {
            let mark = match read_mark(&image) {
                Ok(mark) => mark,
                Err(error) => {
                    tracing::error!(image = %image.display(), %error, "failed to read mark of image, keeping it unchanged");
                    marked.unreadable.push(image);
                    continue;
                }
            };
            match mark {
                Some(Mark::Volume(volume)) if layout.volume(&volume.image) == image => {
                    marked.volumes.push(Volume { phase: Phase::Ready, ..*volume });
                }
                Some(Mark::Snapshot { snapshot, group })
                    if layout.snapshot(&snapshot.image) == image =>
                {
                    if let Some(group) = group {
                        let group = marked.groups.entry(group.id.clone()).or_insert(*group);
                        group.snapshots.push(snapshot.id.clone());
                    }
                    marked.snapshots.push(Snapshot { phase: Phase::Ready, ..*snapshot });
                }
                _ => marked.unmarked.push(image),
            }
        }
        Ok(marked)
    }
}

impl Pool {
    /// Records complete images as their marks say. Without a record, an image is recorded only if
    /// its ID names this pool; otherwise a person copied it here from another pool.
    pub(super) fn keep_whole_images(&self) -> Result<Kept, Error> {
        let recorded: HashSet<PathBuf> = self.store.read(|state| {
            let is_made = |phase: Phase| phase != Phase::Creating;
            let volumes = state.volumes.iter().filter(|it| is_made(it.phase));
            let snapshots = state.snapshots.iter().filter(|it| is_made(it.phase));
            let volumes = volumes.map(|it| self.image(it));
            volumes.chain(snapshots.map(|it| self.layout.snapshot(&it.image))).collect()
        });
        let mut marked = Marked::read(&self.layout, |image| !recorded.contains(image))?;
        self.store.read(|state| {
            let own = self.id.short();
            let shorts: HashSet<&str> = state.ids().filter_map(short_of).chain([&*own]).collect();
            let is_own = |id: &str| short_of(id).is_none_or(|short| shorts.contains(short));
            marked.volumes.retain(|it| is_own(&it.id));
            marked.snapshots.retain(|it| is_own(&it.id));
            marked.groups.retain(|id, _| is_own(id));
        });
        let Marked { volumes, snapshots, groups, unreadable, .. } = marked;
        if volumes.is_empty() && snapshots.is_empty() {
            return Ok(Kept { unreadable, ..Kept::default() });
        }
        self.store.update(move |draft| {
            let mut kept = Vec::new();
            for volume in volumes {
                let known = draft.volumes.get(&volume.id);
                let named = draft.volumes.named(&volume.name);
                if known.is_none_or(|it| it.image == volume.image)
                    && named.is_none_or(|it| it.id == volume.id)
                {
                    kept.push(volume.id.clone());
                    draft.put(volume);
                }
            }
            let broken = keep_groups(draft, groups, &mut kept);
            for snapshot in snapshots {
                let known = draft.snapshots.get(&snapshot.id);
                let named = draft.snapshots.named(&snapshot.name);
                let of_broken = snapshot.group.as_ref().is_some_and(|it| broken.contains(it));
                if !of_broken
                    && known.is_none_or(|it| it.image == snapshot.image)
                    && named.is_none_or(|it| it.id == snapshot.id)
                {
                    kept.push(snapshot.id.clone());
                    draft.put(snapshot);
                }
            }
            Ok(Kept { ids: kept, unreadable })
        })
    }
}

/// Records groups. A group without a record gets those of its snapshots that were found. Returns
/// the IDs of groups that a kill left incomplete.
fn keep_groups(
    draft: &mut Draft<'_>,
    groups: BTreeMap<String, Group>,
    kept: &mut Vec<String>,
) -> HashSet<String> {
    let mut broken = HashSet::new();
    for (id, mut found) in groups {
        let Some(known) = draft.groups.get(&id) else {
            kept.push(id);
            draft.put(found);
            continue;
        };
        let is_whole = known.snapshots.iter().all(|it| found.snapshots.contains(it));
        match known.phase {
            Phase::Creating if is_whole => {
                found.snapshots.clone_from(&known.snapshots);
                kept.push(id);
                draft.put(Group { phase: Phase::Ready, ..found });
            }
            _ => drop(broken.insert(id)),
        }
    }
    broken
}

/// Reads the mark of an image, updated with the volume's present content.
fn read_mark(image: &Path) -> Result<Option<Mark>, Error> {
    match fs::symlink_metadata(image) {
        Ok(there) if there.is_file() => {}
        // Folders, symlinks and pipes are not images, and opening a pipe would block.
        Ok(_) => return Ok(None),
        Err(error) => return Err(Error::file("look at image", image)(error)),
    }
    Ok(match Mark::read(image)? {
        Some(Mark::Volume(volume)) => {
            let content = content(image, volume.content)?;
            Some(Mark::Volume(Box::new(Volume { content, ..*volume })))
        }
        mark => mark,
    })
}

/// Detects the present content of an image: it may have been formatted after it was marked.
fn content(image: &Path, marked: Content) -> Result<Content, Error> {
    let file = files::open(image).map_err(Error::file("open image", image))?;
    Ok(match (marked, probe::probe(&file)?) {
        (Content::Blank | Content::Formatting(_), Signature::Ext4(_)) => {
            Content::Filesystem(Filesystem::Ext4)
        }
        (Content::Blank | Content::Formatting(_), Signature::Xfs(_)) => {
            Content::Filesystem(Filesystem::Xfs)
        }
        (marked, _) => marked,
    })
}
