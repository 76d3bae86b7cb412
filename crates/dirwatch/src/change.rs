//! What a watch reports.

use std::path::PathBuf;

use crate::FileId;

/// Something that happened below the root.
///
/// For one path, `Appeared` and `Vanished` take turns, and `Replaced` comes only between them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// A file is there that was not.
    Appeared {
        /// Where.
        path: PathBuf,
        /// Which.
        id: FileId,
    },
    /// Another file is there under the same path, however often it changed in between.
    Replaced {
        /// Where.
        path: PathBuf,
        /// Which.
        id: FileId,
    },
    /// The file is gone, or is no longer of the watched kind.
    Vanished {
        /// Where it was.
        path: PathBuf,
    },
    /// Everything that is there has been reported. Comes after the first complete scan, and when a
    /// trouble is over.
    Synced,
    /// The watch is not as good as it should be, and goes on trying: changes may be reported as late
    /// as the next scan. Each message comes once, and `Synced` ends it.
    Trouble {
        /// What is wrong and where.
        message: String,
    },
}
