//! The pools of a driver: which are served, why others are not, and on which pool an object is.
//!
//! A pool is served if its folder has the pool that the driver noted ([`crate::state_dir`]), or if
//! there is no note yet. The driver retries to open a pool that is not served. Meanwhile its
//! objects are UNAVAILABLE, since they may exist, and all other pools work.

mod attach_limit;
mod change;
mod close;
mod folders;
mod foreign;
mod open;
mod opening;
mod orphan;
mod status;
mod supervise;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard},
    time::Duration,
};

use tokio::sync::{Notify, Semaphore};
use wharf_csi_sdk::fault::FaultPlan;

use attach_limit::Attaching;
use folders::ResolvedFolders;
use opening::Opening;
pub use status::{PoolState, PoolStatus};

use crate::{
    config::{DEFAULT_POOL, PoolConfig},
    error::Error,
    node::{InlineCalls, InlineLimits, NodeOptions, NodeVolumes},
    pool::{ImageLocks, Pool, PoolId, identity::short_of},
    record::Phase,
    state_dir::{Note, StateDir},
    store::State,
};

/// Options of all pools of a driver.
#[derive(Clone, Debug)]
pub struct PoolsOptions {
    /// ID of the node.
    pub node_id: String,
    /// Options of the node side.
    pub node: NodeOptions,
    /// Maximum time for which a filesystem may be frozen for a copy.
    pub freeze_limit: Duration,
    /// Fault plan of tests; none in production.
    pub faults: FaultPlan,
}

impl PoolsOptions {
    /// Default options on this node: the orchestrator's paths are below `root`, and limits are
    /// recorded but not applied.
    pub fn on_node(node_id: impl Into<String>, root: impl Into<PathBuf>) -> Self {
        let node = NodeOptions {
            program_limit: Duration::from_secs(600),
            kubelet_root: root.into(),
            cgroups: None,
            inline: InlineLimits::default(),
        };
        let freeze_limit = Duration::from_secs(10);
        Self { node_id: node_id.into(), node, freeze_limit, faults: FaultPlan::none() }
    }
}

/// A pool that is served.
#[derive(Debug)]
pub struct ServedPool {
    /// Name of the pool.
    pub name: String,
    /// The pool.
    pub pool: Arc<Pool>,
    /// Its volumes on this node.
    pub node: Arc<NodeVolumes>,
    /// Limits of concurrent calls: a disk that hangs must not block calls to other pools.
    pub(crate) permits: Permits,
}

/// Semaphores that limit concurrent calls on one pool.
#[derive(Debug)]
pub(crate) struct Permits {
    /// For calls that change something.
    pub(crate) changes: Arc<Semaphore>,
    /// For calls that only read.
    pub(crate) reads: Arc<Semaphore>,
    /// For health queries.
    pub(crate) health: Arc<Semaphore>,
    /// For recording undos that could not be written before.
    undone: Arc<Semaphore>,
}

impl Permits {
    /// Maximum number of concurrent calls of a kind.
    pub(crate) const PARALLEL: usize = 64;
}

impl Default for Permits {
    fn default() -> Self {
        let [changes, reads, health, undone] =
            [Self::PARALLEL, Self::PARALLEL, 1, 1].map(|count| Arc::new(Semaphore::new(count)));
        Self { changes, reads, health, undone }
    }
}

/// The pools of a driver.
#[derive(Debug)]
pub struct Pools {
    options: PoolsOptions,
    state_dir: StateDir,
    slots: RwLock<BTreeMap<String, Slot>>,
    /// Pools that threads are opening, including pools that are no longer configured.
    openings: Mutex<Vec<Arc<Opening>>>,
    folders: ResolvedFolders,
    inline_calls: Arc<InlineCalls>,
    image_locks: ImageLocks,
    attaching: Attaching,
    /// Names of the configured pools.
    names: RwLock<BTreeSet<String>>,
    /// Held while pools are opened, closed, adopted or forgotten.
    changing: Mutex<()>,
    /// Notified when a pool was added or removed.
    changed: Notify,
}

