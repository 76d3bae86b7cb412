//! What goes wrong in the driver, by what an orchestrator should make of it.

use std::{io, path::PathBuf};

use rustix::io::Errno;

use crate::store::StoreError;

/// A failed operation. Each RPC maps the kinds to the codes that it may answer.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// There is no such object.
    #[error("{kind} {id:?} does not exist")]
    NotFound {
        /// What was looked for.
        kind: &'static str,
        /// Its id.
        id: String,
    },
    /// A pool that the driver does not know.
    #[error(
        "pool {0:?} is neither configured nor noted: `wharf driver pool usage` shows the pools of the driver"
    )]
    NoPool(String),
    /// There is another object of that name, or the object is used in another way already.
    #[error("{0}")]
    Exists(String),
    /// A field's value is not understood.
    #[error("{field}: expected {expected}")]
    Invalid {
        /// The field of the request.
        field: String,
        /// What was expected.
        expected: String,
    },
    /// A snapshot that goes only with its group.
    #[error("snapshot {snapshot:?} belongs to group {group:?}: delete the group")]
    GroupMember {
        /// The snapshot.
        snapshot: String,
        /// Its group.
        group: String,
    },
    /// A size that cannot be.
    #[error("{0}")]
    OutOfRange(String),
    /// The disk has less left than is to be kept free, whoever filled it.
    #[error(
        "the pool's disk has {available} bytes left, and {floor} are kept free (--floor): delete volumes, snapshots or \
         what else is on the disk, or make it larger"
    )]
    BelowFloor {
        /// What the disk has left.
        available: u64,
        /// What is kept free.
        floor: u64,
    },
    /// The pool cannot hold it.
    #[error(
        "the pool has {free} bytes left to promise, and {wanted} are needed: delete volumes or snapshots, or make its disk \
         larger"
    )]
    Full {
        /// What is left.
        free: u64,
        /// What is needed.
        wanted: u64,
    },
    /// The disk has too little left for anything thin, which might soon run out of space.
    #[error(
        "the pool's disk has {available} bytes left, and nothing thin is created or grown below {floor} (--thin-floor): \
         delete volumes, snapshots or what else is on the disk, or make it larger"
    )]
    BelowThinFloor {
        /// Bytes that the disk has left.
        available: u64,
        /// Bytes below which nothing thin is created or grown.
        floor: u64,
    },
    /// Thin volumes would be promised too much.
    #[error(
        "thin volumes of the pool have {promised} bytes, {wanted} more are asked for, and {limit} are allowed \
         (--thin-ratio): delete thin volumes, raise --thin-ratio, or make the disk larger"
    )]
    ThinFull {
        /// Bytes of thin volumes that exist.
        promised: u64,
        /// Bytes that are asked for.
        wanted: u64,
        /// Bytes that thin volumes may have.
        limit: u64,
    },
    /// A limit is reached.
    #[error("{0}")]
    Exhausted(String),
    /// The object's state forbids it; the text says what has to be done first.
    #[error("{0}")]
    Precondition(String),
    /// The object's pool is not served now; the text says what to mount.
    #[error("{0}")]
    Unavailable(String),
    /// Something else is under way on the object.
    #[error("{0}")]
    Pending(String),
    /// The state could not be kept.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A disk, a mount or a program failed.
    #[error("{}", chain(.0))]
    Mount(#[from] wharf_mount::Error),
    /// A test asked for it.
    #[error(transparent)]
    Fault(#[from] wharf_csi_sdk::fault::FaultInjected),
    /// A file could not be handled.
    #[error("{operation} {}: {source}", path.display())]
    File {
        /// What was done to it.
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's word.
        source: io::Error,
    },
}

impl Error {
    /// A field's value is not understood.
    pub fn invalid(field: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), expected: expected.into() }
    }

    /// There is no such volume.
    pub fn no_volume(id: &str) -> Self {
        Self::NotFound { kind: "volume", id: id.to_owned() }
    }

    /// There is no such snapshot.
    pub fn no_snapshot(id: &str) -> Self {
        Self::NotFound { kind: "snapshot", id: id.to_owned() }
    }

    /// There is no such group of snapshots.
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

    /// For `or_else`, where an object that is missing is found out later.
    pub(crate) fn unless_missing(self) -> Result<(), Self> {
        if matches!(self, Self::NotFound { .. }) { Ok(()) } else { Err(self) }
    }

    /// Whether the pool's filesystem has no room left.
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

    /// Whether a disk fails, or takes no writes.
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

/// Whether a system call failed because of the disk below, and not because of what it was asked.
pub(crate) fn is_of_disk(error: &io::Error) -> bool {
    const OF_DISK: [Errno; 6] =
        [Errno::IO, Errno::ROFS, Errno::NODEV, Errno::NXIO, Errno::STALE, Errno::UCLEAN];
    Errno::from_io_error(error).is_some_and(|errno| OF_DISK.contains(&errno))
}

/// An error's text with those of its causes: a gRPC status has no other place for them.
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
