//! Errors of the driver, by their meaning for an orchestrator.

use std::{io, path::PathBuf};

use rustix::io::Errno;

use crate::store::StoreError;

/// A failed operation. Each RPC maps the variants to the codes that it may return.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The object does not exist.
    #[error("{kind} {id:?} does not exist")]
    NotFound {
        /// Kind of the object.
        kind: &'static str,
        /// ID of the object.
        id: String,
    },
    /// A pool that is neither configured nor noted.
    #[error(
        "pool {0:?} is neither configured nor noted: `wharf driver pool usage` shows the pools of the driver"
    )]
    NoPool(String),
    /// Another object has this name, or the object is in use in another way.
    #[error("{0}")]
    Exists(String),
    /// An invalid value of a field.
    #[error("{field}: expected {expected}")]
    Invalid {
        /// Field of the request.
        field: String,
        /// The expected value.
        expected: String,
    },
    /// A snapshot that can only be deleted with its group.
    #[error("snapshot {snapshot:?} belongs to group {group:?}: delete the group")]
    GroupMember {
        /// ID of the snapshot.
        snapshot: String,
        /// ID of its group.
        group: String,
    },
    /// A size that is not possible.
    #[error("{0}")]
    OutOfRange(String),
    /// The disk has less space left than the floor that is kept free.
    #[error(
        "the pool's disk has {available} bytes left, and {floor} are kept free (--floor): delete volumes, snapshots or \
         what else is on the disk, or make it larger"
    )]
    BelowFloor {
        /// Bytes left on the disk.
        available: u64,
        /// Bytes kept free.
        floor: u64,
    },
    /// The pool has not enough free space.
    #[error(
        "the pool has {free} bytes left to promise, and {wanted} are needed: delete volumes or snapshots, or make its disk \
         larger"
    )]
    Full {
        /// Free bytes.
        free: u64,
        /// Required bytes.
        wanted: u64,
    },
    /// The disk has too little space left for thin volumes.
    #[error(
        "the pool's disk has {available} bytes left, and nothing thin is created or grown below {floor} (--thin-floor): \
         delete volumes, snapshots or what else is on the disk, or make it larger"
    )]
    BelowThinFloor {
        /// Bytes left on the disk.
        available: u64,
        /// Bytes below which no thin volume is created or grown.
        floor: u64,
    },
    /// The thin ratio would be exceeded.
    #[error(
        "thin volumes of the pool have {promised} bytes, {wanted} more are asked for, and {limit} are allowed \
         (--thin-ratio): delete thin volumes, raise --thin-ratio, or make the disk larger"
    )]
    ThinFull {
        /// Bytes of existing thin volumes.
        promised: u64,
        /// Requested bytes.
        wanted: u64,
        /// Maximum bytes of all thin volumes.
        limit: u64,
    },
    /// A limit is reached.
    #[error("{0}")]
    Exhausted(String),
    /// The object's state forbids the operation; the text says what to do first.
    #[error("{0}")]
    Precondition(String),
    /// The object's pool is not served; the text says what to mount.
    #[error("{0}")]
    Unavailable(String),
    /// Another operation on the object is in progress.
    #[error("{0}")]
    Pending(String),
    /// The state could not be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A disk, a mount or a program failed.
    #[error("{}", chain(.0))]
    Mount(#[from] wharf_mount::Error),
    /// Injected by a test.
    #[error(transparent)]
    Fault(#[from] wharf_csi_sdk::fault::FaultInjected),
    /// A file operation failed.
    #[error("{operation} {}: {source}", path.display())]
    File {
        /// The operation, as a verb.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl Error {
    /// An invalid value of a field.
    pub fn invalid(field: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), expected: expected.into() }
    }

    /// The volume does not exist.
    pub fn no_volume(id: &str) -> Self {
        Self::NotFound { kind: "volume", id: id.to_owned() }
    }

    /// The snapshot does not exist.
    pub fn no_snapshot(id: &str) -> Self {
        Self::NotFound { kind: "snapshot", id: id.to_owned() }
    }

    /// The group does not exist.
    pub fn no_group(id: &str) -> Self {
        Self::NotFound { kind: "group", id: id.to_owned() }
    }

    /// For `map_err` on calls of the standard library.
    pub(crate) fn file(
        operation: &'static str,
        path: impl Into<PathBuf>,
    ) -> impl FnOnce(io::Error) -> Self {
        let path = path.into();
        move |source| Self::File { operation, path, source }
    }

    /// For `or_else`, if a missing object is detected later.
    pub(crate) fn unless_missing(self) -> Result<(), Self> {
        if matches!(self, Self::NotFound { .. }) { Ok(()) } else { Err(self) }
    }

    /// Whether the pool's filesystem is full.
    pub fn is_full(&self) -> bool {
        match self {
            Self::Full { .. }
            | Self::BelowFloor { .. }
            | Self::BelowThinFloor { .. }
            | Self::ThinFull { .. } => true,
            Self::Mount(error) => error.is_full(),
            Self::File { source, .. } => source.kind() == io::ErrorKind::StorageFull,
            _ => false,
        }
    }

    /// Whether a disk fails or is read-only.
    pub fn is_of_disk(&self) -> bool {
        match self {
            Self::Store(error) => matches!(error, StoreError::Disk { .. }),
            Self::Mount(error) => {
                error.errno().is_some_and(|it| is_of_disk(&io::Error::from_raw_os_error(it)))
            }
            Self::File { source, .. } => is_of_disk(source),
            _ => false,
        }
    }
}

/// Whether a system call failed because of the disk, not because of its arguments.
pub(crate) fn is_of_disk(error: &io::Error) -> bool {
    const OF_DISK: [Errno; 6] =
        [Errno::IO, Errno::ROFS, Errno::NODEV, Errno::NXIO, Errno::STALE, Errno::UCLEAN];
    Errno::from_io_error(error).is_some_and(|errno| OF_DISK.contains(&errno))
}

/// The text of an error and its causes, since a gRPC status has only one text.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
