//! Changes the set of pools while the driver runs.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError},
    time::Duration,
};

use super::{Leaving, Pools, Slot, SlotState, opening::Opening};
use crate::{
    config::{self, ConfigError, PoolConfig},
    error::Error,
    state_dir::Note,
};

/// Maximum wait of `adopt`, a little less than its caller's timeout.
const ADOPT_WAIT: Duration = Duration::from_secs(590);
/// Maximum wait of `forget`.
const FORGET_WAIT: Duration = Duration::from_secs(25);

impl Pools {
    /// Applies a new configuration: opens new pools, changes settings, and closes removed pools
    /// once none of their volumes is in use. Blocks, but waits at most a few seconds for a disk.
    ///
    /// # Errors
    /// If the pools conflict; then nothing changes.
    pub fn apply(self: &Arc<Self>, configs: Vec<PoolConfig>) -> Result<(), ConfigError> {
        config::check(&configs)?;
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let names: BTreeSet<_> = configs.iter().map(|config| config.name.clone()).collect();
        self.names.write().unwrap_or_else(PoisonError::into_inner).clone_from(&names);
        for (name, slot) in self.slots_mut().iter_mut() {
            let moved =
                configs.iter().find(|it| it.name == *name && it.folder != slot.config.folder);
            slot.leaving = match moved {
                Some(config) => Some(Leaving::Moving(Box::new(config.clone()))),
                None if names.contains(name) => None,
                None => Some(Leaving::Removed),
            };
        }
        self.close_leaving();
        let missing = configs.into_iter().filter_map(|config| self.configure(config)).collect();
        self.open_all(missing);
        self.forget_old_names();
        self.changed.notify_one();
        Ok(())
    }

    /// Retries to open pools that are not served, and to close pools that are no longer configured.
    /// Blocks.
    pub fn retry(self: &Arc<Self>) {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut missing: Vec<_> =
            self.close_leaving().into_iter().filter_map(|config| self.configure(config)).collect();
        let absent = |slot: &&Slot| slot.served().is_none() && slot.leaving.is_none();
        for slot in self.slots().values().filter(absent) {
            if !missing.iter().any(|config| config.name == slot.config.name) {
                missing.push(slot.config.clone());
            }
        }
        self.open_all(missing);
        self.forget_old_names();
    }

    /// Serves the pool in the folder of a pool that is not served, and replaces its note. Volumes
    /// of the lost pool are treated as deleted.
    ///
    /// # Errors
    /// If no such pool is configured, it is served, or its folder cannot be used.
    pub fn adopt(self: &Arc<Self>, name: &str) -> Result<String, Error> {
        let opening = {
            let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
            self.open_without_note(self.absent_config(name)?)?
        };
        self.await_adopted(&opening, ADOPT_WAIT)
    }

    /// Begins to open a pool as if it had never been served. Its note is replaced once it is open.
    fn open_without_note(self: &Arc<Self>, config: PoolConfig) -> Result<Arc<Opening>, Error> {
        let name = config.name.clone();
        match self.start_opening(config, None) {
            Some(opening) => Ok(opening),
            None => Err(self.refuse_absent(&name)),
        }
    }

    fn await_adopted(&self, opening: &Opening, limit: Duration) -> Result<String, Error> {
        opening.wait_for(limit, Duration::ZERO);
        let name = &opening.config.name;
        match self.slots().get(name).and_then(Slot::served) {
            Some(served) => {
                let what = match opening.was_empty() {
                    true => "an empty pool",
                    false => "the pool that was there",
                };
                Ok(format!("pool {name} is now {what}, {}", served.pool.id()))
            }
            None => Err(self.refuse_absent(name)),
        }
    }

    /// Returns why a pool is not served.
    fn refuse_absent(&self, name: &str) -> Error {
        match self.slots().get(name).map(|slot| &slot.state) {
            Some(SlotState::Absent(absence)) => absence.error(name),
            _ => Error::NoPool(name.to_owned()),
        }
    }

