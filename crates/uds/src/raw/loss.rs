//! How a call ends when its server is lost.

use std::path::Path;

use h2::Reason;
use tonic::Status;

use crate::chain::Chain;

/// The end that the caller sees.
#[derive(Debug)]
pub(super) enum Loss {
    /// The reset that the server sent.
    Reset(Reason),
    /// A status: the connection to the server was lost.
    Status(Status),
}

impl Loss {
    /// The end that `error` of the server at `path` means, for an answer that has `begun` or not.
    pub(super) fn of(error: &h2::Error, begun: bool, path: &Path) -> Self {
        if error.is_reset() {
            return Self::Reset(reset_code(error));
        }
        let in_order = error.is_remote() && error.reason() == Some(Reason::NO_ERROR);
        if in_order && !begun {
            // The server sent GOAWAY and did not process this call.
            return Self::Reset(Reason::REFUSED_STREAM);
        }
        let text = format!("connection to {} was lost: {}", path.display(), Chain(error));
        Self::Status(Status::unavailable(text))
    }
}

/// The reset code of `error`; a lost connection counts as CANCEL.
pub(super) fn reset_code(error: &h2::Error) -> Reason {
    error.reason().unwrap_or(Reason::CANCEL)
}
