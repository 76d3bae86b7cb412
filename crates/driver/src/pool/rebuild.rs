//! The state file, made anew from what the images say of themselves.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use wharf_mount::Filesystem;
use wharf_mount::probe::{self, Signature};

use super::recover::entries;
use super::{Layout, Mark};
use crate::error::Error;
use crate::files;
use crate::record::{Content, Group, Phase, Snapshot, Volume};
use crate::store::{Store, StoreError};

/// What was found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Volumes.
    pub volumes: usize,
    /// Snapshots.
    pub snapshots: usize,
    /// Groups.
    pub groups: usize,
    /// Images without a mark that is understood; they stay where they are and are put aside at the next start.
    pub unmarked: Vec<PathBuf>,
    /// Where the old state file went.
    pub old_state: Option<PathBuf>,
}

/// Makes the state of the pool in `root` anew. The old file is kept beside it.
///
/// What only the state file knew is gone: which nodes a volume was published to (the orchestrator publishes again), and ids
/// of volumes that were being created.
///
/// # Errors
/// When a driver owns the pool, or the disk fails.
pub fn rebuild(root: &Path) -> Result<Rebuilt, Error> {
    let layout = Layout::new(root);
    let mut rebuilt = Rebuilt { old_state: put_aside(&layout)?, ..Rebuilt::default() };
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    let mut volumes = Vec::new();
    let mut snapshots = Vec::new();
    for image in [entries(&layout.volumes())?, entries(&layout.snapshots())?].concat() {
        // Folders, symlinks and pipes are nobody's image, and a pipe would be waited for.
        let is_file = fs::symlink_metadata(&image).is_ok_and(|there| there.is_file());
        let mark = if is_file { Mark::read(&image)? } else { None };
        match mark {
            Some(Mark::Volume(volume)) if layout.volume(&volume.image) == image => {
                let content = content(&image, volume.content)?;
                volumes.push(Volume { content, phase: Phase::Ready, ..*volume });
            }
            Some(Mark::Snapshot { snapshot, group })
                if layout.snapshot(&snapshot.image) == image =>
            {
                if let Some(group) = group {
                    let group = groups.entry(group.id.clone()).or_insert(*group);
                    group.snapshots.push(snapshot.id.clone());
                }
                snapshots.push(Snapshot { phase: Phase::Ready, ..*snapshot });
            }
            _ => rebuilt.unmarked.push(image),
        }
    }
    (rebuilt.volumes, rebuilt.snapshots, rebuilt.groups) =
        (volumes.len(), snapshots.len(), groups.len());
    Store::create(&layout.state(), |draft| {
        volumes.into_iter().for_each(|volume| draft.put(volume));
        snapshots.into_iter().for_each(|snapshot| draft.put(snapshot));
        groups.into_values().for_each(|group| draft.put(group));
    })?;
    Ok(rebuilt)
}

/// Moves the old state file away, unless a driver holds it.
fn put_aside(layout: &Layout) -> Result<Option<PathBuf>, Error> {
    let state = layout.state();
    if !state.exists() {
        return Ok(None);
    }
    // Readable or not: what the images say is what was asked for.
    if let Err(busy @ StoreError::Busy { .. }) = Store::open(&state, &layout.ballast()) {
        return Err(busy.into());
    }
    let free = (1..).map(|number| layout.root().join(format!("state.redb.old-{number}")));
    let aside = free.into_iter().find(|path| !path.exists()).unwrap_or_default();
    fs::rename(&state, &aside).map_err(Error::file("put aside", &state))?;
    Ok(Some(aside))
}

/// What the image holds now: it may have been formatted after it was marked.
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
