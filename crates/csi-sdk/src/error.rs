//! Errors of RPCs: an enum per RPC with exactly the conditions that CSI allows it to report.
//!
//! CSI defines for each RPC which code means which condition, and orchestrators act on the code: a
//! wrong one causes endless retries or leaks a volume. Here a driver names the condition, so it
//! cannot return a code that its RPC does not allow. Conditions common to all RPCs are a
//! [`Failure`], which `?` converts into every enum of this module.
//!
//! A condition carries a text for the person who has to act: say what was found and what to do. If
//! the text is empty, the condition's name replaces it, since the protocol forbids an empty
//! message.
//!
//! ```
//! use std::fs;
//!
//! use tonic::{Code, Status};
//! use wharf_csi_sdk::error::{DeleteVolumeError, Failure};
//!
//! fn delete(path: &str, published: bool) -> Result<(), DeleteVolumeError> {
//!     if published {
//!         let text = format!("{path} is published: unpublish it first");
//!         return Err(DeleteVolumeError::InUse(text));
//!     }
//!     fs::remove_file(path).map_err(|error| Failure::caused_by(path, &error))?;
//!     Ok(())
//! }
//!
//! let status = Status::from(delete("/no/such/volume", true).unwrap_err());
//! assert_eq!(status.code(), Code::FailedPrecondition);
//! let status = Status::from(delete("/no/such/volume", false).unwrap_err());
//! assert_eq!(status.code(), Code::Internal);
//! ```

use std::{error::Error, fmt::Display};

use tonic::{Code, Status};

use crate::{fault::FaultInjected, types::OutOfRange};

/// Conditions that any RPC may report.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Failure {
    /// INVALID_ARGUMENT: the driver does not accept the value of a field. Nothing was done.
    #[error("{field}: expected {expected}")]
    Invalid {
        /// The field, by its name in the protocol: `parameters.thin`.
        field: String,
        /// Values that the driver accepts.
        expected: String,
    },
    /// PERMISSION_DENIED: the storage denies the operation to these credentials.
    #[error("{0}")]
    PermissionDenied(String),
    /// UNAUTHENTICATED: the credentials are missing or wrong.
    #[error("{0}")]
    Unauthenticated(String),
    /// ABORTED: another operation on the same object is in progress; the orchestrator retries.
    #[error("{0}")]
    Pending(String),
    /// UNAVAILABLE: the storage cannot be reached; the orchestrator retries.
    #[error("{0}")]
    Unavailable(String),
    /// INTERNAL: any other failure.
    #[error("{0}")]
    Internal(String),
}

impl Failure {
    /// The driver does not accept the value of `field`.
    pub fn invalid(field: impl Into<String>, expected: impl Into<String>) -> Self {
        Self::Invalid { field: field.into(), expected: expected.into() }
    }

    /// A failure that the caller cannot correct.
    pub fn internal(what: impl Display) -> Self {
        Self::Internal(what.to_string())
    }

    /// A failed step: its description, then the error with all its causes.
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

    /// The gRPC code.
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

/// Builds a status; `otherwise` replaces an empty text.
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
                /// A condition that any RPC may report.
                #[error(transparent)]
                Failure(#[from] Failure),
            }

