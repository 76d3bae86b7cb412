//! Why a volume did not grow, in the words that people find in events.

use tonic::{Code, Status};
use wharf_cluster::ApiFailure;
use wharf_csi::{ErrorClass, class};
use wharf_facts::access_mode::AccessModeError;
use wharf_uds::code_name;

use crate::secret::SecretFailure;

/// Why a claim is not as large as it is to be.
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
    Grow { volume: String, driver: String, source: Refusal },
    #[error(
        "resizing failed in controller with {refusal} but failed to update PVC {claim} with: {source}"
    )]
    Save { claim: String, refusal: String, source: ApiFailure },
    #[error("error updating pv {volume:?} by resizer: {source}")]
    Resized { volume: String, source: ApiFailure },
    #[error("marking pvc {claim:?} as resized failed: {source}")]
    Finish { claim: String, source: ApiFailure },
}

/// Why the driver did not grow a volume.
#[derive(Debug, thiserror::Error)]
pub(super) enum Refusal {
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
    /// Whether people are told. What was not even begun is between us and the API.
    pub(super) fn is_told(&self) -> bool {
        !matches!(self, Self::Settle { .. } | Self::Begin { .. })
    }

    /// Whether there is nothing left to do it for.
    pub(super) fn is_gone(&self) -> bool {
        matches!(
            self,
            Self::Begin { source: ApiFailure::NotFound { .. }, .. }
                | Self::Finish { source: ApiFailure::NotFound { .. }, .. }
                | Self::Save { source: ApiFailure::NotFound { .. }, .. }
        )
    }
}

impl Refusal {
    /// Whether the driver said so. Other refusals come before the call, and say nothing about earlier calls.
    pub(super) fn is_answer(&self) -> bool {
        matches!(self, Self::Driver(_))
    }

    /// What it says about work that was begun.
    pub(super) fn class(&self) -> ErrorClass {
        match self {
            Self::Driver(status) => class(status, true),
            // The driver was not asked, and what it said before stands.
            Self::InTree | Self::Secret(_) | Self::AccessMode(_) => ErrorClass::Uncertain,
        }
    }

    /// Whether the driver will say no again.
    pub(super) fn is_infeasible(&self) -> bool {
        matches!(self.code(), Some(Code::InvalidArgument | Code::OutOfRange | Code::NotFound))
    }

    /// Whether the driver waits for the volume not to be in use.
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

impl From<Status> for Refusal {
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
            let refusal = Refusal::from(Status::new(code, "no"));
            let certain = refusal.class() == ErrorClass::Final;
            assert_eq!(certain, !uncertain.contains(&code), "{code:?}");
            assert_eq!(refusal.is_infeasible(), infeasible.contains(&code), "{code:?}");
            assert_eq!(refusal.is_in_use(), code == Code::FailedPrecondition, "{code:?}");
        }
        assert_eq!(Refusal::InTree.class(), ErrorClass::Uncertain);
        assert!(!Refusal::InTree.is_answer());
        assert!(Refusal::from(Status::internal("no")).is_answer());
    }
}
