//! The file at a path.

use std::{
    fs::{self, FileType, Metadata},
    io,
    os::unix::fs::MetadataExt,
    path::Path,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use rustix::io::Errno;

use crate::Kind;

/// Distinguishes one file at a path from the next one there.
///
/// Device and inode with the time of birth, since inodes are reused; where a filesystem keeps no
/// birth time, the time of the inode's last change. For [`Kind::File`] also size and modification
/// time, owner and mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileId {
    device: u64,
    inode: u64,
    /// Time since the epoch; `None` before it.
    born: Option<Duration>,
    content: Option<Content>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Content {
    modified: (i64, i64),
    size: u64,
    owner: (u32, u32),
    mode: u32,
}

impl FileId {
    /// The inode number, for people.
    pub fn inode(&self) -> u64 {
        self.inode
    }

    /// An id of a socket.
    #[cfg(test)]
    pub(crate) fn fake(inode: u64) -> Self {
        Self { device: 1, inode, born: None, content: None }
    }

    /// An id of a file that was written to this long ago.
    #[cfg(test)]
    pub(crate) fn fake_written(ago: Duration) -> Self {
        let modified = (SystemTime::now() - ago).duration_since(UNIX_EPOCH).unwrap();
        let modified = (modified.as_secs() as i64, i64::from(modified.subsec_nanos()));
        let content = Content { modified, size: 1, owner: (0, 0), mode: 0 };
        Self { content: Some(content), ..Self::fake(1) }
    }

    fn new(kind: Kind, metadata: &Metadata) -> Self {
        let born = match metadata.created() {
            Ok(born) => born.duration_since(UNIX_EPOCH).ok(),
            Err(_) => seconds(metadata.ctime(), metadata.ctime_nsec()),
        };
        let content = (kind == Kind::File).then(|| Content {
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            size: metadata.len(),
            owner: (metadata.uid(), metadata.gid()),
            mode: metadata.mode(),
        });
        Self { device: metadata.dev(), inode: metadata.ino(), born, content }
    }

    /// Whether the content is so young that a write now could leave this id the same: filesystems
    /// count time in ticks of up to 10 ms.
    pub(crate) fn is_fresh(&self) -> bool {
        const TICKS: Duration = Duration::from_millis(50);
        let Some(content) = self.content else { return false };
        let Some(modified) = seconds(content.modified.0, content.modified.1) else { return false };
        match SystemTime::now().duration_since(UNIX_EPOCH + modified) {
            Ok(age) => age < TICKS,
            Err(_in_the_future) => true,
        }
    }
}

fn seconds(seconds: i64, nanoseconds: i64) -> Option<Duration> {
    Some(Duration::new(u64::try_from(seconds).ok()?, u32::try_from(nanoseconds).ok()?))
}

/// The result of a look.
#[derive(Debug)]
pub(crate) enum Look {
    /// A file of the watched kind.
    File(FileId),
    /// A folder; a symlink to a folder is `Nothing`.
    Folder,
    /// Nothing, or nothing of the watched kind.
    Nothing,
    /// The path could not be looked at.
    Unknown(io::Error),
}

/// Looks at a path of unknown type.
pub(crate) fn look(path: &Path, kind: Kind) -> Look {
    match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => Look::Folder,
        Ok(metadata) if metadata.is_symlink() => look_at_file(path, metadata.file_type(), kind),
        Ok(metadata) if kind.matches(metadata.file_type()) => {
            Look::File(FileId::new(kind, &metadata))
        }
        Ok(_) => Look::Nothing,
        Err(error) if is_absence(&error) => Look::Nothing,
        Err(error) => Look::Unknown(error),
    }
}

/// Looks at a path whose own type, as its folder lists it, is not a folder.
pub(crate) fn look_at_file(path: &Path, listed: FileType, kind: Kind) -> Look {
    if !listed.is_symlink() && !kind.matches(listed) {
        return Look::Nothing;
    }
    match fs::metadata(path) {
        Ok(metadata) if kind.matches(metadata.file_type()) => {
            Look::File(FileId::new(kind, &metadata))
        }
        Ok(_) => Look::Nothing,
        Err(error) if is_absence(&error) => Look::Nothing,
        Err(error) => Look::Unknown(error),
    }
}

/// Whether an error means that no file exists, rather than that it could not be read.
pub(crate) fn is_absence(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::NAMETOOLONG)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_content_that_was_just_written_is_fresh() {
        assert!(FileId::fake_written(Duration::ZERO).is_fresh());
        assert!(!FileId::fake_written(Duration::from_secs(1)).is_fresh());
        assert!(!FileId::fake(1).is_fresh());
        let future = (i64::from(u32::MAX), 0);
        let content = Some(Content { modified: future, size: 1, owner: (0, 0), mode: 0 });
        assert!(FileId { content, ..FileId::fake(1) }.is_fresh());
    }

    #[test]
    fn only_a_clear_answer_is_absence() {
        let absence = [Errno::NOENT, Errno::NOTDIR, Errno::LOOP];
        assert!(absence.iter().all(|errno| is_absence(&(*errno).into())));
        let doubt = [Errno::MFILE, Errno::NFILE, Errno::ACCESS, Errno::IO, Errno::NOMEM];
        assert!(!doubt.iter().any(|errno| is_absence(&(*errno).into())));
    }
}
