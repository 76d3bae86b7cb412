//! The state file, made anew from what the images say of themselves.

use std::fs;
use std::path::{Path, PathBuf};

use super::salvage::Marked;
use super::{Layout, is_there};
use crate::error::Error;
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
    /// Images that the disk does not read now; they stay where they are, and are recorded by the first start that can.
    pub unreadable: Vec<PathBuf>,
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
    let marked = Marked::read(&layout, |_| true)?;
    if let Some(image) = marked.unreadable.first()
        && marked.volumes.is_empty()
        && marked.snapshots.is_empty()
    {
        return Err(Error::Unavailable(format!(
            "{}: the disk reads none of its images, such as {}: mend it, and call again; see the log",
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

/// Moves the old state file away, unless a driver holds it.
fn put_aside(layout: &Layout) -> Result<Option<PathBuf>, Error> {
    let state = layout.state();
    if !is_there(&state)? {
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
