//! A pool: images in a folder, and the space promised to them.
//!
//! Every change takes the same steps: promise (commit), create under a temporary name, flush,
//! rename, flush the folder, commit. After a crash, startup finds either the promise, which a retry
//! fulfills under the same ID, or the complete object. Calls block; run one at a time per object.

mod attach;
mod expand;
mod frozen;
mod groups;
pub mod identity;
mod layout;
mod mark;
mod modify;
mod place;
mod rebuild;
mod recover;
mod repair;
mod reserve;
mod rework;
mod rules;
mod salvage;
mod settings;
mod sharing;
mod snapshots;
mod space;
mod unshare;
mod volumes;

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError, RwLock, atomic::AtomicBool},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use wharf_csi_sdk::fault::FaultPlan;
use wharf_mount::{clone, sync};

pub use groups::NewGroup;
pub use identity::PoolId;
pub use layout::Layout;
pub(crate) use layout::is_there;
pub use mark::Mark;
use place::rename;
pub use rebuild::{Rebuilt, rebuild};
pub use recover::Recovery;
pub use repair::Repaired;
pub use settings::{Kind, Kinds, PoolSettings, Share, ThinRatio};
pub use snapshots::NewSnapshot;
pub use space::{Account, Disk};
pub use unshare::UnshareStep;
pub use volumes::NewVolume;

pub use crate::devices::ImageLocks;
use crate::{
    backend::{Backend, BackendKind, Images},
    devices::{Devices, ImageLock, Place},
    error::Error,
    files,
    points::Point,
    private, random,
    record::{Snapshot, Volume},
    store::{State, Store},
};

/// Options of a pool.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// Settings that may change later.
    pub settings: PoolSettings,
    /// Maximum time for which a filesystem may be frozen for a copy.
    pub freeze_limit: Duration,
    /// Fault plan of tests; none in production.
    pub faults: FaultPlan,
    /// Locks of images, shared by all pools of a driver.
    pub image_locks: ImageLocks,
}

/// Default settings, a freeze limit of ten seconds, no faults.
impl Default for PoolOptions {
    fn default() -> Self {
        let freeze_limit = Duration::from_secs(10);
        let (settings, faults) = (PoolSettings::default(), FaultPlan::none());
        Self { settings, freeze_limit, faults, image_locks: ImageLocks::default() }
    }
}

/// A pool that this process has opened.
#[derive(Debug)]
pub struct Pool {
    layout: Layout,
    id: PoolId,
    /// Device number and inode of the pool's folder.
    folder: (u64, u64),
    store: Store,
    devices: Devices,
    reflink: bool,
    /// Whether the filesystem writes all overwritten blocks to new places (btrfs).
    copy_on_write: bool,
    /// Whether no other files are on the pool's filesystem.
    own_filesystem: AtomicBool,
    options: PoolOptions,
    settings: RwLock<PoolSettings>,
    unsharing: unshare::Unsharing,
    /// Held while an expansion is finished for a copy.
    settling: Mutex<()>,
}

impl Pool {
    /// Opens the pool in `root`, or creates it, and recovers it so that every call can continue.
    ///
    /// # Errors
    /// If the folder cannot be used, or another process serves the pool.
    pub fn open(root: &Path, options: PoolOptions) -> Result<(Self, Recovery), Error> {
        let layout = Layout::new(root);
        for folder in layout.folders() {
            private::create_pool_folder(&folder, root)?;
        }
        private::mend_root(root)?;
        let store = open_store(&layout)?;
        let id = identity::ensure(&layout)?;
        let folder = identity_of(root)?;
        sync::folder(root)?;
        let reflink = can_share_blocks(&layout)?;
        let copy_on_write = clone::is_copy_on_write(root)?;
        let own_filesystem = sharing::is_own_filesystem(&layout)?.into();
        let devices = Devices::new(options.image_locks.clone());
        let (settling, unsharing) = Default::default();
        let settings = RwLock::new(options.settings);
        let pool = Self {
            layout,
            id,
            folder,
            store,
            devices,
            reflink,
            copy_on_write,
            own_filesystem,
            options,
            settings,
            unsharing,
            settling,
        };
        let recovery = pool.recover()?;
        Ok((pool, recovery))
    }

    /// Paths of the pool's files.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// UUID of the pool.
    pub fn id(&self) -> PoolId {
        self.id
    }

