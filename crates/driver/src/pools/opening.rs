//! Opens pools, each in its own thread: a disk that hangs blocks only that thread.
//!
//! A folder has at most one such thread. When it ends, the pool is put into its slot if it is still
//! configured. Until then the pool is not served, and no volume of it is torn down without its
//! records, which are being compared with the kernel.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use wharf_mount::loopdev::Loop;

use super::{
    Absence, Pools, ServedPool, Slot, SlotState,
    open::{OpenError, same_objects},
};
use crate::{
    config::PoolConfig,
    error::Error,
    pool::{PoolId, identity::short_of},
    pool_image,
    state_dir::Note,
};

/// Maximum wait for a disk, before its pool counts as not served.
pub(super) const ANSWER_WAIT: Duration = Duration::from_secs(5);
/// Additional wait for settling the volumes of the pool.
const SETTLE_WAIT: Duration = Duration::from_secs(10);

/// A pool that a thread is opening.
#[derive(Debug)]
pub(super) struct Opening {
    pub(super) config: PoolConfig,
    /// Note of the pool that is expected in the folder.
    pub(super) note: Option<Note>,
    begun: Instant,
    progress: Mutex<Progress>,
    changed: Condvar,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Progress {
    /// The pool in the folder.
    found: Option<PoolId>,
    /// Whether the folder had no pool.
    was_empty: bool,
    /// Whether the disk has responded; volumes are being settled.
    answered: bool,
    /// Whether the pool is no longer wanted.
    abandoned: bool,
    ended: bool,
    /// Error of the opening, unless the disk is missing.
    failure: Option<Error>,
}

impl Opening {
    fn new(config: PoolConfig, note: Option<Note>) -> Self {
        let (progress, changed, thread) = Default::default();
        Self { config, note, begun: Instant::now(), progress, changed, thread }
    }

    /// Reports that the disk has responded.
    pub(super) fn answered(&self) {
        self.progress().answered = true;
        self.changed.notify_all();
    }

    /// Runs `act` unless the pool is no longer wanted.
    pub(super) fn if_wanted(&self, act: impl FnOnce() -> Result<(), Error>) -> Result<(), Error> {
        let progress = self.progress();
        if progress.abandoned {
            let text = format!("pool {} has another configuration by now", self.config.name);
            return Err(Error::Pending(text));
        }
        act()
    }

    /// Waits for the end as long as a start does. Returns false on a timeout.
    fn wait(&self) -> bool {
        self.wait_for(ANSWER_WAIT, SETTLE_WAIT)
    }

