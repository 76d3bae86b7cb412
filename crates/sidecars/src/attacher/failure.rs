//! Why a volume was not attached or detached, in the words of the status.

use tonic::Status;
use wharf_cluster::ApiFailure;
use wharf_facts::access_mode::AccessModeError;
use wharf_uds::code_name;

use crate::secret::SecretFailure;

/// Why an attachment failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The objects do not allow a call.
    #[error(transparent)]
    Refused(#[from] AttachRefusal),
    /// The volume could not be protected from deletion.
    #[error("could not add PersistentVolume finalizer: {0}")]
    Protect(#[source] ApiFailure),
    /// The secret for the call cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretFailure),
    /// The attachment could not be marked before the call.
    #[error("could not save VolumeAttachment: {0}")]
    Save(#[source] ApiFailure),
    /// The driver attached the volume, but the status could not be written.
    #[error("failed to mark as attached: {0}")]
    MarkAttached(#[source] ApiFailure),
    /// The driver detached the volume, but the attachment could not be written.
    #[error("could not mark as detached: {0}")]
    MarkDetached(#[source] ApiFailure),
    /// The driver returned an error, or did not answer.
    #[error("rpc error: code = {} desc = {}", code_name(.0.code()), .0.message())]
    Driver(#[from] Box<Status>),
}

/// Why the objects do not allow a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum AttachRefusal {
    #[error("both InlineCSIVolumeSource and PersistentVolumeName specified in VA source")]
    BothSources,
    #[error("neither InlineCSIVolumeSource nor PersistentVolumeName specified in VA source")]
    NoSource,
    #[error("inline volume spec contains nil CSI source")]
    InlineWithoutCsi,
    #[error("persistentvolume {0:?} not found")]
    UnknownVolume(String),
    #[error("PersistentVolume {0:?} is marked for deletion")]
    VolumeDeleting(String),
    #[error(
        "pv spec contained non-csi source that was not migrated: in-tree volumes are not translated here"
    )]
    InTree,
    #[error("csinode.storage.k8s.io {0:?} not found")]
    UnknownNode(String),
    #[error("CSINode {node} does not contain driver {driver}")]
    NotOnNode { node: String, driver: String },
    #[error(transparent)]
    AccessMode(#[from] AccessModeError),
}

impl Failure {
    /// The driver's gRPC code, for callers that depend on it.
    pub(super) fn code(&self) -> Option<i32> {
        match self {
            Self::Driver(status) => Some(status.code() as i32),
            _ => None,
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Driver(Box::new(status))
    }
}
