//! Checks of paths from outside.

use std::{
    fs::File,
    io,
    path::{Component, Path, PathBuf},
};

use rustix::fs::{FileType, Mode, OFlags};

use crate::{Error, Result, mountinfo};

/// Refuses a path with a symlink in any component, and names the component.
///
/// Missing components are accepted: the path may be about to be created. The path must be absolute
/// and free of `..`. Use [`refuse_symlinks_below`] if the administrator may have made the first
/// part a symlink.
pub fn refuse_symlinks(path: &Path) -> Result<()> {
    refuse_symlinks_below(Path::new("/"), path)
}

/// Like [`refuse_symlinks`], but accepts symlinks in `root`, a folder that contains `path`.
///
/// A path outside of `root` is checked completely.
pub fn refuse_symlinks_below(root: &Path, path: &Path) -> Result<()> {
    require_plain(path)?;
    let (mut walked, rest) = match path.strip_prefix(root) {
        Ok(rest) => (root.to_owned(), rest),
        Err(_) => (PathBuf::from("/"), path.strip_prefix("/").unwrap_or(path)),
    };
    for component in rest.components() {
        walked.push(component);
        match walked.symlink_metadata() {
            Ok(metadata) if metadata.is_symlink() => {
                return Err(Error::Symlink { path: path.to_owned(), component: walked });
            }
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            // A filesystem that has shut down cannot stat its root, but a mount point is not a
            // symlink.
            Err(error)
                if error.raw_os_error() == Some(libc::EIO) && mountinfo::at(&walked)?.is_some() => {
            }
            Err(error) => return Err(Error::io("look at", walked)(error)),
        }
    }
    Ok(())
}

/// Opens a handle of `path`, whose last component must not be a symlink.
pub(crate) fn open_handle(path: &Path) -> Result<File> {
    let flags = OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let handle = rustix::fs::open(path, flags, Mode::empty()).map_err(Error::io("open", path))?;
    let status = rustix::fs::fstat(&handle).map_err(Error::io("look at", path))?;
    if FileType::from_raw_mode(status.st_mode) == FileType::Symlink {
        return Err(Error::Symlink { path: path.to_owned(), component: path.to_owned() });
    }
    Ok(handle.into())
}

fn require_plain(path: &Path) -> Result<()> {
    let plain = path.is_absolute()
        && path.components().all(|part| matches!(part, Component::RootDir | Component::Normal(_)));
    if plain { Ok(()) } else { Err(Error::NotPlain { path: path.to_owned() }) }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn the_component_that_is_a_symlink_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        std::fs::create_dir_all(root.join("real/deep")).unwrap();
        symlink(root.join("real"), root.join("link")).unwrap();

        let path = root.join("link/deep");
        let error = refuse_symlinks(&path).unwrap_err();
        let Error::Symlink { component, .. } = error else { panic!("{error}") };
        assert_eq!(component, root.join("link"));
        let error = open_handle(&root.join("link")).unwrap_err();
        assert!(matches!(error, Error::Symlink { .. }), "{error}");

        refuse_symlinks(&root.join("real/deep")).unwrap();
        refuse_symlinks(&root.join("real/not/there")).unwrap();
        refuse_symlinks_below(&root.join("link"), &path).unwrap();
    }

    #[test]
    fn only_plain_absolute_paths_pass() {
        for path in ["a", "../a", "/tmp/../etc", ""] {
            let error = refuse_symlinks(Path::new(path)).unwrap_err();
            assert!(matches!(error, Error::NotPlain { .. }), "{path}: {error}");
        }
        refuse_symlinks(Path::new("/proc/./self/../x/..")).unwrap_err();
        refuse_symlinks(Path::new("/proc/")).unwrap();
    }
}
