//! Rebuilds the state file from the images' marks.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::{Layout, is_there, salvage::Marked};
use crate::{
    error::Error,
    store::{Store, StoreError},
};

/// Result of a rebuild.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Number of volumes.
    pub volumes: usize,
    /// Number of snapshots.
    pub snapshots: usize,
    /// Number of groups.
    pub groups: usize,
    /// Images without a valid mark; the next start moves them into quarantine.
    pub unmarked: Vec<PathBuf>,
    /// Images that the disk cannot read now; the first start that can read them records them.
    pub unreadable: Vec<PathBuf>,
    /// New path of the old state file.
    pub old_state: Option<PathBuf>,
}

/// Rebuilds the state of the pool in `root`. Keeps the old file under another name.
///
/// Facts that are only in the state file are lost: the nodes that volumes were published to (the
/// orchestrator publishes again), and IDs of volumes that were being created.
///
/// # Errors
/// If a driver serves the pool, or the disk fails.
pub fn rebuild(root: &Path) -> Result<Rebuilt, Error> {
    let layout = Layout::new(root);
    let marked = Marked::read(&layout, |_| true)?;
    if let Some(image) = marked.unreadable.first()
        && marked.volumes.is_empty()
        && marked.snapshots.is_empty()
    {
        return Err(Error::Unavailable(format!(
            "{}: the disk cannot read any of its images, such as {}: repair the disk and call again; see the log",
            root.display(),
            image.display()
        )));
    }
    let mut rebuilt = Rebuilt { old_state: put_aside(&layout)?, ..Rebuilt::default() };
    let Marked { volumes, snapshots, groups, unmarked, unreadable } = marked;
    (rebuilt.unmarked, rebuilt.unreadable) = (unmarked, unreadable);
    (rebuilt.volumes, rebuilt.snapshots, rebuilt.groups) =
        (volumes.len(), snapshots.len(), groups.len());
    Store::create(&layout.state(), &layout.ballast(), |draft| {
        volumes.into_iter().for_each(|volume| draft.put(volume));
        snapshots.into_iter().for_each(|snapshot| draft.put(snapshot));
        groups.into_values().for_each(|group| draft.put(group));
    })?;
    Ok(rebuilt)
}

/// Renames the old state file, unless a driver holds it.
fn put_aside(layout: &Layout) -> Result<Option<PathBuf>, Error> {
    let state = layout.state();
    if !is_there(&state)? {
        return Ok(None);
    }
    // An unreadable state file is no obstacle: the rebuild reads the images.
    if let Err(busy @ StoreError::Busy { .. }) = Store::open(&state, &layout.ballast()) {
        return Err(busy.into());
    }
    let free = (1..).map(|number| layout.root().join(format!("state.redb.old-{number}")));
    let aside = free.into_iter().find(|path| !path.exists()).unwrap_or_default();
    fs::rename(&state, &aside).map_err(Error::file("put aside", &state))?;
    Ok(Some(aside))
}
