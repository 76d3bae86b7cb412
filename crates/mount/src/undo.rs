//! Changes to an ext4 that is not mounted, and the way back from them.
//!
//! e2fsck and resize2fs overwrite a filesystem in place: killed in the middle they leave one that is neither the old nor the
//! new. Given an undo file they keep in it what they overwrite. The file is there for as long as the image may be half
//! changed: it goes when the program is done, and whoever finds it [rolls back](roll_back) before anything else is done to
//! the image. That serves a kill, not a power cut: the two files are not flushed in any order.

use std::{
    ffi::{OsStr, OsString},
    fs::{self, File},
    io::{ErrorKind, Read},
    path::Path,
    time::Duration,
};

use crate::{
    Error, Result,
    programs::{self, E2UNDO, Outcome, Program, Programs},
};

/// What an undo file begins with.
const MAGIC: &[u8] = b"E2UNDO02";

/// Runs a program that changes `image` and takes an undo file by `-z`. When it fails, its changes are taken back.
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
    let done = done.and_then(accept);
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

/// Takes back what a program that was cut short has changed in `image`; false if there is no undo file.
pub fn roll_back(image: &Path, undo: &Path, deadline: Duration) -> Result<bool> {
    let mut start = Vec::new();
    match File::open(undo).and_then(|file| file.take(MAGIC.len() as u64).read_to_end(&mut start)) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(false),
        read => read.map_err(Error::io("read", undo))?,
    };
    // A file without it is of a program that was killed before it changed anything: it begins the file first.
    if start == MAGIC {
        // The superblock that it was made for may be overwritten already.
        let words = [OsStr::new("-f"), undo.as_os_str()];
        programs::run(&Programs::default(), E2UNDO, words, image, deadline)?.success()?;
        flush(image)?;
    }
    remove(undo)?;
    Ok(true)
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