/// A configured pool.
#[derive(Debug)]
struct Slot {
    config: PoolConfig,
    state: SlotState,
    /// Set if the configuration no longer wants the pool as it is: it is closed once none of its
    /// volumes is in use on the node.
    leaving: Option<Leaving>,
}

/// Reason why a pool is leaving, and what follows its closing.
#[derive(Debug)]
enum Leaving {
    /// The pool is no longer configured.
    Removed,
    /// The pool is opened again, in another folder.
    Moving(Box<PoolConfig>),
}

#[derive(Debug)]
enum SlotState {
    Served(Arc<ServedPool>),
    Absent(Absence),
}

/// Why a configured pool is not served.
#[derive(Clone, Debug)]
struct Absence {
    reason: String,
}

impl Pools {
    /// Returns the served pools, by name.
    pub fn served(&self) -> Vec<Arc<ServedPool>> {
        self.slots().values().filter_map(Slot::served).cloned().collect()
    }

    /// Returns the pool that a StorageClass selects with the parameter `pool`, or the pool
    /// `default`.
    ///
    /// # Errors
    /// If no pool of this name is configured, or the pool is not served.
    pub fn picked(&self, name: Option<&str>) -> Result<Arc<ServedPool>, Error> {
        let slots = self.slots();
        let picked = name.unwrap_or(DEFAULT_POOL);
        match slots.get(picked).filter(|slot| !slot.is_removed()).map(|slot| &slot.state) {
            Some(SlotState::Served(pool)) => Ok(pool.clone()),
            Some(SlotState::Absent(absence)) => Err(absence.error(picked)),
            None => {
                let staying = slots.iter().filter(|(_, slot)| !slot.is_removed());
                let names: Vec<_> = staying.map(|(name, _)| name.as_str()).collect();
                let mut expected = format!("one of {}", names.join(", "));
                if name.is_none() {
                    expected.push_str(", since no pool is called default");
                }
                Err(Error::invalid("parameters.pool", expected))
            }
        }
    }

    /// Returns the pool of a volume.
    ///
    /// # Errors
    /// If the volume does not exist, or may be on a pool that is not served.
    pub fn of_volume(&self, id: &str) -> Result<Arc<ServedPool>, Error> {
        self.find(id, |state| state.volumes.get(id).is_some(), || Error::no_volume(id))
    }

    /// Returns the pool of a snapshot.
    ///
    /// # Errors
    /// If the snapshot does not exist, or may be on a pool that is not served.
    pub fn of_snapshot(&self, id: &str) -> Result<Arc<ServedPool>, Error> {
        self.find(id, |state| state.snapshots.get(id).is_some(), || Error::no_snapshot(id))
    }

    /// Returns the pool of a group snapshot.
    ///
    /// # Errors
    /// If the group does not exist, or may be on a pool that is not served.
    pub fn of_group(&self, id: &str) -> Result<Arc<ServedPool>, Error> {
        self.find(id, |state| state.groups.get(id).is_some(), || Error::no_group(id))
    }

    /// Returns the first pool whose state satisfies the predicate.
    pub fn where_state(&self, holds: impl Fn(&State) -> bool) -> Option<Arc<ServedPool>> {
        self.served().into_iter().find(|served| served.pool.store().read(&holds))
    }

    fn find(
        &self,
        id: &str,
        holds: impl Fn(&State) -> bool,
        missing: impl FnOnce() -> Error,
    ) -> Result<Arc<ServedPool>, Error> {
        match self.where_state(holds) {
            Some(served) => Ok(served),
            None => Err(self.unavailable(id).unwrap_or_else(missing)),
        }
    }

