//! The servers in force, from the present and past files of the folder. No I/O.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use tokio::time::Instant;

use super::{
    Effect, FileError, FileState, FileWarning, Server, ServerStatus, Servers,
    entry::{Entry, GoodVersion, Presence, before_calls},
    file::parse,
    folder::Reading,
    server::Barred,
};

/// How long the server of a deleted file stays in force: editors and configuration tools delete a
/// file and write it again.
pub(super) const GRACE: Duration = Duration::from_secs(1);

/// The files of the folder, each with its last good version.
#[derive(Debug, Default)]
pub(super) struct Catalog {
    entries: BTreeMap<String, Entry>,
    /// Names of servers that must have a file, even if the file does not say `required`.
    required: BTreeSet<String>,
    /// Names of `required` that were forgotten, until their files are back.
    forgotten: BTreeSet<String>,
    folder_is_gone: bool,
}

/// A change of one file.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    Loaded {
        server: Arc<Server>,
        warnings: Vec<FileWarning>,
    },
    /// It is being written, or was left empty.
    Empty {
        name: String,
    },
    Refused {
        name: String,
        error: FileError,
        effect: Effect,
    },
    Removed {
        name: String,
    },
    /// It is required, and was deleted.
    Missing {
        name: String,
    },
}

/// The name of a hook server in flags and commands: that of its file without `.json`.
pub(super) fn server_name(file: &str) -> &str {
    file.strip_suffix(".json").unwrap_or(file)
}

impl Catalog {
    /// A catalog with the last good versions from before a restart, in which `required` servers
    /// must have a file.
    pub(super) fn new(required: BTreeSet<String>, kept: BTreeMap<String, Vec<u8>>) -> Self {
        let required = required.into_iter().map(|name| server_name(&name).to_owned()).collect();
        let mut entries = BTreeMap::new();
        for (name, text) in kept {
            // This release may not understand a version that another release kept.
            if let Ok((server, _)) = parse(&name, &text) {
                let good = GoodVersion { server: Arc::new(server), text: text.into() };
                entries.insert(name, Entry::kept(good));
            }
        }
        Self { entries, required, ..Self::default() }
    }

    /// Updates the catalog with the files that exist `now`, and returns the changes.
    pub(super) fn update(&mut self, files: BTreeMap<String, Reading>, now: Instant) -> Vec<News> {
        self.folder_is_gone = false;
        let mut news = self.miss(&files, now);
        for (name, reading) in files {
            self.forgotten.remove(server_name(&name));
            let known = self.entries.get_mut(&name);
            if let Some(entry) = known
                && entry.reading.as_ref() == Some(&reading)
                && !matches!(entry.presence, Presence::Gone)
            {
                entry.presence = Presence::There;
                continue;
            }
            let good = self.entries.remove(&name).and_then(|entry| entry.good);
            let (entry, warnings) = Entry::read(&name, reading, good);
            news.push(entry.news(&name, self.is_flagged(&name), warnings));
            self.entries.insert(name, entry);
        }
        news
    }

    /// Removes servers whose files were deleted long enough ago; required ones become missing.
    fn miss(&mut self, files: &BTreeMap<String, Reading>, now: Instant) -> Vec<News> {
        let mut news = Vec::new();
        let Self { entries, required, .. } = self;
        entries.retain(|name, entry| {
            if files.contains_key(name) {
                return true;
            }
            let is_required = entry.says_required() || required.contains(server_name(name));
            let is_over = match entry.presence {
                // It may have been missing long before this process started.
                Presence::There if is_required && entry.reading.is_none() => true,
                Presence::There => {
                    entry.presence = Presence::Leaving(now);
                    false
                }
                Presence::Leaving(since) => now.duration_since(since) >= GRACE,
                Presence::Gone => false,
            };
            if !is_over {
                return true;
            }
            let name = name.clone();
            if !is_required {
                news.push(News::Removed { name });
                return false;
            }
            entry.presence = Presence::Gone;
            news.push(News::Missing { name });
            true
        });
        news
    }

    /// Records that the folder was removed. Servers stay in force.
    pub(super) fn lose_folder(&mut self) {
        self.folder_is_gone = true;
        for entry in self.entries.values_mut() {
            if matches!(entry.presence, Presence::Leaving(_)) {
                entry.presence = Presence::There;
            }
        }
    }

    /// When the server of the next deleted file is removed.
    pub(super) fn next_deadline(&self) -> Option<Instant> {
        let leaving = self.entries.values().filter_map(|entry| match entry.presence {
            Presence::Leaving(since) => Some(since + GRACE),
            Presence::There | Presence::Gone => None,
        });
        leaving.min()
    }

    /// Whether a file is there, and refused.
    pub(super) fn is_at_fault(&self) -> bool {
        self.entries.values().any(Entry::is_at_fault)
    }

