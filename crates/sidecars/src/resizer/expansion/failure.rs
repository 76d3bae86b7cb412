//! Why a volume was not expanded, in the words of the events.

use tonic::{Code, Status};
use wharf_cluster::ApiFailure;
use wharf_csi::{ErrorClass, class};
use wharf_facts::access_mode::AccessModeError;
use wharf_uds::code_name;

use crate::secret::SecretFailure;

/// Why an expansion failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error("failed removing the size before the growth from pv {volume:?}: {source}")]
    Settle { volume: String, source: ApiFailure },
    #[error("marking pvc {claim:?} as resizing failed: {source}")]
    Begin { claim: String, source: ApiFailure },
    #[error(
        "Unable to expand {claim} because CSI driver {driver} only supports offline expansion and volume is currently in-use"
    )]
    InUse { claim: String, driver: String },
    #[error("resize volume {volume:?} by resizer {driver:?} failed: {source}")]
    Grow { volume: String, driver: String, source: ExpandRefusal },
    #[error(
        "resizing failed in controller with {refusal} but failed to update PVC {claim} with: {source}"
    )]
    Save { claim: String, refusal: String, source: ApiFailure },
    #[error("error updating pv {volume:?} by resizer: {source}")]
    Resized { volume: String, source: ApiFailure },
    #[error("marking pvc {claim:?} as resized failed: {source}")]
    Finish { claim: String, source: ApiFailure },
}

/// Why the driver did not expand a volume.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExpandRefusal {
    #[error("in-tree volumes are not translated here")]
    InTree,
    #[error(transparent)]
    Secret(#[from] SecretFailure),
    #[error(transparent)]
    AccessMode(#[from] AccessModeError),
    #[error("rpc error: code = {} desc = {}", code_name(.0.code()), .0.message())]
    Driver(Box<Status>),
}

impl Failure {
    /// Whether an event is written. A failure to begin is only logged.
    pub(super) fn is_told(&self) -> bool {
        !matches!(self, Self::Settle { .. } | Self::Begin { .. })
    }

    /// Whether the claim or volume is gone.
    pub(super) fn is_gone(&self) -> bool {
        matches!(
            self,
            Self::Begin { source: ApiFailure::NotFound { .. }, .. }
                | Self::Finish { source: ApiFailure::NotFound { .. }, .. }
                | Self::Save { source: ApiFailure::NotFound { .. }, .. }
        )
    }
}

impl ExpandRefusal {
    /// Whether the driver returned the error. Other refusals come before the call, and say nothing
    /// about earlier calls.
    pub(super) fn is_answer(&self) -> bool {
        matches!(self, Self::Driver(_))
    }

    /// What the failure says about an expansion in progress.
    pub(super) fn class(&self) -> ErrorClass {
        match self {
            Self::Driver(status) => class(status, true),
            // The driver was not called, and its last answer stands.
            Self::InTree | Self::Secret(_) | Self::AccessMode(_) => ErrorClass::Uncertain,
        }
    }

    /// Whether the driver reports that the size is infeasible.
    pub(super) fn is_infeasible(&self) -> bool {
        matches!(self.code(), Some(Code::InvalidArgument | Code::OutOfRange | Code::NotFound))
    }

    /// Whether the driver waits until the volume is not in use.
    pub(super) fn is_in_use(&self) -> bool {
        self.code() == Some(Code::FailedPrecondition)
    }

    fn code(&self) -> Option<Code> {
        match self {
            Self::Driver(status) => Some(status.code()),
            _ => None,
        }
    }
}

impl From<Status> for ExpandRefusal {
    fn from(status: Status) -> Self {
        Self::Driver(Box::new(status))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_tell_what_to_expect() {
        let uncertain = [
            Code::Cancelled,
            Code::DeadlineExceeded,
            Code::Unavailable,
            Code::ResourceExhausted,
            Code::Aborted,
        ];
        let infeasible = [Code::InvalidArgument, Code::OutOfRange, Code::NotFound];
        for number in 1..=16 {
            let code = Code::from_i32(number);
            let refusal = ExpandRefusal::from(Status::new(code, "no"));
            let certain = refusal.class() == ErrorClass::Final;
            assert_eq!(certain, !uncertain.contains(&code), "{code:?}");
            assert_eq!(refusal.is_infeasible(), infeasible.contains(&code), "{code:?}");
            assert_eq!(refusal.is_in_use(), code == Code::FailedPrecondition, "{code:?}");
        }
        assert_eq!(ExpandRefusal::InTree.class(), ErrorClass::Uncertain);
        assert!(!ExpandRefusal::InTree.is_answer());
        assert!(ExpandRefusal::from(Status::internal("no")).is_answer());
    }
}
