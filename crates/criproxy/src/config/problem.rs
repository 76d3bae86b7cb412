//! What can be said of a file.

use std::fmt;

use crate::HookPoint;

/// Why a file is no server.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum FileError {
    /// It is no JSON, or a key has a value that it cannot have.
    #[error("{0}")]
    Invalid(String),
    /// The one key that is needed is not there.
    #[error("remote-endpoint is missing: expected the path of the hook server's socket")]
    NoEndpoint,
    /// It is too big to be read.
    #[error("more than {} KiB: expected a small JSON object", limit / 1024)]
    TooBig {
        /// How many bytes are read.
        limit: u64,
    },
    /// Others could change it.
    #[error("{0}")]
    Untrusted(String),
    /// Something else is in its place. Only what is not there at all counts as deleted.
    #[error("it is {0}: expected a file; remove it if the hook server is to go")]
    NoFile(&'static str),
    /// It could not be read.
    #[error("cannot be read: {0}")]
    Unreadable(String),
}

/// Something of a valid file that its author should know.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FileWarning {
    /// A key that is not known here. It may be known to another version, so nothing is made of it
    /// but by those who check.
    UnknownKey(String),
    /// A key that is there more than once.
    RepeatedKey(&'static str),
    /// A hook that is not known here: never asked for.
    UnknownHook(String),
    /// A policy for a hook that the server is not asked at.
    IdlePolicy(HookPoint),
    /// The server is never asked.
    NoHooks,
    /// The file must be there, and yet its server is only compared.
    RequiredDryRun,
    /// The file must be there, and yet pods run without an answer of its server.
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
