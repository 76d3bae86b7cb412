//! A hook's error.

use std::error::Error;
use std::fmt;

use tonic::Status;

/// Why a hook did not do what it was asked for. The server's failure policy decides what that means: the kubelet's call
/// fails with this text, or goes on as if the server had not been asked.
///
/// Any error becomes one by `?`. As with `anyhow::Error` that keeps it from being an [`Error`] itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl Refusal {
    /// A refusal with a text for people, who will read it in an event of the pod.
    pub fn new(text: impl Into<String>) -> Refusal {
        Refusal(text.into())
    }
}

impl<E: Error> From<E> for Refusal {
    fn from(error: E) -> Refusal {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        Refusal(text)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        Status::failed_precondition(refusal.0)
    }
}
