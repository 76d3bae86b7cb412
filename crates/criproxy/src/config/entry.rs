//! One file of the folder, with its last good version. No I/O.

use std::{collections::BTreeSet, sync::Arc};

use tokio::time::Instant;

use super::{
    Effect, FileError, FileState, FileWarning, Server, ServerStatus,
    catalog::{News, server_name},
    file::{parse, refusing_points},
    folder::Reading,
};
use crate::HookPoint;

#[derive(Debug)]
pub(super) struct Entry {
    pub(super) presence: Presence,
    /// The last reading; `None` for a version kept from before a restart.
    pub(super) reading: Option<Reading>,
    /// The state of the last reading.
    pub(super) state: FileState,
    error: Option<FileError>,
    pub(super) good: Option<GoodVersion>,
    /// Hooks whose calls fail while there is no good version.
    refusing: BTreeSet<HookPoint>,
}

#[derive(Debug)]
pub(super) enum Presence {
    There,
    /// Deleted at this time. Its server is still in force.
    Leaving(Instant),
    /// Deleted, and required.
    Gone,
}

#[derive(Clone, Debug)]
pub(super) struct GoodVersion {
    pub(super) server: Arc<Server>,
    pub(super) text: Arc<[u8]>,
}

impl Entry {
    /// A version kept from before a restart, before the folder is read.
    pub(super) fn kept(good: GoodVersion) -> Self {
        Self {
            presence: Presence::There,
            reading: None,
            state: FileState::Missing,
            error: None,
            good: Some(good),
            refusing: BTreeSet::new(),
        }
    }

    /// A file as it was read, with its last good version.
    pub(super) fn read(
        name: &str,
        reading: Reading,
        good: Option<GoodVersion>,
    ) -> (Self, Vec<FileWarning>) {
        let mut entry = Self {
            presence: Presence::There,
            reading: None,
            state: FileState::Loaded,
            error: None,
            good,
            refusing: BTreeSet::new(),
        };
        let parsed = match &reading.fault {
            Some(fault) => Err(fault.clone()),
            None if reading.text.trim_ascii().is_empty() => {
                entry.state = FileState::Empty;
                entry.reading = Some(reading);
                return (entry, Vec::new());
            }
            None => parse(name, &reading.text),
        };
        let warnings = match parsed {
            Ok((server, warnings)) => {
                let (server, text) = (Arc::new(server), reading.text.as_slice().into());
                entry.good = Some(GoodVersion { server, text });
                warnings
            }
            Err(error) => {
                entry.state = FileState::Refused;
                entry.error = Some(error);
                entry.refusing = refusing_points(&reading.text);
                Vec::new()
            }
        };
        entry.reading = Some(reading);
        (entry, warnings)
    }

    pub(super) fn news(&self, name: &str, flagged: bool, warnings: Vec<FileWarning>) -> News {
        let name = name.to_owned();
        match (self.state, &self.good, &self.error) {
            (FileState::Loaded, Some(good), _) => {
                News::Loaded { server: good.server.clone(), warnings }
            }
            (_, _, Some(error)) => {
                News::Refused { name, error: error.clone(), effect: self.effect(flagged) }
            }
            _ => News::Empty { name },
        }
    }

    /// Whether its file is there, and refused.
    pub(super) fn is_at_fault(&self) -> bool {
        matches!(self.presence, Presence::There) && self.error.is_some()
    }

    /// Whether its last good version says that it is required.
    pub(super) fn says_required(&self) -> bool {
        self.good.as_ref().is_some_and(|good| good.server.required)
    }

    /// The effect on calls; `flagged` if the server must have a file, whatever the file says.
    pub(super) fn effect(&self, flagged: bool) -> Effect {
        match (&self.presence, self.state, &self.good) {
            (Presence::Gone, ..) => Effect::Refusing,
            (_, FileState::Loaded, _) => Effect::Asked,
            (_, _, Some(_)) => Effect::AskedAsBefore,
            (_, _, None) if flagged || !self.refusing.is_empty() => Effect::Refusing,
            (_, _, None) => Effect::NotAsked,
        }
    }

    /// The hooks whose calls are refused, if calls are refused.
    pub(super) fn refused_points(&self, flagged: bool) -> BTreeSet<HookPoint> {
        match &self.good {
            Some(good) => good.server.hooks.keys().copied().filter(|it| it.is_before()).collect(),
            None if flagged => before_calls().collect(),
            None => self.refusing.clone(),
        }
    }

    /// The fault of the file, and the remedy.
    pub(super) fn fault(&self, file: &str) -> Option<String> {
        let server = server_name(file);
        match (&self.presence, self.state, &self.error) {
            (Presence::Gone, ..) => Some(format!(
                "it is required, and its file was deleted: put the file back, or run `wharf proxy \
                 forget {server}`"
            )),
            (_, _, Some(error)) => Some(error.to_string()),
            (_, FileState::Empty, _) => Some("its content is waited for".to_owned()),
            _ => None,
        }
    }

    pub(super) fn status(&self, file: &str, flagged: bool) -> ServerStatus {
        let server = self.good.as_ref().map(|good| &good.server);
        let hooks = server.iter().flat_map(|server| &server.hooks);
        let state = match self.presence {
            Presence::There => self.state,
            Presence::Leaving(_) | Presence::Gone => FileState::Missing,
        };
        ServerStatus {
            name: server_name(file).to_owned(),
            file: file.to_owned(),
            state,
            effect: self.effect(flagged),
            endpoint: server.map(|server| server.endpoint.clone()),
            required: flagged || self.says_required(),
            hooks: hooks
                .map(|(point, policy)| (point.name().to_owned(), policy.name().to_owned()))
                .collect(),
            error: self.fault(file),
        }
    }
}

/// The hooks before a call, at which it can still be refused.
pub(super) fn before_calls() -> impl Iterator<Item = HookPoint> {
    HookPoint::ALL.into_iter().filter(|point| point.is_before())
}
