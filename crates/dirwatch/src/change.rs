//! The changes that a watch reports.

use std::path::PathBuf;

use crate::FileId;

/// Something that happened below the root.
///
/// For one path, `Appeared` and `Vanished` take turns, and `Replaced` comes only between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A file was made or moved here.
    Appeared {
        /// Its path.
        path: PathBuf,
        /// Its identity.
        id: FileId,
    },
    /// Another file has replaced the one at this path, however often it changed in between.
    Replaced {
        /// Its path.
        path: PathBuf,
        /// The identity of the new file.
        id: FileId,
    },
    /// The file is gone, or has no longer the watched kind.
    Vanished {
        /// Its former path.
        path: PathBuf,
    },
    /// Every file that exists has been reported. Comes after the first complete scan, and when
    /// trouble has ended.
    Synced,
    /// The watch works only in part and keeps trying: changes may be reported as late as the next
    /// scan. Each message comes once; `Synced` ends it.
    Trouble {
        /// The fault and its path.
        message: String,
    },
}