            impl $name {
                /// The gRPC code.
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
    /// Errors of `CreateVolume`. A source of an undeclared kind is refused before the driver is
    /// called.
    CreateVolumeError {
        /// The source snapshot or volume does not exist.
        SourceNotFound = NotFound,
        /// A volume of this name exists and does not match the request.
        AlreadyExists = AlreadyExists,
        /// There is not enough space in any of the allowed places.
        Exhausted = ResourceExhausted,
        /// The size is too large, or smaller than the source.
        OutOfRange = OutOfRange,
        /// The source volume cannot be copied in its present use.
        SourceInUse = FailedPrecondition,
    }
    /// Errors of `DeleteVolume`. Deleting a volume that does not exist succeeds.
    DeleteVolumeError {
        /// The volume is published, or snapshots depend on it.
        InUse = FailedPrecondition,
    }
    /// Errors of `ControllerPublishVolume`.
    ControllerPublishVolumeError {
        /// The volume does not exist.
        VolumeNotFound = NotFound,
        /// The node does not exist.
        NodeNotFound = NotFound,
        /// The volume is published to this node with another capability or `read_only`.
        Incompatible = AlreadyExists,
        /// The volume is published to another node. Name that node in the text.
        PublishedElsewhere = FailedPrecondition,
        /// The node has reached its volume limit.
        LimitReached = ResourceExhausted,
    }
    /// Errors of `ControllerUnpublishVolume`. Succeeds if the volume is not published or does not
    /// exist.
    ControllerUnpublishVolumeError {
        /// The volume does not exist, but may still be attached.
        VolumeNotFound = NotFound,
        /// The node does not exist, but the volume may still be attached to it.
        NodeNotFound = NotFound,
    }
    /// Errors of `ValidateVolumeCapabilities`. An unsupported capability is an answer, not an
    /// error.
    ValidateVolumeCapabilitiesError {
        /// The volume does not exist.
        NotFound = NotFound,
    }
    /// Errors of `ControllerGetVolume`.
    ControllerGetVolumeError {
        /// The volume does not exist.
        NotFound = NotFound,
    }
    /// Errors of `ControllerExpandVolume`. Succeeds if the volume is large enough.
    ControllerExpandVolumeError {
        /// The volume does not exist.
        NotFound = NotFound,
        /// The volume is in use and can only be expanded while it is not.
        InUse = FailedPrecondition,
        /// The size is too large.
        OutOfRange = OutOfRange,
    }
    /// Errors of `ControllerModifyVolume`. An unknown key or value is [`Failure::Invalid`], and no
    /// parameter is applied.
    ControllerModifyVolumeError {
        /// The volume does not exist.
        NotFound = NotFound,
    }
    /// Errors of `ControllerGetVolumeHealth`.
    ControllerGetVolumeHealthError {
        /// The volume does not exist.
        NotFound = NotFound,
    }
    /// Errors of `CreateSnapshot`.
    CreateSnapshotError {
        /// The volume does not exist.
        SourceNotFound = NotFound,
        /// A snapshot of this name exists and does not match the request.
        AlreadyExists = AlreadyExists,
        /// The volume cannot be snapshotted in its present use.
        InUse = FailedPrecondition,
        /// There is not enough space.
        Exhausted = ResourceExhausted,
    }
    /// Errors of `DeleteSnapshot`. Deleting a snapshot that does not exist succeeds.
    DeleteSnapshotError {
        /// The snapshot belongs to a group snapshot and can only be deleted with it.
        GroupMember = InvalidArgument,
        /// Volumes depend on the snapshot.
        InUse = FailedPrecondition,
    }
    /// Errors of `GetSnapshot`.
    GetSnapshotError {
        /// The snapshot does not exist.
        NotFound = NotFound,
    }
    /// Errors of `CreateVolumeGroupSnapshot`. After an error, no snapshot of the group remains.
    CreateVolumeGroupSnapshotError {
        /// One of the volumes does not exist.
        SourceNotFound = NotFound,
        /// A group of this name exists and does not match the request.
        AlreadyExists = AlreadyExists,
        /// The volumes cannot be snapshotted at one instant.
        CannotBeCutTogether = FailedPrecondition,
        /// There is not enough space.
        Exhausted = ResourceExhausted,
    }
    /// Errors of `DeleteVolumeGroupSnapshot`. Deleting a group that does not exist succeeds.
    DeleteVolumeGroupSnapshotError {
        /// The listed snapshots are not the members of the group.
        MembersDiffer = InvalidArgument,
        /// Volumes depend on a member.
        InUse = FailedPrecondition,
    }
    /// Errors of `GetVolumeGroupSnapshot`.
    GetVolumeGroupSnapshotError {
        /// The group does not exist.
        NotFound = NotFound,
        /// The listed snapshots are not the members of the group.
        MembersDiffer = InvalidArgument,
    }
    /// Errors of `NodeStageVolume`.
    NodeStageVolumeError {
        /// The volume does not exist.
        NotFound = NotFound,
        /// The volume is staged at the path with another capability.
        Incompatible = AlreadyExists,
        /// The volume does not support the capability.
        ExceedsCapabilities = FailedPrecondition,
    }
    /// Errors of `NodeUnstageVolume`. Succeeds if the volume is not staged.
    NodeUnstageVolumeError {
        /// The volume does not exist, but may still be staged.
        NotFound = NotFound,
    }
    /// Errors of `NodePublishVolume`.
    NodePublishVolumeError {
        /// The volume does not exist.
        NotFound = NotFound,
        /// The volume is published at the target path with another capability or `read_only`.
        Incompatible = AlreadyExists,
        /// The volume does not support the capability, or its access mode forbids a second target.
        ExceedsCapabilities = FailedPrecondition,
        /// The volume is not staged at the staging path.
        NotStaged = FailedPrecondition,
    }
    /// Errors of `NodeUnpublishVolume`. Succeeds if the volume is not published.
    NodeUnpublishVolumeError {
        /// The volume does not exist, but may still be published.
        NotFound = NotFound,
    }
    /// Errors of `NodeGetVolumeStats`.
    NodeGetVolumeStatsError {
        /// The volume does not exist, or is not at the path.
        NotFound = NotFound,
    }
    /// Errors of `NodeExpandVolume`. Succeeds if the volume is large enough.
    NodeExpandVolumeError {
        /// The volume does not exist, or is not at the path.
        NotFound = NotFound,
        /// The volume is in use and can only be expanded while it is not.
        InUse = FailedPrecondition,
        /// The size is too large.
        OutOfRange = OutOfRange,
    }
    /// Errors of `NodeGetVolumeHealth`.
    NodeGetVolumeHealthError {
        /// The volume does not exist, or is not at the path.
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
