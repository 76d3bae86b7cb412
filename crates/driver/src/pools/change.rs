//! Changes of the set of pools while the driver runs.

use std::{
    collections::BTreeSet,
    sync::{Arc, PoisonError, Weak},
    time::{Duration, Instant},
};

use super::{Leaving, Pools, ServedPool, Slot, SlotState};
use crate::{
    config::{self, ConfigError, PoolConfig},
    error::Error,
    pool::{Layout, Pool, identity, identity::Found},
    pool_image,
    state_dir::Note,
};

/// How long the tasks of a pool may take to end. A pool that is held for longer is opened by a later attempt.
const CLOSE: Duration = Duration::from_secs(5);

impl Pools {
    /// Serves these pools from now on: opens new ones, changes settings, and closes those that are gone once none of their
    /// volumes is in use. Blocks.
    ///
    /// # Errors
    /// When they cannot be served beside each other; then nothing changes.
    pub fn apply(&self, configs: Vec<PoolConfig>) -> Result<(), ConfigError> {
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
        for config in configs {
            self.configure(config);
        }
        self.forget_old_names();
        self.changed.notify_one();
        Ok(())
    }

    /// Tries again to open pools that are not served, and to close those that are no longer configured. Blocks.
    pub fn retry(&self) {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        // A pool leaves once its records say that nothing is in use.
        self.served().iter().for_each(|served| served.node.record_undone_before());
        for config in self.close_leaving() {
            self.configure(config);
        }
        let absent: Vec<_> = self
            .slots()
            .values()
            .filter(|slot| slot.served().is_none() && slot.leaving.is_none())
            .map(|slot| slot.config.clone())
            .collect();
        for config in absent {
            let opened = self.open_noted(&config);
            self.fill_slot(config, opened);
        }
        self.forget_old_names();
    }

    /// Serves what is in the folder of a pool that is not served now; its note is replaced. Volumes of the lost pool are
    /// taken for gone.
    ///
    /// # Errors
    /// When no such pool is configured, it is served, or its folder cannot be used.
    pub fn adopt(&self, name: &str) -> Result<String, Error> {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        self.open_without_note(self.absent_config(name)?)
    }

    /// Opens a pool as if it had never been served. Its note is replaced once it is open.
    fn open_without_note(&self, config: PoolConfig) -> Result<String, Error> {
        let name = config.name.clone();
        let folder = pool_image::folder(&config.folder);
        let found = identity::look(&Layout::new(&folder));
        let opened = self.open_pool(&config, None);
        self.fill_slot(config, opened);
        let slots = self.slots();
        match slots.get(&name).map(|slot| &slot.state) {
            Some(SlotState::Served(served)) => {
                let id = served.pool.id();
                let what = match found {
                    Ok(Found::Nothing) => "an empty pool",
                    _ => "the pool that was there",
                };
                Ok(format!("pool {name} is now {what}, {id}"))
            }
            Some(SlotState::Absent(absence)) => Err(absence.error(&name)),
            None => Err(Error::NoPool(name.clone())),
        }
    }

    /// Forgets a pool that is not served: its volumes are taken for gone. A pool that is still configured is then served as
    /// a new one.
    ///
    /// # Errors
    /// When the pool is served, or not known.
    pub fn forget(&self, name: &str) -> Result<String, Error> {
        let _alone = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.slots().contains_key(name) {
            let config = self.absent_config(name)?;
            self.state_dir.remove(name)?;
            return self.open_without_note(config);
        }
        let note = self.state_dir.note(name);
        if note.is_none() && !self.state_dir.damaged().contains_key(name) {
            return Err(Error::NoPool(name.to_owned()));
        }
        if let Some(device) = self.attached_of(note.as_ref())? {
            return Err(Error::Precondition(format!(
                "a volume of pool {name} is in use on {}: delete the pods that use its volumes first",
                device.path.display()
            )));
        }
        self.state_dir.remove(name)?;
        let uuid = note.map_or("whose note was damaged".to_owned(), |note| note.pool.to_string());
        Ok(format!("pool {name}, {uuid}, is forgotten"))
    }

    /// Closes a pool to new volumes, or opens it to them again; kept over restarts.
    ///
    /// # Errors
    /// When the pool is not served, or the note cannot be kept.
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

    /// Brings one slot to its configuration.
    fn configure(&self, config: PoolConfig) {
        if let Some(slot) = self.slots_mut().get_mut(&config.name) {
            if slot.leaving.is_some() {
                tracing::warn!(
                    pool = config.name,
                    "volumes in use, pool moves when they are unstaged"
                );
                return;
            }
            if let SlotState::Served(served) = &slot.state {
                let noted = self.state_dir.note(&config.name).is_some_and(|note| note.drain);
                let mut settings = config.settings;
                settings.drain |= noted;
                if served.pool.settings() != settings {
                    tracing::info!(pool = config.name, ?settings, "pool settings changed");
                }
                served.pool.change_settings(|current| *current = settings);
                slot.config = config;
                return;
            }
        }
        let opened = self.open_noted(&config);
        self.fill_slot(config, opened);
    }

    /// Closes pools that are to be closed and that nobody uses. Returns what is to be opened in their place.
    fn close_leaving(&self) -> Vec<PoolConfig> {
        let (mut moved, mut closed, mut folders) = (Vec::new(), Vec::new(), Vec::new());
        self.slots_mut().retain(|name, slot| {
            let Some(leaving) = &slot.leaving else { return true };
            let stays = match &slot.state {
                SlotState::Absent(_) => false,
                SlotState::Served(served) if is_idle(served) => {
                    let _ = std::fs::remove_file(served.pool.layout().admin_socket());
                    tracing::info!(pool = name, "pool closed, no longer configured");
                    closed.push(Arc::downgrade(&served.pool));
                    false
                }
                SlotState::Served(served) => {
                    served.pool.change_settings(|settings| settings.drain = true);
                    true
                }
            };
            if !stays {
                folders.push((name.clone(), slot.config.folder.clone()));
                if let Leaving::Moving(config) = leaving {
                    moved.push(PoolConfig::clone(config));
                }
            }
            stays
        });
        if !closed.is_empty() {
            self.changed.notify_one();
            await_dropped(&closed);
        }
        for (name, folder) in folders {
            if let Err(error) = pool_image::close(&folder) {
                tracing::warn!(pool = name, %error, "failed to unmount the image of a closed pool, unmount it by hand");
            }
        }
        moved
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

/// Waits until the tasks of closed pools have ended: until then the driver itself holds the lock of the pool.
fn await_dropped(closed: &[Weak<Pool>]) {
    let deadline = Instant::now() + CLOSE;
    while closed.iter().any(|pool| pool.strong_count() > 0) && Instant::now() < deadline {
        std::thread::park_timeout(Duration::from_millis(10));
    }
}

/// Whether no call works on a pool, and none of its volumes is in use. Asked under the lock of the slots, without which
/// nobody gets at the pool.
fn is_idle(served: &Arc<ServedPool>) -> bool {
    Arc::strong_count(served) == 1 && !served.in_use()
}
