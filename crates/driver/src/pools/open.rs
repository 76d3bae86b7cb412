//! Opens a pool: compares its identity first, and writes nothing before it matches.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet},
    fs,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::{Duration, Instant},
};

use tokio::sync::Notify;

use super::{
    Absence, Attaching, Permits, Pools, PoolsOptions, ResolvedFolders, ServedPool, damaged_note,
    opening::Opening,
};
use crate::{
    config::PoolConfig,
    error::Error,
    node::NodeVolumes,
    pool::{
        ImageLocks, Layout, Pool, PoolId, PoolOptions, Recovery, identity, identity::Found,
        is_there,
    },
    pool_image, private,
    state_dir::{Note, StateDir},
    store::{Store, StoreError},
};

/// Maximum wait for a process that reads the state of the pool.
const READER_WAIT: Duration = Duration::from_secs(2);

/// Why a pool cannot be served.
pub(super) enum OpenError {
    /// Its folder does not have the pool.
    Missing(Absence),
    /// The pool cannot be opened.
    Failed(Error),
}

impl From<Error> for OpenError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

impl Pools {
    /// Opens the configured pools. Pools that are missing, or whose disk hangs, are retried later.
    ///
    /// # Errors
    /// If the only pool cannot be opened, unless its disk is missing or fails.
    pub fn open(
        configs: Vec<PoolConfig>,
        state_dir: StateDir,
        options: PoolsOptions,
    ) -> Result<Arc<Self>, Error> {
        let pools = Arc::new(Self {
            options,
            state_dir,
            slots: RwLock::new(BTreeMap::new()),
            openings: Mutex::default(),
            folders: ResolvedFolders::default(),
            inline_calls: Arc::default(),
            image_locks: ImageLocks::default(),
            attaching: Attaching::default(),
            names: RwLock::new(configs.iter().map(|config| config.name.clone()).collect()),
            changing: Mutex::new(()),
            changed: Notify::new(),
        });
        let alone = configs.len() == 1;
        let noted = pools.state_dir.notes();
        configs.iter().for_each(|config| pools.ensure_slot(config));
        let opened = pools.open_all(configs);
        pools.thaw_orphans_in_time();
        let failure = opened.first().filter(|_| alone).and_then(|opening| opening.take_failure());
        // Start despite a failed disk if the pool was served before: pods on it must be torn down.
        match failure.filter(|it| !it.is_of_disk() || noted.is_empty()) {
            Some(error) => Err(error),
            None => Ok(pools),
        }
    }

    /// Removes notes of pools that are now served under another name.
    pub(super) fn forget_old_names(&self) {
        let served = self.served();
        let configured = self.configured();
        for (name, note) in self.state_dir.notes() {
            let renamed = served.iter().find(|it| it.pool.id() == note.pool && it.name != name);
            let Some(renamed) = renamed.filter(|_| configured.iter().all(|(it, _)| *it != name))
            else {
                continue;
            };
            match self.state_dir.remove(&name) {
                Ok(()) => tracing::info!(pool = renamed.name, was = name, "renamed pool"),
                Err(error) => {
                    tracing::warn!(pool = name, %error, "failed to remove note of renamed pool");
                }
            }
        }
    }

    /// The driver's folder outside of its pools.
    pub fn state_dir(&self) -> &StateDir {
        &self.state_dir
    }

    /// Why a pool with a damaged note is not served; `None` if its note is not damaged.
    pub(super) fn damaged(&self, name: &str) -> Option<Absence> {
        self.state_dir.damaged().get(name).map(|reason| damaged_note(name, reason))
    }

    /// Opens a pool whose identity matches the note, and recovers its volumes so that every call
    /// can continue.
    pub(super) fn open_pool(&self, opening: &Opening) -> Result<Arc<ServedPool>, OpenError> {
        let (config, note) = (&opening.config, opening.note.clone());
        self.resolve_folder(config)?;
        let folder = self.find_folder(config, note.as_ref())?;
        let layout = Layout::new(&folder);
        let found = identity::look(&layout)?;
        self.compare(opening, &folder, found)?;
        self.refuse_same_ids(&layout)?;
        let drained = note.is_some_and(|note| note.drain) || self.was_drained(found);
        let mut settings = config.settings;
        settings.drain |= drained;
        let options = PoolOptions {
            settings,
            freeze_limit: self.options.freeze_limit,
            faults: self.options.faults.clone(),
            image_locks: self.image_locks.clone(),
        };
        let (pool, recovery) = open_with_retry(|| Pool::open(&folder, options.clone()))?;
        let (id, folder, older) = (pool.id(), config.folder.clone(), older_ids(&pool));
        let kept = Note { pool: id, folder, drain: drained, older };
        opening.if_wanted(|| self.state_dir.keep(&config.name, kept))?;
        opening.answered();
        log_opened(&config.name, &pool, &recovery);
        pool.register_node(&self.options.node_id)?;
        let pool = Arc::new(pool);
        let node = NodeVolumes::new(
            pool.clone(),
            self.options.node.clone(),
            self.inline_calls.clone(),
            self.state_dir.attached().clone(),
        );
        node.find_old_devices()?;
        let forgotten = node.recover()?;
        node.compare_attached()?;
        if forgotten > 0 {
            tracing::info!(
                pool = config.name,
                volumes = forgotten,
                "cleared stages and publications that are not mounted"
            );
        }
        self.link_admin_socket(&layout);
        let (name, node) = (config.name.clone(), Arc::new(node));
        Ok(Arc::new(ServedPool { name, pool, node, permits: Permits::default() }))
    }

