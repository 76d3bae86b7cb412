//! Finds files that tests left outside of temporary folders: a test that uses a default path would
//! find files of an earlier run.

use std::{collections::BTreeSet, fs, path::PathBuf};

use anyhow::{Result, bail};

/// Folders in which wharf's programs keep state, sockets and configuration by default.
const SYSTEM_FOLDERS: [&str; 3] = ["/var/lib", "/run", "/etc"];

/// Files and folders of wharf in the system's folders.
pub(super) struct Leftovers(BTreeSet<PathBuf>);

impl Leftovers {
    pub(super) fn now() -> Self {
        let entries =
            SYSTEM_FOLDERS.iter().flat_map(|folder| fs::read_dir(folder).into_iter().flatten());
        let ours = |path: &PathBuf| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("wharf"))
        };
        Self(entries.flatten().map(|entry| entry.path()).filter(ours).collect())
    }

    /// Fails if files were added since.
    pub(super) fn ensure_none_added(&self) -> Result<()> {
        let added: Vec<_> = Self::now().0.difference(&self.0).cloned().collect();
        if !added.is_empty() {
            bail!(
                "a test left {added:?}: pass a temporary folder to the program that it starts, and remove these"
            );
        }
        Ok(())
    }
}