    /// Forgets a pool that is not served: its volumes are treated as deleted. A pool that is still
    /// configured is then served as a new one.
    ///
    /// # Errors
    /// If the pool is served, or unknown.
    pub fn forget(self: &Arc<Self>, name: &str) -> Result<String, Error> {
        let is_configured = || self.slots().contains_key(name);
        let (note, was_configured) = (self.state_dir.note(name), is_configured());
        let is_noted = note.is_some() || self.state_dir.damaged().contains_key(name);
        // Wait for disks before taking the lock, which blocks all changes of pools.
        let attached = match is_noted && !was_configured {
            true => self.attached_of_in_time(note.clone())?,
            false => None,
        };
        let alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if is_configured() {
            let config = self.absent_config(name)?;
            if self.is_opened_in(&config.folder) {
                return Err(self.refuse_absent(name));
            }
            self.state_dir.remove(name)?;
            let opening = self.open_without_note(config)?;
            drop(alone);
            return self.await_adopted(&opening, FORGET_WAIT);
        }
        if was_configured || self.state_dir.note(name) != note {
            let text = format!("pool {name} was opened or closed meanwhile: call again");
            return Err(Error::Pending(text));
        }
        if note.is_none() && !self.state_dir.damaged().contains_key(name) {
            return Err(Error::NoPool(name.to_owned()));
        }
        if let Some(device) = attached {
            return Err(Error::Precondition(format!(
                "a volume of pool {name} is in use on {}: delete the pods that use its volumes first",
                device.path.display()
            )));
        }
        self.state_dir.remove(name)?;
        let uuid = note.map_or("whose note was damaged".to_owned(), |note| note.pool.to_string());
        Ok(format!("pool {name}, {uuid}, is forgotten"))
    }

    /// Starts or stops draining a pool. The setting survives restarts.
    ///
    /// # Errors
    /// If the pool is not served, or the note cannot be written.
    pub fn drain(&self, name: &str, drain: bool) -> Result<String, Error> {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let slots = self.slots();
        let slot = slots.get(name).ok_or_else(|| Error::NoPool(name.to_owned()))?;
        let served = match &slot.state {
            SlotState::Served(served) => served,
            SlotState::Absent(absence) => return Err(absence.error(name)),
        };
        if slot.config.settings.drain && !drain {
            return Err(Error::Precondition(format!(
                "pool {name} is drained by its configuration: remove `drain: true` there"
            )));
        }
        let (pool, folder) = (served.pool.id(), slot.config.folder.clone());
        let older = self.state_dir.note(name).map(|note| note.older).unwrap_or_default();
        self.state_dir.keep(name, Note { pool, folder, drain, older })?;
        served.pool.change_settings(|settings| settings.drain = drain);
        let (volumes, snapshots) =
            served.pool.store().read(|state| (state.volumes.len(), state.snapshots.len()));
        Ok(match drain {
            true => format!(
                "pool {name} takes no new volumes; it holds {volumes} volumes and {snapshots} snapshots"
            ),
            false => format!("pool {name} takes new volumes"),
        })
    }

    /// Applies a pool's configuration to its slot. Returns the configuration if the pool must be
    /// opened.
    fn configure(&self, config: PoolConfig) -> Option<PoolConfig> {
        if let Some(slot) = self.slots_mut().get_mut(&config.name) {
            if slot.leaving.is_some() {
                tracing::warn!(
                    pool = config.name,
                    "volumes in use, moving pool when they are unstaged"
                );
                return None;
            }
            if let SlotState::Served(served) = &slot.state {
                let noted = self.state_dir.note(&config.name).is_some_and(|note| note.drain);
                let mut settings = config.settings;
                settings.drain |= noted;
                if served.pool.settings() != settings {
                    tracing::info!(pool = config.name, ?settings, "changed pool settings");
                }
                served.pool.change_settings(|current| *current = settings);
                slot.config = config;
                return None;
            }
        }
        self.ensure_slot(&config);
        Some(config)
    }

    fn absent_config(&self, name: &str) -> Result<PoolConfig, Error> {
        match self.slots().get(name) {
            None => Err(Error::NoPool(name.to_owned())),
            Some(Slot { state: SlotState::Served(_), .. }) => Err(Error::Precondition(format!(
                "pool {name} is served: there is nothing to adopt or to forget"
            ))),
            Some(slot) => Ok(slot.config.clone()),
        }
    }
}