    /// Whether an operator drained the pool under another name.
    fn was_drained(&self, found: Found) -> bool {
        self.state_dir
            .notes()
            .into_values()
            .any(|note| found == Found::Pool(note.pool) && note.drain)
    }

    /// Returns the folder of the pool's files. Creates it only for a pool without a note.
    fn find_folder(&self, config: &PoolConfig, note: Option<&Note>) -> Result<PathBuf, OpenError> {
        let size = match note {
            None => {
                private::create_folder(&config.folder)?;
                config.image
            }
            Some(note) => {
                let absent = |there: String| Err(missing(config, note.pool, &there));
                match fs::metadata(&config.folder) {
                    Ok(found) if found.is_dir() => {}
                    Ok(_) => return absent(format!("{} is not a folder", config.folder.display())),
                    Err(error) => {
                        return absent(format!("{}: {error}", config.folder.display()));
                    }
                }
                if config.image.is_some() && !pool_image::exists(&config.folder) {
                    pool_image::refuse_second_pool(&config.folder)?;
                    return absent(format!("{} holds no pool.img", config.folder.display()));
                }
                None
            }
        };
        Ok(pool_image::open(&config.folder, size, self.options.node.program_limit)?)
    }

    /// Refuses a folder that has another pool than the noted one, or a pool that this driver serves
    /// elsewhere.
    fn compare(&self, opening: &Opening, folder: &Path, found: Found) -> Result<(), OpenError> {
        let (config, note) = (&opening.config, opening.note.as_ref());
        if let Some(note) = note.filter(|note| found != Found::Pool(note.pool)) {
            let there = match found {
                Found::Pool(other) => format!("{} holds pool {other}", folder.display()),
                Found::Unmarked => format!("{} holds a pool without a UUID", folder.display()),
                Found::Nothing => format!("{} holds no pool", folder.display()),
            };
            return Err(missing(config, note.pool, &there));
        }
        let Found::Pool(id) = found else {
            if found == Found::Nothing {
                opening.found_nothing();
            }
            return Ok(());
        };
        let other = self.claim(opening, id).or_else(|| self.other_name_of(id, &config.name));
        match other {
            None => Ok(()),
            Some((name, other)) if self.is_same_folder(&other, folder) => {
                Err(OpenError::Failed(Error::Precondition(format!(
                    "{} is served as pool {name} until the volumes of that pool are unstaged",
                    folder.display()
                ))))
            }
            Some((name, other)) => Err(OpenError::Failed(Error::Precondition(format!(
                "{} holds pool {id}, which is the pool {name} in {}: mount each disk where its pool is configured; a copy of a \
                 pool cannot be served beside it, remove it from the configuration",
                folder.display(),
                other.display()
            )))),
        }
    }

    /// Refuses a copy of a served pool, even with another UUID: a call names a volume only by its
    /// ID.
    fn refuse_same_ids(&self, layout: &Layout) -> Result<(), Error> {
        let served = self.served();
        if served.is_empty() || !is_there(&layout.state())? {
            return Ok(());
        }
        let ids: HashSet<String> = open_with_retry(|| {
            let store = Store::open(&layout.state(), &layout.ballast())?;
            Ok(store.read(|state| state.ids().map(str::to_owned).collect()))
        })?;
        let same = served.iter().find_map(|other| same_ids(layout.root(), &ids, other));
        same.map_or(Ok(()), Err)
    }

    /// Returns the name and folder of another configured pool with this UUID.
    fn other_name_of(&self, id: PoolId, name: &str) -> Option<(String, PathBuf)> {
        let served = self.served();
        let served = served.iter().find(|it| it.pool.id() == id && it.name != name);
        let served = served.map(|it| (it.name.clone(), it.pool.layout().root().to_owned()));
        served.or_else(|| {
            let names = self.names.read().unwrap_or_else(PoisonError::into_inner);
            let notes = self.state_dir.notes().into_iter();
            let mut others = notes.filter(|(it, note)| it != name && note.pool == id);
            others.find(|(it, _)| names.contains(it)).map(|(it, note)| (it, note.folder))
        })
    }

