use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;

/// Something that happened to a plugin, for people and tests that follow along.
#[derive(Clone, Debug, Serialize)]
pub struct PluginEvent {
    /// When it happened.
    pub at: Timestamp,
    /// The registration socket.
    pub socket: PathBuf,
    /// The plugin's name, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// What happened.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// What may happen to a plugin, in the order of a life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "camelCase")]
pub enum EventKind {
    /// Its socket appeared, or was made anew.
    Seen,
    /// It answered and its handler accepts it.
    Validated,
    /// It is in use and was told so.
    Registered,
    /// An attempt failed; another one follows.
    Failed {
        /// What went wrong, as the plugin was told if it could be told.
        error: String,
    },
    /// Its handler took it out of use.
    Deregistered,
    /// Its socket is gone.
    Gone,
}