    /// Device number and inode of the folder when the pool was opened.
    pub(crate) fn folder_identity(&self) -> (u64, u64) {
        self.folder
    }

    /// Device number of the filesystem when the pool was opened.
    pub(crate) fn disk(&self) -> u64 {
        self.folder.0
    }

    /// Fails if the pool's folder is not the one that was opened.
    ///
    /// # Errors
    /// If the disk was unmounted, another disk was mounted over it, or the folder was replaced.
    pub fn ensure_present(&self) -> Result<(), Error> {
        let (root, id) = (self.layout.root().display(), self.id);
        match identity_of(self.layout.root()) {
            Ok(folder) if folder == self.folder => Ok(()),
            Err(Error::File { source, .. }) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::Unavailable(format!(
                    "the disk of the pool ({id}) at {root} fails: {source}; look at the kernel's log, mount it again and restart \
                     the driver"
                )))
            }
            _ => Err(Error::Unavailable(format!(
                "{root} no longer shows the disk or folder of the pool ({id}): mount it there again, and restart the driver"
            ))),
        }
    }

    /// Creates an ID for an object of this pool, with the pool's part.
    fn new_id(&self, kind: &str) -> Result<String, Error> {
        fresh_id(&format!("{kind}-{}-", self.id.short()))
    }

    /// Present settings.
    pub fn settings(&self) -> PoolSettings {
        *self.settings.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the settings. Running calls finish with the old ones.
    pub fn change_settings(&self, change: impl FnOnce(&mut PoolSettings)) {
        change(&mut self.settings.write().unwrap_or_else(PoisonError::into_inner));
        self.unsharing.wake.notify_one();
    }

    /// The recorded state.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Backend of new volumes whose request names none.
    pub fn default_backend(&self) -> BackendKind {
        if self.reflink { BackendKind::ImageReflink } else { BackendKind::ImageCopy }
    }

    /// Whether the pool's filesystem supports this backend.
    pub fn supports(&self, backend: BackendKind) -> bool {
        self.reflink || backend == BackendKind::ImageCopy
    }

    /// Returns the backend of this kind.
    pub fn backend(&self, kind: BackendKind) -> &'static dyn Backend {
        match kind {
            BackendKind::ImageReflink => &Images::REFLINK,
            BackendKind::ImageCopy => &Images::COPY,
        }
    }

    /// Returns a volume in any phase.
    ///
    /// # Errors
    /// If the volume does not exist.
    pub fn volume(&self, id: &str) -> Result<Arc<Volume>, Error> {
        self.store.read(|state| state.volumes.get(id).cloned()).ok_or_else(|| Error::no_volume(id))
    }

    /// Returns a complete volume.
    ///
    /// # Errors
    /// If the volume does not exist; one being created or deleted counts as missing.
    pub fn whole_volume(&self, id: &str) -> Result<Arc<Volume>, Error> {
        self.volume(id).and_then(|volume| {
            if volume.is_whole() { Ok(volume) } else { Err(Error::no_volume(id)) }
        })
    }

    /// Returns a snapshot in any phase.
    ///
    /// # Errors
    /// If the snapshot does not exist.
    pub fn snapshot(&self, id: &str) -> Result<Arc<Snapshot>, Error> {
        self.store
            .read(|state| state.snapshots.get(id).cloned())
            .ok_or_else(|| Error::no_snapshot(id))
    }

    /// The loop devices of the pool's images.
    pub(crate) fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Locks a volume's image for attaching, mounting, binding, detaching and deleting it.
    pub(crate) fn lock_image(&self, volume: &Volume) -> Result<ImageLock<'_>, Error> {
        self.devices.lock(&self.image(volume), !volume.thin)
    }

    /// Refuses to use a volume whose image was truncated: extending it would hide the loss.
    ///
    /// # Errors
    /// If the image is shorter than recorded.
    pub(crate) fn ensure_whole(&self, volume: &Volume) -> Result<(), Error> {
        ensure_length(&self.image(volume), volume.capacity, &format!("volume {}", volume.id))
    }

    /// Number of detaches that the kernel completes when other processes close the device.
    pub fn detaches_left_to_others(&self) -> u64 {
        self.devices.left_to_others()
    }

    /// The images of all volumes, with the mount points in their records.
    fn places(&self) -> Vec<Place> {
        let place = |volume: &Arc<Volume>| {
            let staged = volume.stage.iter().map(|stage| &stage.path);
            let mounts = staged.chain(volume.publications.keys()).cloned().collect();
            Place { image: self.image(volume), mounts }
        };
        self.store.read(|state| state.volumes.iter().map(place).collect())
    }

    /// Path of a volume's image.
    pub fn image(&self, volume: &Volume) -> PathBuf {
        self.layout.volume(&volume.image)
    }

    /// Returns the space account of the pool.
    ///
    /// # Errors
    /// If the disk cannot be queried.
    pub fn account(&self) -> Result<Account, Error> {
        let (disk, settings) = (disk(self.layout.root())?, self.settings());
        Ok(self.store.read(|state| Account::of(state, disk, &settings)))
    }

    /// Returns the extents of all images in use, and of the most fragmented one.
    pub fn extents(&self) -> (u64, u64) {
        let images: Vec<_> = self.store.read(|state| {
            let used = state.volumes.iter().filter(|volume| volume.in_use());
            used.map(|volume| self.image(volume)).collect()
        });
        let footprints = images.iter().filter_map(|image| Images::COPY.footprint(image).ok());
        footprints
            .map(|footprint| u64::from(footprint.extents))
            .fold((0, 0), |(sum, most), count| (sum + count, most.max(count)))
    }

    /// Number of images in quarantine.
    pub fn quarantined(&self) -> u64 {
        fs::read_dir(self.layout.quarantine()).map_or(0, |entries| entries.count() as u64)
    }

    /// Reports that a step is done. Tests inject crashes and failures here.
    pub(crate) fn reach(&self, point: Point) -> Result<(), Error> {
        Ok(self.options.faults.reach(point)?)
    }
}

