//! The resolved folders of pools, as the threads that open pools found them.
//!
//! Resolving a path waits for every disk on it. Only the thread that opens a pool resolves the
//! pool's folder; all others compare the paths that these threads found.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::{Mutex, MutexGuard, PoisonError},
};

use super::{Pools, Slot};
use crate::{
    config::{PoolConfig, kept_folders},
    error::Error,
    pool::Layout,
    pool_image,
};

/// Resolved folders, by the configured folders.
#[derive(Debug, Default)]
pub(super) struct ResolvedFolders(Mutex<BTreeMap<PathBuf, PathBuf>>);

impl ResolvedFolders {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PathBuf, PathBuf>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pools {
    /// Resolves the folder of a pool that this thread opens, and waits for the disks on its path.
    ///
    /// # Errors
    /// If another configured pool has this folder, or one of the two is inside the other's images.
    pub(super) fn resolve_folder(&self, config: &PoolConfig) -> Result<(), Error> {
        let own = resolve(&config.folder);
        let others = self.other_folders(&config.name);
        let mut resolved = self.folders.lock();
        for (name, folder) in others {
            let other = resolved.get(&folder).unwrap_or(&folder);
            let text = match (own == *other, is_inside(&own, other), is_inside(other, &own)) {
                (true, ..) => format!("is another pool's, too, that of pool {name}"),
                (_, true, _) => {
                    format!("is inside of pool {name}, where the driver keeps images")
                }
                (_, _, true) => format!("keeps images where the folder of pool {name} is"),
                _ => continue,
            };
            let folder = config.folder.display();
            return Err(Error::Precondition(format!(
                "its folder {folder} {text}: give each pool a folder of its own"
            )));
        }
        resolved.insert(config.folder.clone(), own);
        Ok(())
    }

    /// Returns the folder of a pool without symlinks, if it was resolved. Waits for no disk.
    pub(super) fn resolved_folder(&self, folder: &Path) -> PathBuf {
        self.folders.lock().get(folder).map_or_else(|| folder.to_owned(), Clone::clone)
    }

    /// Folders of the pool's images, as the kernel shows them. Waits for no disk.
    pub(super) fn image_folders(&self, folder: &Path) -> Vec<PathBuf> {
        let folder = self.resolved_folder(folder);
        let inside = pool_image::mount_point(&folder);
        vec![Layout::new(folder).volumes(), Layout::new(inside).volumes()]
    }

    /// Names and folders of the other pools that stay configured.
    fn other_folders(&self, name: &str) -> Vec<(String, PathBuf)> {
        let slots = self.slots();
        let stays = |slot: &&Slot| slot.leaving.is_none() && slot.config.name != name;
        let stay = slots.values().filter(stays);
        stay.map(|slot| (slot.config.name.clone(), slot.config.folder.clone())).collect()
    }
}

/// Whether `folder` is inside a folder in which the pool in `pool` keeps images.
fn is_inside(folder: &Path, pool: &Path) -> bool {
    kept_folders(pool).iter().any(|kept| folder.starts_with(kept))
}

/// Resolves symlinks in a folder's path, as far as the path exists.
fn resolve(folder: &Path) -> PathBuf {
    let mut ancestors = folder.ancestors();
    let found = ancestors.find_map(|it| Some((it, it.canonicalize().ok()?)));
    match found {
        Some((ancestor, resolved)) => match folder.strip_prefix(ancestor) {
            Ok(rest) if rest.as_os_str().is_empty() => resolved,
            Ok(rest) => resolved.join(rest),
            Err(_) => folder.to_owned(),
        },
        None => folder.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_resolved_also_on_the_way_to_a_folder_that_is_not_there_yet() {
        let root = tempfile::tempdir().expect("folder");
        let root = root.path().canonicalize().expect("resolved");
        std::fs::create_dir(root.join("disk")).expect("made");
        std::os::unix::fs::symlink(root.join("disk"), root.join("link")).expect("linked");
        for (folder, expected) in
            [("disk", "disk"), ("link", "disk"), ("link/a/b", "disk/a/b"), ("none/a", "none/a")]
        {
            assert_eq!(resolve(&root.join(folder)), root.join(expected), "{folder}");
        }
    }
}
