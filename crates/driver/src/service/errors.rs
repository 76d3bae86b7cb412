//! Maps errors to the conditions of RPCs.

use wharf_csi_sdk::error::{
    ControllerExpandVolumeError, ControllerGetVolumeError, ControllerGetVolumeHealthError,
    ControllerModifyVolumeError, ControllerPublishVolumeError, ControllerUnpublishVolumeError,
    CreateSnapshotError, CreateVolumeError, CreateVolumeGroupSnapshotError, DeleteSnapshotError,
    DeleteVolumeError, DeleteVolumeGroupSnapshotError, Failure, GetSnapshotError,
    GetVolumeGroupSnapshotError, NodeExpandVolumeError, NodeGetVolumeHealthError,
    NodeGetVolumeStatsError, NodePublishVolumeError, NodeStageVolumeError,
    NodeUnpublishVolumeError, NodeUnstageVolumeError, ValidateVolumeCapabilitiesError,
};

use crate::error::Error;

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        use wharf_mount::Error as Mount;
        let text = error.to_string();
        match error {
            Error::Invalid { field, expected } => Self::Invalid { field, expected },
            Error::Pending(text) => Self::Pending(text),
            Error::Store(_) | Error::Unavailable(_) | Error::Exhausted(_) => {
                Self::Unavailable(text)
            }
            error if error.is_full() => Self::Unavailable(text),
            Error::Mount(Mount::Symlink { .. } | Mount::NotPlain { .. }) => {
                Self::invalid("path", format!("an absolute path without symlinks: {text}"))
            }
            Error::Mount(Mount::Flag { flag, expected }) => Self::invalid(
                "volume_capability.mount.mount_flags",
                format!("no flag {flag:?}: {expected}"),
            ),
            Error::Mount(Mount::Mount { reason, .. })
                if reason.contains("nknown parameter") || reason.contains("Bad value") =>
            {
                Self::invalid(
                    "volume_capability.mount.mount_flags",
                    format!("flags that the filesystem takes: {text}"),
                )
            }
            _ => Self::Internal(text),
        }
    }
}

/// Maps kinds of errors to conditions of an RPC. Kinds that are not listed become a [`Failure`].
macro_rules! conditions {
    ($($rpc:ident { $($($kind:ident)|+ => $condition:ident),* $(,)? })+) => {$(
        impl From<Error> for $rpc {
            fn from(error: Error) -> Self {
                match Kind::of(&error) {
                    $($(Kind::$kind)|+ => Self::$condition(error.to_string()),)*
                    _ => Failure::from(error).into(),
                }
            }
        }
    )+};
}

/// Meaning of an error for an orchestrator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    NotFound,
    Exists,
    Exhausted,
    OutOfRange,
    Precondition,
    Member,
    Other,
}

impl Kind {
    fn of(error: &Error) -> Self {
        match error {
            Error::NotFound { .. } | Error::NoPool(_) => Self::NotFound,
            Error::Exists(_) => Self::Exists,
            Error::Exhausted(_) => Self::Exhausted,
            Error::OutOfRange(_) => Self::OutOfRange,
            Error::Precondition(_) => Self::Precondition,
            Error::GroupMember { .. } => Self::Member,
            error if error.is_full() => Self::Exhausted,
            _ => Self::Other,
        }
    }
}

conditions! {
    CreateVolumeError {
        NotFound => SourceNotFound,
        Exists => AlreadyExists,
        Exhausted => Exhausted,
        OutOfRange => OutOfRange,
        Precondition => SourceInUse,
    }
    DeleteVolumeError { Precondition => InUse }
    ControllerPublishVolumeError {
        NotFound => VolumeNotFound,
        Exists => Incompatible,
        Precondition => PublishedElsewhere,
        Exhausted => LimitReached,
    }
    ControllerUnpublishVolumeError {}
    ValidateVolumeCapabilitiesError { NotFound => NotFound }
    ControllerGetVolumeError { NotFound => NotFound }
    ControllerGetVolumeHealthError { NotFound => NotFound }
    ControllerExpandVolumeError {
        NotFound => NotFound,
        Precondition => InUse,
        OutOfRange | Exhausted => OutOfRange,
    }
    ControllerModifyVolumeError { NotFound => NotFound }
    CreateSnapshotError {
        NotFound => SourceNotFound,
        Exists => AlreadyExists,
        Precondition => InUse,
        Exhausted => Exhausted,
    }
    DeleteSnapshotError { Precondition => InUse, Member => GroupMember }
    GetSnapshotError { NotFound => NotFound }
    CreateVolumeGroupSnapshotError {
        NotFound => SourceNotFound,
        Exists => AlreadyExists,
        Precondition => CannotBeCutTogether,
        Exhausted => Exhausted,
    }
    DeleteVolumeGroupSnapshotError { Precondition => InUse, Member => MembersDiffer }
    GetVolumeGroupSnapshotError { NotFound => NotFound, Member => MembersDiffer }
    NodeStageVolumeError {
        NotFound => NotFound,
        Exists => Incompatible,
        Precondition => ExceedsCapabilities,
    }
    NodeUnstageVolumeError {}
    NodePublishVolumeError {
        NotFound => NotFound,
        Exists => Incompatible,
        Precondition => ExceedsCapabilities,
    }
    NodeUnpublishVolumeError {}
    NodeGetVolumeStatsError { NotFound => NotFound }
    NodeGetVolumeHealthError { NotFound => NotFound }
    NodeExpandVolumeError {
        NotFound => NotFound,
        Precondition => InUse,
        OutOfRange | Exhausted => OutOfRange,
    }
}