    /// Whether two folders of pools' files are the same. Waits for no disk, since the other one's
    /// may hang.
    fn is_same_folder(&self, one: &Path, other: &Path) -> bool {
        let resolved = |path: &Path| {
            let known = self.resolved_folder(path);
            match path.parent() {
                // The files of a pool image are in a subfolder of the pool's folder.
                Some(root) if known == path && pool_image::mount_point(root) == path => {
                    pool_image::mount_point(&self.resolved_folder(root))
                }
                _ => known,
            }
        };
        resolved(one) == resolved(other)
    }

    /// Creates the link by which `wharf driver pool --pool DIR` finds the driver. Failures are only
    /// logged.
    fn link_admin_socket(&self, layout: &Layout) {
        let link = layout.admin_socket();
        let _ = fs::remove_file(&link);
        if let Err(error) = std::os::unix::fs::symlink(self.state_dir.own_admin_socket(), &link) {
            tracing::warn!(link = %link.display(), %error, "failed to link admin socket");
        }
    }
}

/// Retries while another process reads the pool: `wharf driver pool` opens the state of a pool that
/// no driver serves.
fn open_with_retry<T>(open: impl Fn() -> Result<T, Error>) -> Result<T, Error> {
    let deadline = Instant::now() + READER_WAIT;
    loop {
        match open() {
            // The kernel sends no event when the lock is released.
            Err(Error::Store(StoreError::Busy { .. })) if Instant::now() < deadline => {
                std::thread::park_timeout(Duration::from_millis(50));
            }
            opened => return opened,
        }
    }
}

/// The short UUIDs in IDs of the pool's objects that are not its own. The set does not grow, since
/// new IDs have the pool's own.
fn older_ids(pool: &Pool) -> BTreeSet<String> {
    let own = pool.id().short();
    pool.store().read(|state| {
        let volumes = state.volumes.iter().map(|it| it.id.as_str());
        let snapshots = state.snapshots.iter().map(|it| it.id.as_str());
        let groups = state.groups.iter().map(|it| it.id.as_str());
        let shorts = volumes.chain(snapshots).chain(groups).filter_map(identity::short_of);
        shorts.filter(|short| *short != own).map(str::to_owned).collect()
    })
}

/// Returns an error if a pool is a copy of a served pool, even with another UUID.
pub(super) fn same_objects(pool: &Pool, other: &Arc<ServedPool>) -> Option<Error> {
    let ids = pool.store().read(|state| state.ids().map(str::to_owned).collect());
    same_ids(pool.layout().root(), &ids, other)
}

fn same_ids(folder: &Path, ids: &HashSet<String>, other: &ServedPool) -> Option<Error> {
    let same = other.pool.store().read(|state| {
        let mut same = state.ids().filter(|id| ids.contains(*id));
        same.next().map(str::to_owned)
    });
    let text = |id| {
        format!(
            "{} and pool {} in {} both hold {id}: one is a copy of the other, and cannot be served together with it; remove one of \
             them from the configuration",
            folder.display(),
            other.name,
            other.pool.layout().root().display()
        )
    };
    same.map(|id| Error::Precondition(text(id)))
}

fn missing(config: &PoolConfig, pool: PoolId, there: &str) -> OpenError {
    let name = &config.name;
    OpenError::Missing(Absence {
        reason: format!(
            "{there}, and pool {pool} is expected there: mount its disk at {}; if the disk is lost, run `wharf driver pool \
             adopt {name}` to serve what is there now, or `wharf driver pool forget {name}`",
            config.folder.display()
        ),
    })
}

fn log_opened(name: &str, pool: &Pool, recovery: &Recovery) {
    let (volumes, snapshots) =
        pool.store().read(|state| (state.volumes.len(), state.snapshots.len()));
    tracing::info!(pool = name, folder = %pool.layout().root().display(), uuid = %pool.id(), backend = %pool.default_backend(), volumes, snapshots, settled = recovery.settled, "opened pool");
    for id in &recovery.kept {
        tracing::warn!(pool = name, id, "recorded complete image from its mark");
    }
    for image in &recovery.quarantined {
        tracing::warn!(pool = name, image = %image.display(), "moved image without record into quarantine");
    }
    for id in &recovery.missing {
        tracing::error!(pool = name, id, "image is missing");
    }
    for reason in &recovery.open {
        tracing::warn!(pool = name, reason, "failed to settle operation, retrying with next call");
    }
}
