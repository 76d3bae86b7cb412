//! Free space on the disk. Tests that run out of it fail with misleading errors.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};

use crate::shell;

/// Space for the build, the images of volumes and a cluster's state, in bytes.
const NEEDED: u64 = 15 << 30;

/// Makes space if there is too little, by removing incremental build output. Creates no folder:
/// cargo marks its target folder as a cache only if it makes the folder itself.
pub(super) fn ensure() -> Result<()> {
    let target = shell::target()?;
    for cache in expendable(&target) {
        if free(&target)? >= NEEDED {
            break;
        }
        println!("space: removing {}", cache.display());
        fs::remove_dir_all(&cache).with_context(|| cache.display().to_string())?;
    }
    for folder in [target, std::env::temp_dir()] {
        let free = free(&folder)?;
        if free < NEEDED {
            let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
            let folder = folder.display();
            bail!(
                "{:.1} GiB are free for {folder} and {:.0} are needed: remove files, or set \
                 CARGO_TARGET_DIR and TMPDIR to folders on a larger disk",
                gib(free),
                gib(NEEDED)
            );
        }
    }
    Ok(())
}

fn expendable(target: &Path) -> Vec<PathBuf> {
    ["debug", "release"]
        .map(|profile| target.join(profile).join("incremental"))
        .into_iter()
        .filter(|folder| folder.is_dir())
        .collect()
}

/// The free space on the disk of `folder`, which need not exist.
fn free(folder: &Path) -> Result<u64> {
    let existing = folder.ancestors().find(|folder| folder.exists()).unwrap_or(folder);
    let found = rustix::fs::statvfs(existing).with_context(|| existing.display().to_string())?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_speeds_up_the_next_build_is_removed() {
        let folder = tempfile::tempdir().unwrap();
        let incremental = folder.path().join("debug/incremental");
        fs::create_dir_all(&incremental).unwrap();
        assert_eq!(expendable(folder.path()), [incremental]);
    }

    #[test]
    fn what_is_free_is_known_before_the_folder_is_there_and_makes_no_folder() {
        let folder = tempfile::tempdir().unwrap();
        let target = folder.path().join("a/target");
        assert!(free(&target).is_ok());
        assert!(!folder.path().join("a").exists());
    }
}
