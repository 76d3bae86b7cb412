//! Why an RPC failed: an enum per RPC that knows only the conditions which that RPC may report.
//!
//! CSI says for each RPC which code stands for which condition, and orchestrators act on it: a wrong code loops for
//! ever or leaks a volume. So a driver names the condition, and an illegal code cannot be written. What may go wrong
//! anywhere is a [`Failure`], which every enum here takes with `?`.
//!
//! Each condition carries a text for the person who has to act on it: say what was found, and what to do. A condition
//! without a text is named by itself, since the protocol forbids an empty message.

use std::error::Error;
use std::fmt::Display;

use tonic::{Code, Status};

use crate::fault::FaultInjected;
use crate::types::OutOfRange;

/// What may go wrong in any RPC.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// INVALID_ARGUMENT: a field of the request is not what the driver takes. Nothing was done.
    #[error("{field}: expected {expected}")]
    Invalid {
        /// The field, in the protocol's words: `parameters.thin`.
        field: String,
        /// What would be right.
        expected: String,
    },
    /// PERMISSION_DENIED: the storage refuses this to these credentials.
    #[error("{0}")]
    PermissionDenied(String),
    /// UNAUTHENTICATED: the credentials are missing or wrong.
    #[error("{0}")]
    Unauthenticated(String),
    /// ABORTED: something else is going on with the same object; calling again later is right.
    #[error("{0}")]
    Pending(String),
    /// UNAVAILABLE: the storage cannot be reached now; calling again later is right.
    #[error("{0}")]
    Unavailable(String),
    /// INTERNAL: anything else.
    #[error("{0}")]
    Internal(String),
}

impl Failure {
    /// A field that is not what the driver takes.
    pub fn invalid(field: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), expected: expected.into() }
    }

    /// Anything that the caller cannot help.
    pub fn internal(what: impl Display) -> Self {
        Self::Internal(what.to_string())
    }

    /// What was tried, and the error that ended it with all its causes.
    pub fn caused_by(what: impl Display, error: &dyn Error) -> Self {
        let mut text = format!("{what}: {error}");
        let mut cause = error.source();
        while let Some(error) = cause {
            text.push_str(": ");
            text.push_str(&error.to_string());
            cause = error.source();
        }
        Self::Internal(text)
    }

    /// The code on the wire.
    #[must_use]
    pub fn code(&self) -> Code {
        match self {
            Self::Invalid { .. } => Code::InvalidArgument,
            Self::PermissionDenied(_) => Code::PermissionDenied,
            Self::Unauthenticated(_) => Code::Unauthenticated,
            Self::Pending(_) => Code::Aborted,
            Self::Unavailable(_) => Code::Unavailable,
            Self::Internal(_) => Code::Internal,
        }
    }
}

impl From<Failure> for Status {
    fn from(failure: Failure) -> Self {
        status(failure.code(), &failure.to_string(), "the driver failed and did not say why")
    }
}

impl From<FaultInjected> for Failure {
    fn from(fault: FaultInjected) -> Self {
        Self::internal(fault)
    }
}

/// A status whose message is never empty.
fn status(code: Code, text: &str, otherwise: &str) -> Status {
    Status::new(code, if text.trim().is_empty() { otherwise } else { text })
}