    /// Uses the last good version that another process has of a file, unless the file is good now.
    ///
    /// # Errors
    /// When it is no server to this release.
    pub(super) fn adopt(
        &mut self,
        name: String,
        text: Vec<u8>,
        now: Instant,
    ) -> Result<(), FileError> {
        let known = self.entries.get_mut(&name);
        if known.as_ref().is_some_and(|entry| entry.state == FileState::Loaded) {
            return Ok(());
        }
        let (server, _) = parse(&name, &text)?;
        let good = GoodVersion { server: Arc::new(server), text: text.into() };
        if let Some(entry) = known {
            entry.good = Some(good);
            return Ok(());
        }
        let mut entry = Entry::kept(good);
        if !self.folder_is_gone {
            let is_required = entry.says_required() || self.is_flagged(&name);
            entry.presence = if is_required { Presence::Gone } else { Presence::Leaving(now) };
        }
        self.entries.insert(name, entry);
        Ok(())
    }

    /// Stops requiring the file of a server, named by the server or by the file.
    ///
    /// # Errors
    /// When its file exists, or no such server is required.
    pub(super) fn forget(&mut self, server: &str) -> Result<String, String> {
        let server = server_name(server);
        let entry = self.entries.iter().find(|(file, _)| server_name(file) == server);
        if let Some((file, entry)) = entry {
            if matches!(entry.presence, Presence::There) && !self.folder_is_gone {
                return Err(format!(
                    "the file {file} of hook server {server} is there: remove it first"
                ));
            }
            let file = file.clone();
            self.entries.remove(&file);
        } else if !self.required.contains(server) {
            return Err(format!(
                "no hook server {server:?} is missing: `wharf proxy status` lists those that are"
            ));
        }
        if !self.required.contains(server) {
            return Ok(format!("hook server {server} is forgotten: pods run without it"));
        }
        self.forgotten.insert(server.to_owned());
        Ok(format!(
            "hook server {server} is forgotten: pods run without it until its file is back, or the \
             proxy starts again with --require-server {server}"
        ))
    }

    /// The servers in force, and missing required servers, for which calls are refused.
    pub(super) fn servers(&self) -> Servers {
        let mut servers = Vec::new();
        let mut barred = Vec::new();
        for (file, entry) in &self.entries {
            let flagged = self.is_flagged(file);
            match (entry.effect(flagged), &entry.good) {
                (Effect::Asked | Effect::AskedAsBefore, Some(good)) => {
                    servers.push(good.server.clone());
                }
                (Effect::Refusing, _) => {
                    let why = entry.fault(file).unwrap_or_default();
                    let points = entry.refused_points(flagged);
                    barred.push(Barred { name: file.clone(), points, why });
                }
                _ => {}
            }
        }
        for server in self.unknown() {
            let (name, points) = (format!("{server}.json"), before_calls().collect());
            barred.push(Barred { name, points, why: never_seen(server) });
        }
        Servers::new(servers).barring(barred)
    }

    /// The state of each server, for people.
    pub(super) fn status(&self) -> Vec<ServerStatus> {
        let known = self.entries.iter();
        let mut rows: Vec<_> =
            known.map(|(file, entry)| entry.status(file, self.is_flagged(file))).collect();
        let absent = |server: &String, state, effect, error| ServerStatus {
            name: server.clone(),
            file: format!("{server}.json"),
            state,
            effect,
            endpoint: None,
            required: true,
            hooks: BTreeMap::new(),
            error,
        };
        rows.extend(self.unknown().map(|server| {
            absent(server, FileState::Missing, Effect::Refusing, Some(never_seen(server)))
        }));
        rows.extend(
            self.forgotten
                .iter()
                .map(|server| absent(server, FileState::Forgotten, Effect::NotAsked, None)),
        );
        rows.sort_by(|a, b| a.file.cmp(&b.file));
        rows
    }

    /// The text of each last good version.
    pub(super) fn good_versions(&self) -> BTreeMap<String, Arc<[u8]>> {
        let good = |(name, entry): (&String, &Entry)| {
            Some((name.clone(), entry.good.as_ref()?.text.clone()))
        };
        self.entries.iter().filter_map(good).collect()
    }

    /// The number of files in each state.
    pub(super) fn counts(&self) -> [(&'static str, usize); 3] {
        let count = |state| self.entries.values().filter(|entry| entry.state == state).count();
        [
            ("loaded", count(FileState::Loaded)),
            ("empty", count(FileState::Empty)),
            ("refused", count(FileState::Refused)),
        ]
    }

    /// Required servers whose file was never seen, and that were not forgotten.
    fn unknown(&self) -> impl Iterator<Item = &String> {
        let is_known = |server: &str| self.entries.keys().any(|file| server_name(file) == server);
        self.required
            .iter()
            .filter(move |server| !self.forgotten.contains(*server) && !is_known(server))
    }

    /// Whether a server must have a file, even if the file does not say `required`.
    fn is_flagged(&self, file: &str) -> bool {
        self.required.contains(server_name(file))
    }
}

fn never_seen(server: &str) -> String {
    format!(
        "--require-server names it, and there is no file {server}.json: put it there, or run `wharf \
         proxy forget {server}`"
    )
}

#[cfg(test)]
mod tests;
