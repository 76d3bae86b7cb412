//! A hook's error.

use std::{error::Error, fmt};

use tonic::Status;

/// Why a hook fails. The server's failure policy decides whether the kubelet's call fails with this
/// text, or goes on as if the server had not been called.
///
/// Any error converts into it by `?`. For that it does not implement [`Error`] itself, like
/// `anyhow::Error`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal(String);

impl Refusal {
    /// A refusal with this text, which appears in an event of the pod.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl<E: Error> From<E> for Refusal {
    fn from(error: E) -> Self {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(error) = source {
            text.push_str(": ");
            text.push_str(&error.to_string());
            source = error.source();
        }
        Self(text)
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Self {
        Self::failed_precondition(refusal.0)
    }
}
