//! The state of each hook server, for people and probes.

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

use crate::events::EventsState;

/// The state of a hook server's file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileState {
    /// Valid, and in force.
    Loaded,
    /// Invalid, or not trusted.
    Refused,
    /// Empty: waiting for its content.
    Empty,
    /// Not in the folder.
    Missing,
    /// Not in the folder, and `wharf proxy forget` was called.
    Forgotten,
}

/// The effect of a hook server's state on the kubelet's calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Effect {
    /// The server is asked as its file says.
    Asked,
    /// The server is asked as the last good version of its file says.
    AskedAsBefore,
    /// Calls are refused.
    Refusing,
    /// The server is not asked.
    NotAsked,
}

/// A hook server as `wharf proxy status` shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ServerStatus {
    /// The name of its file without `.json`.
    pub name: String,
    /// The name of its file.
    pub file: String,
    /// The state of its file.
    pub state: FileState,
    /// The effect on the kubelet's calls.
    pub effect: Effect,
    /// Its socket, as far as that is known.
    pub endpoint: Option<PathBuf>,
    /// Whether its file must be there.
    pub required: bool,
    /// The hooks that it is asked at, with the failure policy of each.
    pub hooks: BTreeMap<String, String>,
    /// The fault of its file, or of the server itself.
    pub error: Option<String>,
}

impl ServerStatus {
    /// Whether the operator has to act on the file.
    pub fn is_problem(&self) -> bool {
        self.state == FileState::Refused || self.effect == Effect::Refusing
    }
}

/// All hook servers, and the faults of their folders.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ConfigStatus {
    /// The servers, by file name.
    pub servers: Vec<ServerStatus>,
    /// Faults of the folders.
    pub faults: Vec<String>,
    /// Whether the runtime reports ends of containers.
    #[serde(default, rename = "containerEvents")]
    pub container_events: EventsState,
}

impl ConfigStatus {
    /// Each problem that needs the operator, as a sentence.
    pub fn problems(&self) -> Vec<String> {
        let servers = self.servers.iter().filter(|server| server.is_problem());
        servers.map(ToString::to_string).chain(self.faults.iter().cloned()).collect()
    }
}

impl fmt::Display for ServerStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, state, effect, error, .. } = self;
        write!(f, "hook server file {file} is {state}")?;
        if let Some(error) = error {
            write!(f, ": {error}")?;
        }
        match effect {
            Effect::Asked => Ok(()),
            Effect::AskedAsBefore => f.write_str("; its last good version is in force"),
            Effect::Refusing => f.write_str("; calls are refused"),
            Effect::NotAsked => f.write_str("; its server is not asked"),
        }
    }
}

impl fmt::Display for FileState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Loaded => "loaded",
            Self::Refused => "refused",
            Self::Empty => "empty",
            Self::Missing => "missing",
            Self::Forgotten => "forgotten",
        })
    }
}

impl fmt::Display for Effect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Asked => "asked",
            Self::AskedAsBefore => "asked as before",
            Self::Refusing => "calls refused",
            Self::NotAsked => "not asked",
        })
    }
}