    /// Waits for the end. Returns false if the disk, or settling the volumes, takes longer.
    pub(super) fn wait_for(&self, answer: Duration, settle: Duration) -> bool {
        let mut progress = self.progress();
        while !progress.ended {
            let limit = if progress.answered { answer + settle } else { answer };
            let left = limit.saturating_sub(self.begun.elapsed());
            if left.is_zero() {
                return false;
            }
            let waited = self.changed.wait_timeout(progress, left);
            progress = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        drop(progress);
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        // The thread is past its last step, and a panic was caught.
        thread.map(JoinHandle::join);
        true
    }

    /// Reports that the folder has no pool, so that one is created.
    pub(super) fn found_nothing(&self) {
        self.progress().was_empty = true;
    }

    /// Whether the folder had no pool.
    pub(super) fn was_empty(&self) -> bool {
        self.progress().was_empty
    }

    /// Takes the error of the opening, unless the disk is missing. Returns it once.
    pub(super) fn take_failure(&self) -> Option<Error> {
        self.progress().failure.take()
    }

    fn may_hold(&self, pool: PoolId) -> bool {
        let noted = self.note.as_ref().map(|note| note.pool);
        noted == Some(pool) || self.progress().found == Some(pool)
    }

    fn may_hold_id(&self, short: &str) -> bool {
        let noted = self.note.as_ref().is_some_and(|note| note.may_hold(short));
        noted || self.progress().found.is_some_and(|found| found.short() == short)
    }

    fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pools {
    /// Opens pools in this order: one after another until one takes too long, the rest in parallel.
    /// Each must have a slot. Returns while slow disks are still being opened.
    pub(super) fn open_all(self: &Arc<Self>, configs: Vec<PoolConfig>) -> Vec<Arc<Opening>> {
        let (mut all, mut is_late) = (Vec::new(), false);
        for config in configs {
            if let Some(absence) = self.damaged(&config.name) {
                self.set_absent(&config, absence);
                continue;
            }
            let note = self.state_dir.note(&config.name);
            match self.start_opening(config.clone(), note) {
                Some(opening) => {
                    is_late = is_late || !opening.wait();
                    all.push(opening);
                }
                None => self.set_absent(&config, late(&config)),
            }
        }
        for opening in &all {
            if !opening.wait() {
                self.set_absent(&opening.config, late(&opening.config));
            }
        }
        all
    }

    /// Starts the thread that opens a pool. Returns `None` if one is running for its folder.
    pub(super) fn start_opening(
        self: &Arc<Self>,
        config: PoolConfig,
        note: Option<Note>,
    ) -> Option<Arc<Opening>> {
        let opening = {
            let mut openings = self.lock_openings();
            if openings.iter().any(|it| it.config.folder == config.folder) {
                return None;
            }
            let opening = Arc::new(Opening::new(config, note));
            openings.push(opening.clone());
            opening
        };
        let (pools, own) = (self.clone(), opening.clone());
        let thread = thread::Builder::new().name("open pool".to_owned()).spawn(move || {
            // The library that reads the state file may panic if the file is damaged.
            let opened = catch_unwind(AssertUnwindSafe(|| pools.open_pool(&own)));
            pools.end_opening(&own, opened.unwrap_or_else(|_| Err(panicked())));
        });
        match thread {
            Ok(thread) => {
                let mut own = opening.thread.lock().unwrap_or_else(PoisonError::into_inner);
                *own = Some(thread);
            }
            Err(error) => {
                let error = Error::file("start a thread for", &opening.config.folder)(error);
                self.end_opening(&opening, Err(error.into()));
            }
        }
        Some(opening)
    }

    /// Puts the opened pool, or the reason of the failure, into its slot, if the slot still wants
    /// it.
    fn end_opening(&self, opening: &Arc<Opening>, opened: Result<Arc<ServedPool>, OpenError>) {
        let (opened, failure) = match opened {
            Err(OpenError::Failed(error)) => {
                (Err(Absence { reason: error.to_string() }), Some(error))
            }
            Err(OpenError::Missing(absence)) => (Err(absence), None),
            Ok(served) => (Ok(served), None),
        };
        let unwanted = match opened {
            Ok(served) => self.serve(opening, served).err(),
            Err(absence) => {
                if self.wants(opening) {
                    self.set_absent(&opening.config, absence);
                }
                None
            }
        };
        if let Some(served) = unwanted {
            let _ = std::fs::remove_file(served.pool.layout().admin_socket());
        }
        if opening.progress().abandoned
            && let Err(error) = pool_image::close(&opening.config.folder)
        {
            tracing::warn!(pool = opening.config.name, %error, "failed to unmount pool image, unmount it by hand");
        }
        self.forget_old_names();
        // Fill the slot first: at any time the pool is either being opened or served.
        self.lock_openings().retain(|it| !Arc::ptr_eq(it, opening));
        let mut progress = opening.progress();
        (progress.ended, progress.failure) = (true, failure);
        drop(progress);
        opening.changed.notify_all();
        self.changed.notify_one();
    }

    /// Serves an opened pool. Returns the pool if its slot does not want it, or it is a copy of a
    /// served pool.
    fn serve(&self, opening: &Opening, served: Arc<ServedPool>) -> Result<(), Arc<ServedPool>> {
        let (name, drained) =
            (&opening.config.name, self.state_dir.note(&opening.config.name).map(|it| it.drain));
        let mut slots = self.slots_mut();
        let mut others = slots.values().filter_map(Slot::served);
        let copied = others.find_map(|other| same_objects(&served.pool, other));
        let wanted = slots.get_mut(name).filter(|slot| slot.is_of(opening));
        let Some(slot) = wanted.filter(|_| !opening.progress().abandoned) else {
            return Err(served);
        };
        if let Some(error) = copied {
            slot.set_absent(Absence { reason: error.to_string() });
            return Err(served);
        }
        let mut settings = slot.config.settings;
        settings.drain |= drained.unwrap_or_default();
        served.pool.change_settings(|current| *current = settings);
        slot.state = SlotState::Served(served.clone());
        for other in slots.values().filter_map(Slot::served) {
            if other.name != served.name && other.pool.disk() == served.pool.disk() {
                other.pool.share_filesystem();
                served.pool.share_filesystem();
            }
        }
        Ok(())
    }

    fn wants(&self, opening: &Opening) -> bool {
        let wanted = self.slots().get(&opening.config.name).is_some_and(|slot| slot.is_of(opening));
        wanted && !opening.progress().abandoned
    }

    /// Creates the slot of a pool, or updates its configuration.
    pub(super) fn ensure_slot(&self, config: &PoolConfig) {
        let mut slots = self.slots_mut();
        let reason = "it is being opened".to_owned();
        let slot = slots.entry(config.name.clone()).or_insert_with(|| Slot {
            config: config.clone(),
            state: SlotState::Absent(Absence { reason }),
            leaving: None,
        });
        slot.config = config.clone();
    }

    /// Records why a pool is not served, unless it is served.
    fn set_absent(&self, config: &PoolConfig, absence: Absence) {
        if let Some(slot) = self.slots_mut().get_mut(&config.name)
            && slot.served().is_none()
        {
            slot.set_absent(absence);
        }
    }

    /// Makes the thread that opens the pool in a folder discard its result. Returns false if there
    /// is none.
    pub(super) fn abandon_opening(&self, config: &PoolConfig) -> bool {
        let openings = self.openings();
        let own = openings.iter().find(|it| it.config.folder == config.folder);
        if let Some(opening) = own {
            opening.progress().abandoned = true;
        }
        own.is_some()
    }

    /// Whether a thread is opening the pool in a folder.
    pub(super) fn is_opened_in(&self, folder: &Path) -> bool {
        self.lock_openings().iter().any(|it| it.config.folder == folder)
    }

    /// Claims the pool that a thread found. If the pool is being opened elsewhere, returns that
    /// name and folder.
    pub(super) fn claim(&self, opening: &Opening, id: PoolId) -> Option<(String, PathBuf)> {
        let openings = self.lock_openings();
        let mut others = openings.iter().filter(|it| it.config.folder != opening.config.folder);
        if let Some(other) = others.find(|it| it.progress().found == Some(id)) {
            return Some((other.config.name.clone(), other.config.folder.clone()));
        }
        opening.progress().found = Some(id);
        None
    }

    /// Refuses to tear down a volume without its records while its pool is being opened.
    pub(super) fn refuse_opening(&self, volume: &str) -> Result<(), Error> {
        let Some(short) = short_of(volume) else { return Ok(()) };
        match self.openings().iter().find(|it| it.may_hold_id(short)) {
            Some(opening) => Err(Error::Unavailable(format!(
                "pool {} is being opened, and its records are compared with what is mounted: call again; if that lasts, its disk \
                 at {} gave no answer",
                opening.config.name,
                opening.config.folder.display()
            ))),
            None => Ok(()),
        }
    }

    /// Whether a device may show an image of a pool that is being opened.
    pub(super) fn is_opening(&self, device: &Loop) -> bool {
        let note = self.state_dir.attached().of_device(device);
        self.openings().iter().any(|opening| {
            let folders = || self.image_folders(&opening.config.folder);
            note.as_ref().is_some_and(|note| opening.may_hold(note.pool))
                || folders().iter().any(|it| device.backing.starts_with(it))
        })
    }

    fn openings(&self) -> Vec<Arc<Opening>> {
        self.lock_openings().clone()
    }

    fn lock_openings(&self) -> MutexGuard<'_, Vec<Arc<Opening>>> {
        self.openings.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slot {
    /// Whether the slot wants the pool that is being opened.
    fn is_of(&self, opening: &Opening) -> bool {
        self.served().is_none() && self.config.folder == opening.config.folder
    }

    fn set_absent(&mut self, absence: Absence) {
        let is_known =
            matches!(&self.state, SlotState::Absent(old) if old.reason == absence.reason);
        if !is_known {
            let pool = &self.config.name;
            tracing::error!(pool, reason = absence.reason, "failed to serve pool");
        }
        self.state = SlotState::Absent(absence);
    }
}

fn late(config: &PoolConfig) -> Absence {
    let reason = format!(
        "its disk at {} gave no answer in {ANSWER_WAIT:?}, or its volumes take long to settle: it is served once it is open",
        config.folder.display()
    );
    Absence { reason }
}

fn panicked() -> OpenError {
    let text =
        "opening it panicked: the driver has a bug, or the state file is damaged; see the log";
    OpenError::Failed(Error::Precondition(text.to_owned()))
}
