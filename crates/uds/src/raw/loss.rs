//! How a call ends whose server went away.

use std::path::Path;

use h2::Reason;
use tonic::Status;

use crate::chain::Chain;

/// What the caller is told.
#[derive(Debug)]
pub(super) enum Loss {
    /// What the server did.
    Reset(Reason),
    /// That the connection to the server was lost.
    Status(Status),
}

impl Loss {
    /// What `error` of the server at `path` comes to, for an answer that has `begun` or not.
    pub(super) fn of(error: &h2::Error, begun: bool, path: &Path) -> Loss {
        if error.is_reset() {
            return Loss::Reset(reset_code(error));
        }
        let in_order = error.is_remote() && error.reason() == Some(Reason::NO_ERROR);
        if in_order && !begun {
            // The server closed in good order and has not looked at this call.
            return Loss::Reset(Reason::REFUSED_STREAM);
        }
        let text = format!("connection to {} was lost: {}", path.display(), Chain(error));
        Loss::Status(Status::unavailable(text))
    }
}

/// The code of the reset that `error` stands for; whoever is gone has cancelled.
pub(super) fn reset_code(error: &h2::Error) -> Reason {
    error.reason().unwrap_or(Reason::CANCEL)
}
