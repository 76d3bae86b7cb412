//! Checks and repairs filesystems that are not mounted.

use std::{path::Path, time::Duration};

use crate::{
    Error, Filesystem, Result,
    programs::{self, E2FSCK, Outcome, Programs, XFS_REPAIR},
    undo,
};

/// Result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CheckOutcome {
    /// The filesystem has no errors.
    Clean,
    /// The filesystem had errors, and they were repaired.
    Repaired,
    /// The filesystem has errors that need a person's decision; holds the end of the program's
    /// report.
    Damaged(String),
}

/// Checks the filesystem on `device`, which must not be mounted.
///
/// ext4 is repaired as far as that is safe without a decision (`e2fsck -p`, which replays the
/// journal and does a full check only if the superblock asks for one). XFS is checked without
/// changes (`xfs_repair -n`). XFS replays its log when it is mounted, and a log that was not
/// replayed may look like damage: mount it first. With an `undo` file a check that is killed can be
/// [undone](crate::undo).
pub fn check(
    fs: Filesystem,
    device: &Path,
    undo: Option<&Path>,
    deadline: Duration,
) -> Result<CheckOutcome> {
    match fs {
        Filesystem::Ext4 => undo::run(E2FSCK, &["-p"], device, undo, deadline, e2fsck),
        Filesystem::Xfs => {
            let programs = Programs::default();
            xfs_repair(programs::run(&programs, XFS_REPAIR, ["-n"], device, deadline)?)
        }
    }
}

/// Repairs the filesystem in `image`, which must not be mounted, at any cost. Returns the program's
/// report.
///
/// Only for a person who has decided so: files may be lost or moved to `lost+found`. `xfs_repair`
/// refuses an XFS whose log was not replayed, and its report says what to do. With an `undo` file a
/// repair that is killed can be [undone](crate::undo).
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
                CheckOutcome::Clean | CheckOutcome::Repaired => Ok(report),
                CheckOutcome::Damaged(report) => {
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

/// Exit codes are bits: 1 and 2 mean repaired, 4 not repaired, all others an operational error.
pub(crate) fn e2fsck(outcome: Outcome) -> Result<CheckOutcome> {
    match outcome.code() {
        Some(0) => Ok(CheckOutcome::Clean),
        Some(1..=3) => Ok(CheckOutcome::Repaired),
        Some(4..=7 | 12..=15) => Ok(CheckOutcome::Damaged(outcome.output)),
        // For a superblock that cannot be read, e2fsck exits with the code of an operational error
        // (8).
        Some(8) if outcome.output.contains("superblock") => {
            Ok(CheckOutcome::Damaged(outcome.output))
        }
        _ => Err(outcome.error()),
    }
}

fn xfs_repair(outcome: Outcome) -> Result<CheckOutcome> {
    match outcome.code() {
        Some(0) => Ok(CheckOutcome::Clean),
        Some(1) => Ok(CheckOutcome::Damaged(outcome.output)),
        _ => Err(outcome.error()),
    }
}
