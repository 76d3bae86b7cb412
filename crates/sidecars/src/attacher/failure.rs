//! Why a volume was not attached or detached, in the words that people find in the status.

use tonic::Status;
use wharf_cluster::ApiFailure;
use wharf_facts::access_mode::AccessModeError;
use wharf_uds::code_name;

use crate::secret::SecretFailure;

/// Why an attachment failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The objects do not say what to do.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The volume could not be protected from deletion.
    #[error("could not add PersistentVolume finalizer: {0}")]
    Protect(#[source] ApiFailure),
    /// The secret for the call is not to be had.
    #[error(transparent)]
    Secret(#[from] SecretFailure),
    /// The attachment could not be marked before the call.
    #[error("could not save VolumeAttachment: {0}")]
    Save(#[source] ApiFailure),
    /// The driver attached the volume, and this could not be written down.
    #[error("failed to mark as attached: {0}")]
    MarkAttached(#[source] ApiFailure),
    /// The driver detached the volume, and this could not be written down.
    #[error("could not mark as detached: {0}")]
    MarkDetached(#[source] ApiFailure),
    /// The driver said no, or nothing.
    #[error("rpc error: code = {} desc = {}", code_name(.0.code()), .0.message())]
    Driver(#[from] Box<Status>),
}

/// Objects that do not say what to do.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Refusal {
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
    /// The driver's code, for those who act on it.
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