    /// Returns why an object that no served pool knows may still exist.
    fn unavailable(&self, id: &str) -> Option<Error> {
        let short = short_of(id);
        let slots = self.slots();
        let notes = self.state_dir.notes();
        let absent = || {
            slots.iter().filter_map(|(name, slot)| match &slot.state {
                SlotState::Absent(absence) => Some((name, absence, notes.get(name))),
                SlotState::Served(_) => None,
            })
        };
        let is_noted = |note: &Note| short.is_some_and(|short| note.may_hold(short));
        for (name, absence, note) in absent() {
            if note.is_some_and(is_noted) {
                return Some(absence.error(name));
            }
        }
        let is_served = |id: PoolId| {
            slots.values().any(|slot| slot.served().is_some_and(|it| it.pool.id() == id))
        };
        let unconfigured = notes.iter().filter(|(name, _)| !slots.contains_key(*name));
        // Skip pools that are served under another name.
        let unconfigured = unconfigured.filter(|(_, note)| !is_served(note.pool));
        let mut held = unconfigured.filter(|(_, note)| is_noted(note));
        if let Some((name, note)) = held.next() {
            return Some(Error::Unavailable(format!(
                "{id} is on pool {name}, which the driver is not configured with: configure it with its folder {}, or run \
                 `wharf driver pool forget {name}` if its disk is lost",
                note.folder.display()
            )));
        }
        let has_id =
            |slot: &Slot| slot.served().is_some_and(|it| Some(&*it.pool.id().short()) == short);
        if slots.values().any(has_id) {
            // The pool that the ID names is served and does not know the object.
            return None;
        }
        // An ID without a pool's part may be on any pool, and any object may be on a pool without a
        // note.
        for (name, absence, note) in absent() {
            if short.is_none() || note.is_none() {
                return Some(absence.error(name));
            }
        }
        let damaged = self.state_dir.damaged();
        let mut unknown = damaged.iter().filter(|(name, _)| !slots.contains_key(*name));
        unknown.next().map(|(name, reason)| damaged_note(name, reason).error(name))
    }

    fn slots(&self) -> RwLockReadGuard<'_, BTreeMap<String, Slot>> {
        self.slots.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn slots_mut(&self) -> RwLockWriteGuard<'_, BTreeMap<String, Slot>> {
        self.slots.write().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    fn is_removed(&self) -> bool {
        matches!(self.leaving, Some(Leaving::Removed))
    }

    fn served(&self) -> Option<&Arc<ServedPool>> {
        match &self.state {
            SlotState::Served(served) => Some(served),
            SlotState::Absent(_) => None,
        }
    }
}

impl Absence {
    fn error(&self, name: &str) -> Error {
        Error::Unavailable(format!("pool {name} is not served: {}", self.reason))
    }
}

/// Why a pool with a damaged note is not served: nothing tells which disk is the pool's.
fn damaged_note(name: &str, reason: &str) -> Absence {
    Absence {
        reason: format!(
            "{reason}; if the pool's own disk is mounted, run `wharf driver pool adopt {name}`, and if the disk is lost, \
             `wharf driver pool forget {name}`"
        ),
    }
}

impl ServedPool {
    /// Refuses a new volume on a drained pool, unless the volume is promised already.
    ///
    /// # Errors
    /// If the pool is drained.
    pub fn refuse_drained(&self, name: &str) -> Result<(), Error> {
        let promised = || self.pool.store().read(|state| state.volumes.named(name).is_some());
        if !self.pool.settings().drain || promised() {
            return Ok(());
        }
        Err(Error::Exhausted(format!(
            "pool {0} is drained and takes no new volumes: pick another pool, or run `wharf driver pool drain {0} --off`",
            self.name
        )))
    }

    /// Whether a volume of the pool is in use on this node, or an operation on one is not finished.
    fn in_use(&self) -> bool {
        self.pool.store().read(|state| {
            state.volumes.iter().any(|volume| volume.in_use() || volume.phase != Phase::Ready)
        })
    }
}

/// Fixtures for tests.
#[cfg(test)]
pub(crate) mod fixtures {
    use std::path::Path;

    use super::*;

    /// The pool `default` in a folder.
    pub(crate) fn pools(folder: &Path) -> Arc<Pools> {
        let mut config = PoolConfig::in_folder(folder.join("pool"));
        config.settings.floor = Some(0);
        let state_dir = StateDir::open(&folder.join("state"), "test").expect("a new folder");
        let options = PoolsOptions::on_node("node", folder);
        Pools::open(vec![config], state_dir, options).expect("a new pool")
    }
}
