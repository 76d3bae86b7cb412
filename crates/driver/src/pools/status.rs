//! The status of pools, for operators.

use std::{collections::BTreeSet, fmt, path::PathBuf};

use serde::{Deserialize, Serialize};

use super::{Pools, Slot, SlotState, damaged_note};

/// Status of a configured or noted pool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolStatus {
    /// Name of the pool.
    pub name: String,
    /// Folder of the pool.
    pub folder: PathBuf,
    /// UUID, if known.
    pub uuid: Option<String>,
    /// Kinds of volumes that may be created; empty if unknown.
    pub kinds: String,
    /// Whether the pool is served.
    pub state: PoolState,
}

/// Whether a pool is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PoolState {
    /// Served.
    Served,
    /// Served, but takes no new volumes.
    Draining,
    /// Served until none of its volumes is in use, since it is no longer configured.
    Leaving,
    /// Configured but not served, for this reason.
    Absent(String),
    /// Served earlier, but not configured.
    Unconfigured,
}

impl PoolStatus {
    /// Whether `meant` is the name or UUID of the pool.
    pub fn is(&self, meant: &str) -> bool {
        self.name == meant || self.uuid.as_deref() == Some(meant)
    }
}

impl fmt::Display for PoolStatus {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "pool {} ", self.name)?;
        match &self.state {
            PoolState::Served => out.write_str("is served"),
            PoolState::Draining => out.write_str("is served and takes no new volumes"),
            PoolState::Leaving => {
                out.write_str("is no longer configured, and served until its volumes are unstaged")
            }
            PoolState::Absent(reason) => write!(out, "is not served: {reason}"),
            PoolState::Unconfigured => write!(
                out,
                "is not configured: configure it with its folder {}, or run `wharf driver pool forget {}`",
                self.folder.display(),
                self.name
            ),
        }
    }
}

impl Pools {
    /// Returns the status of all configured or noted pools, by name.
    pub fn status(&self) -> Vec<PoolStatus> {
        let notes = self.state_dir.notes();
        let mut names = BTreeSet::new();
        let mut all = Vec::new();
        // Collect the slots first: a disk that hangs must not be queried under their lock.
        let look = |(name, slot): (&String, &Slot)| {
            names.insert(name.clone());
            let is_leaving = slot.leaving.is_some();
            let known = match &slot.state {
                SlotState::Served(served) => Ok((served.clone(), is_leaving)),
                SlotState::Absent(absence) => Err(absence.reason.clone()),
            };
            (slot.config.clone(), known)
        };
        let slots: Vec<_> = self.slots().iter().map(look).collect();
        for (config, known) in slots {
            let (uuid, state) = match known {
                Err(reason) => {
                    (notes.get(&config.name).map(|note| note.pool), PoolState::Absent(reason))
                }
                Ok((served, is_leaving)) => {
                    let draining = served.pool.settings().drain;
                    let state = match (served.pool.ensure_present(), is_leaving) {
                        (Err(error), _) => PoolState::Absent(error.to_string()),
                        (Ok(()), true) => PoolState::Leaving,
                        (Ok(()), false) if draining => PoolState::Draining,
                        (Ok(()), false) => PoolState::Served,
                    };
                    (Some(served.pool.id()), state)
                }
            };
            all.push(PoolStatus {
                name: config.name,
                folder: config.folder,
                uuid: uuid.map(|id| id.to_string()),
                kinds: config.settings.kinds.to_string(),
                state,
            });
        }
        let unconfigured = notes.into_iter().filter(|(name, _)| !names.contains(name));
        all.extend(unconfigured.map(|(name, note)| PoolStatus {
            name,
            folder: note.folder,
            uuid: Some(note.pool.to_string()),
            kinds: String::new(),
            state: PoolState::Unconfigured,
        }));
        let damaged = self.state_dir.damaged().into_iter();
        let damaged = damaged.filter(|(name, _)| !names.contains(name));
        all.extend(damaged.map(|(name, reason)| PoolStatus {
            state: PoolState::Absent(damaged_note(&name, &reason).reason),
            name,
            folder: PathBuf::new(),
            uuid: None,
            kinds: String::new(),
        }));
        all.sort_by(|one, other| one.name.cmp(&other.name));
        all
    }

    /// Returns the configured pools, and whether each is served.
    pub fn configured(&self) -> Vec<(String, bool)> {
        let slots = self.slots();
        slots.iter().map(|(name, slot)| (name.clone(), slot.served().is_some())).collect()
    }

    /// Returns the reasons why configured pools are not served.
    pub fn absences(&self) -> Vec<String> {
        let slots = self.slots();
        let absences = slots.iter().filter_map(|(name, slot)| match &slot.state {
            SlotState::Absent(absence) => Some(absence.error(name).to_string()),
            SlotState::Served(_) => None,
        });
        absences.collect()
    }
}