macro_rules! errors {
    ($($(#[$doc:meta])+ $name:ident { $($(#[$condition_doc:meta])+ $condition:ident = $code:ident,)+ })+) => {
        $(
            $(#[$doc])+
            #[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
            pub enum $name {
                $(
                    $(#[$condition_doc])+
                    #[error("{0}")]
                    $condition(String),
                )+
                /// What may go wrong in any RPC.
                #[error(transparent)]
                Failure(#[from] Failure),
            }

            impl $name {
                /// The code on the wire.
                #[must_use]
                pub fn code(&self) -> Code {
                    match self {
                        $(Self::$condition(_) => Code::$code,)+
                        Self::Failure(failure) => failure.code(),
                    }
                }
            }

            impl From<$name> for Status {
                fn from(error: $name) -> Self {
                    match error {
                        $($name::$condition(text) => status(Code::$code, &text, stringify!($condition)),)+
                        $name::Failure(failure) => failure.into(),
                    }
                }
            }

            impl From<FaultInjected> for $name {
                fn from(fault: FaultInjected) -> Self {
                    Self::Failure(fault.into())
                }
            }
        )+

        #[cfg(test)]
        fn table() -> Vec<(&'static str, Status)> {
            vec![$($((
                concat!(stringify!($name), "::", stringify!($condition)),
                $name::$condition(String::new()).into(),
            ),)+)+]
        }
    };
}

errors! {
    /// Why `CreateVolume` failed. A source of a kind that was not declared never gets here.
    CreateVolumeError {
        /// The snapshot or volume to start from is not there.
        SourceNotFound = NotFound,
        /// The name is taken by a volume that is not what is asked for.
        AlreadyExists = AlreadyExists,
        /// No place that was asked for has room.
        Exhausted = ResourceExhausted,
        /// The size cannot be had, or is smaller than the source.
        OutOfRange = OutOfRange,
        /// The volume to start from cannot be copied while it is used as it is.
        SourceInUse = FailedPrecondition,
    }
    /// Why `DeleteVolume` failed. A volume that is not there is deleted.
    DeleteVolumeError {
        /// It is published, or snapshots depend on it.
        InUse = FailedPrecondition,
    }
    /// Why `ControllerPublishVolume` failed.
    ControllerPublishVolumeError {
        /// There is no such volume.
        VolumeNotFound = NotFound,
        /// There is no such node.
        NodeNotFound = NotFound,
        /// It is published to this node in another way.
        Incompatible = AlreadyExists,
        /// It is published to another node, which the text names.
        PublishedElsewhere = FailedPrecondition,
        /// The node has as many volumes as it can take.
        LimitReached = ResourceExhausted,
    }
    /// Why `ControllerUnpublishVolume` failed. What is not published, or gone, is unpublished.
    ControllerUnpublishVolumeError {
        /// There is no such volume, and it may still be attached.
        VolumeNotFound = NotFound,
        /// There is no such node, and the volume may still be attached to it.
        NodeNotFound = NotFound,
    }
    /// Why `ValidateVolumeCapabilities` failed. What is not supported is an answer and no failure.
    ValidateVolumeCapabilitiesError {
        /// There is no such volume.
        NotFound = NotFound,
    }
    /// Why `ControllerGetVolume` failed.
    ControllerGetVolumeError {
        /// There is no such volume.
        NotFound = NotFound,
    }
    /// Why `ControllerExpandVolume` failed. A volume that is large enough is expanded.
    ControllerExpandVolumeError {
        /// There is no such volume.
        NotFound = NotFound,
        /// It is in use, and can be expanded only while it is not.
        InUse = FailedPrecondition,
        /// The size cannot be had.
        OutOfRange = OutOfRange,
    }
    /// Why `ControllerModifyVolume` failed. An unknown key or value is a [`Failure::Invalid`], and nothing was applied.
    ControllerModifyVolumeError {
        /// There is no such volume.
        NotFound = NotFound,
    }
    /// Why `ControllerGetVolumeHealth` failed.
    ControllerGetVolumeHealthError {
        /// There is no such volume.
        NotFound = NotFound,
    }
    /// Why `CreateSnapshot` failed.
    CreateSnapshotError {
        /// The volume is not there.
        SourceNotFound = NotFound,
        /// The name is taken by a snapshot that is not what is asked for.
        AlreadyExists = AlreadyExists,
        /// The volume cannot be cut while it is used as it is.
        InUse = FailedPrecondition,
        /// There is no room.
        Exhausted = ResourceExhausted,
    }
    /// Why `DeleteSnapshot` failed. A snapshot that is not there is deleted.
    DeleteSnapshotError {
        /// It is a member of a group snapshot, and goes only with it.
        GroupMember = InvalidArgument,
        /// Volumes depend on it.
        InUse = FailedPrecondition,
    }
    /// Why `GetSnapshot` failed.
    GetSnapshotError {
        /// There is no such snapshot.
        NotFound = NotFound,
    }
    /// Why `CreateVolumeGroupSnapshot` failed. Nothing of the group is left.
    CreateVolumeGroupSnapshotError {
        /// One of the volumes is not there.
        SourceNotFound = NotFound,
        /// The name is taken by a group that is not what is asked for.
        AlreadyExists = AlreadyExists,
        /// These volumes cannot be cut at one instant.
        CannotBeCutTogether = FailedPrecondition,
        /// There is no room.
        Exhausted = ResourceExhausted,
    }
    /// Why `DeleteVolumeGroupSnapshot` failed. A group that is not there is deleted.
    DeleteVolumeGroupSnapshotError {
        /// The snapshots listed are not the group's.
        MembersDiffer = InvalidArgument,
        /// Volumes depend on a member.
        InUse = FailedPrecondition,
    }
    /// Why `GetVolumeGroupSnapshot` failed.
    GetVolumeGroupSnapshotError {
        /// There is no such group.
        NotFound = NotFound,
        /// The snapshots listed are not the group's.
        MembersDiffer = InvalidArgument,
    }
    /// Why `NodeStageVolume` failed.
    NodeStageVolumeError {
        /// There is no such volume.
        NotFound = NotFound,
        /// It is staged there in another way.
        Incompatible = AlreadyExists,
        /// The volume cannot be used as asked.
        ExceedsCapabilities = FailedPrecondition,
    }
    /// Why `NodeUnstageVolume` failed. What is not staged is unstaged.
    NodeUnstageVolumeError {
        /// There is no such volume, and it may still be staged.
        NotFound = NotFound,
    }
    /// Why `NodePublishVolume` failed.
    NodePublishVolumeError {
        /// There is no such volume.
        NotFound = NotFound,
        /// It is published there in another way.
        Incompatible = AlreadyExists,
        /// The volume cannot be used as asked; also for a second target that its access mode forbids.
        ExceedsCapabilities = FailedPrecondition,
        /// It is not staged at that path.
        NotStaged = FailedPrecondition,
    }
    /// Why `NodeUnpublishVolume` failed. What is not published is unpublished.
    NodeUnpublishVolumeError {
        /// There is no such volume, and it may still be published.
        NotFound = NotFound,
    }
    /// Why `NodeGetVolumeStats` failed.
    NodeGetVolumeStatsError {
        /// There is no such volume, or it is not at that path.
        NotFound = NotFound,
    }
    /// Why `NodeExpandVolume` failed. A volume that is large enough is expanded.
    NodeExpandVolumeError {
        /// There is no such volume, or it is not at that path.
        NotFound = NotFound,
        /// It is in use, and can be expanded only while it is not.
        InUse = FailedPrecondition,
        /// The size cannot be had.
        OutOfRange = OutOfRange,
    }
    /// Why `NodeGetVolumeHealth` failed.
    NodeGetVolumeHealthError {
        /// There is no such volume, or it is not at that path.
        NotFound = NotFound,
    }
}

macro_rules! out_of_range {
    ($($name:ident),+) => {$(
        impl From<OutOfRange> for $name {
            fn from(error: OutOfRange) -> Self {
                Self::OutOfRange(error.to_string())
            }
        }
    )+};
}

out_of_range!(CreateVolumeError, ControllerExpandVolumeError, NodeExpandVolumeError);

#[cfg(test)]
mod tests;
