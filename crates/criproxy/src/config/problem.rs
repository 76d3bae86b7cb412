//! Errors and warnings about a file.

use std::fmt;

use crate::HookPoint;

/// Why a file is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It is not JSON, or a key has an invalid value.
    #[error("{0}")]
    Invalid(String),
    /// The required key is missing.
    #[error("remote-endpoint is missing: expected the path of the hook server's socket")]
    NoEndpoint,
    /// It is too large.
    #[error("more than {} KiB: expected a small JSON object", limit / 1024)]
    TooBig {
        /// The limit in bytes.
        limit: u64,
    },
    /// Other users could change it.
    #[error("{0}")]
    Untrusted(String),
    /// It is not a file. Only a missing entry counts as deleted.
    #[error("it is {0}: expected a file; remove it if the hook server is to go")]
    NoFile(&'static str),
    /// It could not be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
}

/// A warning for the author of a valid file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileWarning {
    /// An unknown key. Another version may know it, so only `check` reports it.
    UnknownKey(String),
    /// A repeated key.
    RepeatedKey(&'static str),
    /// An unknown hook, which is never called.
    UnknownHook(String),
    /// A policy for a hook that the server is not asked at.
    IdlePolicy(HookPoint),
    /// The server is never asked.
    NoHooks,
    /// The file is required, but its server is in a dry run.
    RequiredDryRun,
    /// The file is required, but pods run without an answer of its server.
    RequiredAndIgnored,
}

impl fmt::Display for FileWarning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FileWarning::UnknownKey(key) => write!(f, "{key:?} is not a key that has a meaning"),
            FileWarning::RepeatedKey(key) => {
                write!(f, "{key} is there more than once: the last one counts")
            }
            FileWarning::UnknownHook(name) => {
                write!(
                    f,
                    "runtime-hooks: {name:?} is not a hook, and never called; expected {HookNames}"
                )
            }
            FileWarning::IdlePolicy(point) => write!(
                f,
                "failure-policies: {0} has no effect, since runtime-hooks does not name {0}",
                point.name()
            ),
            FileWarning::NoHooks => {
                f.write_str("runtime-hooks names no hook: the server is never asked")
            }
            FileWarning::RequiredDryRun => {
                f.write_str("required has no effect: a server with dry-run refuses nothing")
            }
            FileWarning::RequiredAndIgnored => f.write_str(
                "required is about the file: without \"failure-policy\": \"Fail\" pods run while \
                 the server does not answer",
            ),
        }
    }
}

/// The names of all hooks.
pub(super) struct HookNames;

impl fmt::Display for HookNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("one of")?;
        for (number, point) in HookPoint::ALL.iter().enumerate() {
            write!(f, "{} {}", if number == 0 { "" } else { "," }, point.name())?;
        }
        Ok(())
    }
}
