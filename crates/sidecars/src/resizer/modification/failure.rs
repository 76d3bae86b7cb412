use tonic::Status;
use wharf_cluster::ApiFailure;
use wharf_uds::code_name;

use crate::secret::SecretFailure;

/// Why a modification failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("VAC {0:?} does not exist.")]
    NoClass(String),
    #[error("mark PVC {claim:?} as modify volume failed, errored with: {source}")]
    Mark { claim: String, source: ApiFailure },
    #[error(
        "update pv.Spec.VolumeAttributesClassName for PVC {claim:?} failed, errored with: {source}"
    )]
    Volume { claim: String, source: ApiFailure },
    #[error(transparent)]
    Secret(#[from] SecretFailure),
    #[error("volume {0:?} is not a CSI volume")]
    InTree(String),
    #[error("rpc error: code = {} desc = {}{still}", code_name(.status.code()), .status.message())]
    Driver { status: Box<Status>, still: String },
}

impl Failure {
    /// Whether an event is written. A failed write is only logged.
    pub(super) fn is_told(&self) -> bool {
        !matches!(self, Self::Mark { .. } | Self::Volume { .. })
    }
}
