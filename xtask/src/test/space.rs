//! Room on the disk. A test that runs out of it fails for a reason that nobody guesses from its text.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use wharf_testkit::peers;

use crate::shell;

/// What the build, the images of volumes and a cluster's state take.
const NEEDED: u64 = 15 << 30;

/// Makes room where there is too little, at the cost of the time to compile again: cargo never removes what it built
/// for sources that are gone.
pub(super) fn ensure() -> Result<()> {
    let target = shell::target();
    fs::create_dir_all(&target).with_context(|| target.display().to_string())?;
    for cache in expendable(&target) {
        if free(&target)? >= NEEDED {
            break;
        }
        println!("space: removing {}", cache.display());
        fs::remove_dir_all(&cache).with_context(|| cache.display().to_string())?;
    }
    for folder in [fs::canonicalize(target.parent().unwrap_or(&target))?, std::env::temp_dir()] {
        let free = free(&folder)?;
        if free < NEEDED {
            let gib = |bytes: u64| bytes as f64 / f64::from(1 << 30);
            let folder = folder.display();
            bail!("{:.1} GiB are free in {folder} and {:.0} are needed", gib(free), gib(NEEDED));
        }
    }
    Ok(())
}

/// What can be had again, cheapest first. A folder that the caller chose loses only what speeds up the next build.
fn expendable(target: &Path) -> Vec<PathBuf> {
    let mut found: Vec<PathBuf> = ["debug", "release"]
        .map(|profile| target.join(profile).join("incremental"))
        .into_iter()
        .filter(|folder| folder.is_dir())
        .collect();
    if target == peers::cache().join("target") {
        found.push(target.to_owned());
    }
    found
}

fn free(folder: &Path) -> Result<u64> {
    let found = rustix::fs::statvfs(folder).with_context(|| folder.display().to_string())?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_of_the_caller_is_kept() {
        let folder = tempfile::tempdir().unwrap();
        let incremental = folder.path().join("debug/incremental");
        fs::create_dir_all(&incremental).unwrap();
        assert_eq!(expendable(folder.path()), [incremental]);
        let cached = peers::cache().join("target");
        assert_eq!(expendable(&cached).last(), Some(&cached));
    }

    #[test]
    fn what_is_free_is_known() {
        assert!(free(Path::new("/")).is_ok());
        assert!(free(Path::new("/nowhere")).is_err());
    }
}
