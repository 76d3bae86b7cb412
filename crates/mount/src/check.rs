//! To check a filesystem that is not mounted, and to repair what can be repaired safely.

use std::path::Path;
use std::time::Duration;

use crate::programs::{self, E2FSCK, Outcome, Programs, XFS_REPAIR};
use crate::{Error, Filesystem, Result, undo};

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Nothing is wrong.
    Clean,
    /// Something was, and no longer is.
    Repaired,
    /// Something is, and a person has to decide: the end of the program's report.
    Damaged(String),
}

/// Checks the filesystem on `device`, which must not be mounted.
///
/// ext4 is repaired as far as that is safe without asking (`e2fsck -p`, which replays the journal and
/// looks further only if the filesystem says that it should). XFS is looked at and not changed
/// (`xfs_repair -n`); it replays its log when it is mounted, so a log that was not replayed yet may
/// look like damage: mount it first. With an `undo` file a check that is killed can be [undone](crate::undo).
pub fn check(
    fs: Filesystem,
    device: &Path,
    undo: Option<&Path>,
    deadline: Duration,
) -> Result<Verdict> {
    match fs {
        Filesystem::Ext4 => undo::run(E2FSCK, &["-p"], device, undo, deadline, e2fsck),
        Filesystem::Xfs => {
            let programs = Programs::default();
            xfs_repair(programs::run(&programs, XFS_REPAIR, ["-n"], device, deadline)?)
        }
    }
}

/// Repairs the filesystem in `image`, which must not be mounted, whatever that takes; gives the program's report.
///
/// For a person who has decided so: files may be lost, or end in `lost+found`. An XFS with a log that was not replayed is
/// refused by `xfs_repair`, which says what to do. With an `undo` file a repair that is killed can be
/// [undone](crate::undo).
pub fn repair(
    fs: Filesystem,
    image: &Path,
    undo: Option<&Path>,
    deadline: Duration,
) -> Result<String> {
    match fs {
        Filesystem::Ext4 => undo::run(E2FSCK, &["-f", "-y"], image, undo, deadline, |outcome| {
            let report = outcome.output.clone();
            match e2fsck(outcome)? {
                Verdict::Clean | Verdict::Repaired => Ok(report),
                Verdict::Damaged(report) => {
                    Err(Error::Malformed { path: image.to_owned(), detail: report })
                }
            }
        }),
        Filesystem::Xfs => {
            let outcome = programs::run(&Programs::default(), XFS_REPAIR, ["-f"], image, deadline)?;
            let report = outcome.output.clone();
            outcome.success().map(|()| report)
        }
    }
}

/// Exit codes are bits: 1 and 2 repaired, 4 not repaired, the others: could not do its work.
pub(crate) fn e2fsck(outcome: Outcome) -> Result<Verdict> {
    match outcome.code() {
        Some(0) => Ok(Verdict::Clean),
        Some(1..=3) => Ok(Verdict::Repaired),
        Some(4..=7 | 12..=15) => Ok(Verdict::Damaged(outcome.output)),
        // A superblock that cannot be read at all is an operational error (8) to e2fsck.
        Some(8) if outcome.output.contains("superblock") => Ok(Verdict::Damaged(outcome.output)),
        _ => Err(outcome.error()),
    }
}

fn xfs_repair(outcome: Outcome) -> Result<Verdict> {
    match outcome.code() {
        Some(0) => Ok(Verdict::Clean),
        Some(1) => Ok(Verdict::Damaged(outcome.output)),
        _ => Err(outcome.error()),
    }
}