/// Opens the state of a pool. Rebuilds a state file that is lost or blank from the images' marks.
fn open_store(layout: &Layout) -> Result<Store, Error> {
    let open = || Store::open(&layout.state(), &layout.ballast());
    if layout.has_images()? && (Store::is_lost(&layout.state()) || open()?.read(State::is_blank)) {
        tracing::warn!(folder = %layout.root().display(), "state file is lost, rebuilding from images");
        rebuild(layout.root())?;
    }
    Ok(open()?)
}

/// Whether files of the pool can share blocks; on a full disk, tested with an existing file.
fn can_share_blocks(layout: &Layout) -> Result<bool, Error> {
    match clone::reflink_supported(&layout.partial()) {
        Err(error) if error.is_full() => {
            let path = layout.identity();
            let file = files::open_to_write(&path).map_err(Error::file("open", &path))?;
            Ok(clone::shares_blocks(&file)?)
        }
        known => Ok(known?),
    }
}

fn identity_of(folder: &Path) -> Result<(u64, u64), Error> {
    let metadata = fs::metadata(folder).map_err(Error::file("look at", folder))?;
    Ok((metadata.dev(), metadata.ino()))
}

/// Space of the disk that holds `root`.
fn disk(root: &Path) -> Result<Disk, Error> {
    let usage = wharf_mount::space::usage(root)?;
    Ok(Disk { total: usage.total, available: usage.available })
}

/// Creates an ID of 128 random bits in hexadecimal.
fn fresh_id(prefix: &str) -> Result<String, Error> {
    let bytes: [u8; 16] = random()?;
    Ok(bytes.iter().fold(prefix.to_owned(), |id, byte| format!("{id}{byte:02x}")))
}

fn now() -> i128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i128::try_from(since.as_nanos()).unwrap_or(i128::MAX))
}

/// Removes a file. Succeeds if it does not exist.
fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            Err(Error::file("remove", path)(error))
        }
        _ => Ok(()),
    }
}

/// Refuses an image that is shorter than recorded.
fn ensure_length(image: &Path, recorded: u64, of: &str) -> Result<(), Error> {
    match fs::symlink_metadata(image) {
        Ok(there) if there.is_file() && there.len() < recorded => {
            Err(Error::Precondition(truncated(image, there.len(), recorded, of)))
        }
        // Opening it reports all other problems.
        _ => Ok(()),
    }
}

/// Message about a truncated image.
pub(crate) fn truncated(image: &Path, length: u64, recorded: u64, of: &str) -> String {
    format!(
        "image {} of {of} has {length} bytes, and {recorded} are recorded: its end is lost. Put the image back from a \
         backup, or delete {of}; what is left can be read from the image itself",
        image.display()
    )
}
