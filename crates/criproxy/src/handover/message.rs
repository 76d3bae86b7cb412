//! What two processes say to each other while one takes over from the other: one line of JSON each.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use super::scope::Scope;
use crate::record::Entry;

/// The version of this conversation.
pub(crate) const PROTOCOL: u32 = 1;

/// The first line, from the old process. The sockets come before it, in their order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Hello {
    /// The version of the conversation.
    pub protocol: u32,
    /// The sockets that come along.
    pub sockets: Vec<PassedSocket>,
}

impl Hello {
    /// That of a process that passes these on.
    pub fn new(sockets: Vec<PassedSocket>) -> Self {
        Self { protocol: PROTOCOL, sockets }
    }
}

/// A socket that is passed on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PassedSocket {
    /// The socket of the runtime interface.
    Runtime(PassedFile),
    /// The socket of questions to the proxy.
    Control(PassedFile),
    /// The socket of the HTTP endpoint, and the address as the flag has it.
    Http {
        /// The flag's value.
        address: String,
    },
}

/// The file of a socket that is passed on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PassedFile {
    /// Its path.
    pub path: PathBuf,
    /// The filesystem that it is on.
    pub device: u64,
    /// Its inode number there.
    pub inode: u64,
    /// Whether whoever serves it removes it in the end.
    pub remove: bool,
}

/// What the old process says after its first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromOld {
    /// A call that is under way here, about which it answers itself.
    Busy { call: u64, scope: Scope },
    /// The last good version of a hook server file, which may not be in the state folder.
    Version { file: String, text: String },
    /// A required hook server that was forgotten.
    Forgotten(String),
    /// What is known of a pod or container.
    Record(Entry),
    /// That was all.
    All,
    /// The sockets and the records are yours.
    Yours,
    /// A call under way has ended, and has changed these.
    Ended { call: u64, records: Vec<Entry> },
    /// The hand-over is called off.
    Abort(String),
}

/// What the new process says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FromNew {
    /// It could serve, and waits for the records.
    Ready { protocol: u32 },
    /// It has the records.
    Loaded,
    /// It serves.
    Serving,
    /// It has the records of a call that has ended.
    Noted { call: u64 },
    /// It cannot take over.
    Failed(String),
    /// End your streams, finish your calls, and go.
    Leave,
}
