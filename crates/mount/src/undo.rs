//! Makes changes to an unmounted ext4 that can be undone.
//!
//! e2fsck and resize2fs overwrite a filesystem in place: if killed, they leave a state that is
//! neither old nor new. With an undo file they first save in it what they overwrite. The undo file
//! exists for as long as the image may be partly changed: it is removed when the program is done,
//! and a process that finds one must [roll back](roll_back) before any other use of the image. This
//! protects against a kill, not against a power cut: the two files are not flushed in order.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{ErrorKind, Read},
    os::unix::fs::OpenOptionsExt,
    path::Path,
    time::Duration,
};

use crate::{
    Error, Result,
    programs::{self, E2UNDO, Outcome, Program, Programs},
};

/// Magic bytes of an undo file.
const MAGIC: &[u8] = b"E2UNDO02";

/// Bytes of the header to read: magic, first key block, and block size.
const HEADER: usize = 40;

/// Minimum offset of the keys: blocks have at least 1 KiB, and the header and the superblock take
/// one each.
const SMALLEST_KEY_OFFSET: u64 = 2048;

/// Message of a program that had no space for a file.
const NO_ROOM: &str = "No space left on device";

/// Runs a program that changes `image` and takes an undo file with `-z`. If it fails, its changes
/// are undone.
pub(crate) fn run<T>(
    program: Program,
    arguments: &[&str],
    image: &Path,
    undo: Option<&Path>,
    deadline: Duration,
    accept: impl FnOnce(Outcome) -> Result<T>,
) -> Result<T> {
    let mut words: Vec<OsString> = arguments.iter().map(OsString::from).collect();
    if let Some(undo) = undo {
        words.extend([OsStr::new("-z"), undo.as_os_str()].map(OsStr::to_owned));
    }
    let done = programs::run(&Programs::default(), program, words, image, deadline);
    let done = done.and_then(|outcome| match is_out_of_room(&outcome) {
        // The program lacked space, even if it reports another error, such as a damaged filesystem.
        true => Err(Error::io("find room to check or grow", image)(rustix::io::Errno::NOSPC)),
        false => accept(outcome),
    });
    let Some(undo) = undo else { return done };
    match &done {
        Ok(_) => {
            flush(image)?;
            remove(undo)?;
        }
        Err(_) => drop(roll_back(image, undo, deadline)?),
    }
    done
}

/// Undoes the changes of a program that was interrupted on `image`. Returns false if there is no
/// undo file.
///
/// Marks the filesystem as unclean, so that its next use begins with a check.
pub fn roll_back(image: &Path, undo: &Path, deadline: Duration) -> Result<bool> {
    let Some(holds_data) = holds_data(undo)? else { return Ok(false) };
    if holds_data {
        // Force it: the superblock that the undo file was made for may be overwritten already.
        let words = [OsStr::new("-f"), undo.as_os_str()];
        let outcome = programs::run(&Programs::default(), E2UNDO, words, image, deadline)?;
        if outcome.output.contains("IO error during replay") {
            // The program had no space for its undo file. Nothing more can be restored; the check
            // finds the remaining damage.
            tracing::warn!(?image, output = outcome.output, "restored image only partly");
        }
        outcome.success()?;
        flush(image)?;
    }
    remove(undo)?;
    Ok(true)
}

/// Whether an undo file holds overwritten data; `None` if there is no such file.
///
/// A program creates the file before it changes anything. If it is killed then, or has no space,
/// the file has an incomplete header, which e2undo refuses.
fn holds_data(undo: &Path) -> Result<Option<bool>> {
    // Do not follow a symlink or wait for a named pipe that someone put in its place.
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match File::options().read(true).custom_flags(flags).open(undo) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        file => file.map_err(Error::io("read", undo))?,
    };
    let length = file.metadata().map_err(Error::io("look at", undo))?.len();
    let mut header = Vec::new();
    file.take(HEADER as u64).read_to_end(&mut header).map_err(Error::io("read", undo))?;
    Ok(Some(header.starts_with(MAGIC) && length > key_offset(&header)))
}

/// Offset of the first key of an undo file, in bytes.
fn key_offset(header: &[u8]) -> u64 {
    let number = |start: usize, length: usize| {
        let bytes = header.get(start..start + length).unwrap_or_default();
        bytes.iter().rev().fold(0_u64, |sum, byte| sum << 8 | u64::from(*byte))
    };
    let (blocks, block_size) = (number(24, 8), number(32, 4));
    blocks.saturating_mul(block_size).max(SMALLEST_KEY_OFFSET)
}

/// Whether a program failed because the image or the undo file had no space.
fn is_out_of_room(outcome: &Outcome) -> bool {
    outcome.code() != Some(0) && outcome.output.contains(NO_ROOM)
}

fn flush(image: &Path) -> Result<()> {
    let flushed = File::options().write(true).open(image).and_then(|file| file.sync_all());
    flushed.map_err(Error::io("flush", image))
}

fn remove(undo: &Path) -> Result<()> {
    match fs::remove_file(undo) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(Error::io("remove", undo)(error)),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An undo file with blocks of 4 KiB, cut after this many bytes.
    fn cut_after(length: usize) -> tempfile::NamedTempFile {
        let mut bytes = MAGIC.to_vec();
        bytes.extend([0, 1, 2_u64].map(u64::to_le_bytes).concat());
        bytes.extend(4096_u32.to_le_bytes());
        bytes.resize(16384, 0);
        let file = tempfile::NamedTempFile::new().unwrap();
        fs::write(file.path(), &bytes[..length]).unwrap();
        file
    }

    #[test]
    fn an_undo_file_without_a_key_holds_nothing() {
        for length in [0, 7, 8, 39, 512, 2048, 4096, 8192] {
            assert_eq!(holds_data(cut_after(length).path()).unwrap(), Some(false), "{length}");
        }
        assert_eq!(holds_data(cut_after(8193).path()).unwrap(), Some(true));
        assert_eq!(holds_data(Path::new("/nowhere/at/all")).unwrap(), None);
    }
}
