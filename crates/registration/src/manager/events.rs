use std::path::PathBuf;

use jiff::Timestamp;
use serde::Serialize;

/// An event in the life of a plugin.
#[derive(Clone, Debug, Serialize)]
pub struct PluginEvent {
    /// Time of the event.
    pub at: Timestamp,
    /// The registration socket.
    pub socket: PathBuf,
    /// The plugin's name, once known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Kind of the event.
    #[serde(flatten)]
    pub kind: EventKind,
}

/// Kinds of events, in the order of a life.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "camelCase")]
pub enum EventKind {
    /// Its socket was made, or made again.
    Seen,
    /// It answered `GetInfo`, and its handler accepted it.
    Validated,
    /// Its handler registered it, and it was notified.
    Registered,
    /// A registration failed; a retry follows.
    Failed {
        /// The error, as the plugin was notified of it where that was possible.
        error: String,
    },
    /// Its handler deregistered it.
    Deregistered,
    /// Its socket was removed.
    Gone,
}
