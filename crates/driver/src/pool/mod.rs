//! A pool: images in a folder, and what is promised to them.
//!
//! Every change is the same dance: promise (commit), act under a temporary name, flush, rename, flush the folder, commit.
//! Whatever instruction a crash falls on, what is found at the next start is either the promise, which a retry keeps under
//! the same id, or the whole thing. Calls block, and callers see to it that no two of them work on one object.

mod attach;
mod cut;
mod expand;
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

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

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

use crate::backend::{Backend, BackendKind, Images};
pub use crate::devices::ImageLocks;
use crate::devices::{Devices, ImageLock, Place};
use crate::error::Error;
use crate::files;
use crate::points::Point;
use crate::private;
use crate::random;
use crate::record::{Snapshot, Volume};
use crate::store::{State, Store};

/// How a pool is run.
#[derive(Clone, Debug)]
pub struct PoolOptions {
    /// What an operator may change later.
    pub settings: PoolSettings,
    /// For how long a filesystem may stand still while it is copied.
    pub freeze_limit: Duration,
    /// Where a crash is asked for; in production nowhere.
    pub faults: FaultPlan,
    /// The locks of images, which all pools of a driver share.
    pub image_locks: ImageLocks,
}

/// The usual settings, ten seconds to stand still, no crashes.
impl Default for PoolOptions {
    fn default() -> Self {
        let freeze_limit = Duration::from_secs(10);
        let (settings, faults) = (PoolSettings::default(), FaultPlan::none());
        Self { settings, freeze_limit, faults, image_locks: ImageLocks::default() }
    }
}

/// A pool that this process owns.
#[derive(Debug)]
pub struct Pool {
    layout: Layout,
    id: PoolId,
    /// The device number and inode of its folder.
    folder: (u64, u64),
    store: Store,
    devices: Devices,
    reflink: bool,
    /// Its filesystem overwrites nothing in place unless it is told to.
    copy_on_write: bool,
    /// Nobody else keeps files on the pool's filesystem.
    own_filesystem: AtomicBool,
    options: PoolOptions,
    settings: RwLock<PoolSettings>,
    unsharing: unshare::Unsharing,
    /// Held while an expansion is finished for a copy.
    settling: Mutex<()>,
}

impl Pool {
    /// Opens the pool in `root`, or makes one there, and brings it to a state from which every call can go on.
    ///
    /// # Errors
    /// When the folder cannot be used or another process owns it.
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

    /// Where its files lie.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Its identity.
    pub fn id(&self) -> PoolId {
        self.id
    }

    /// The device number and inode of its folder when it was opened.
    pub(crate) fn folder_identity(&self) -> (u64, u64) {
        self.folder
    }

    /// The device number of its filesystem when it was opened.
    pub(crate) fn disk(&self) -> u64 {
        self.folder.0
    }

    /// Refuses to go on when the pool's folder is another one than when the pool was opened.
    ///
    /// # Errors
    /// When its disk was unmounted, another one was mounted over it, or the folder was replaced.
    pub fn ensure_present(&self) -> Result<(), Error> {
        let (root, id) = (self.layout.root().display(), self.id);
        match identity_of(self.layout.root()) {
            Ok(folder) if folder == self.folder => Ok(()),
            Err(Error::File { source, .. }) if source.kind() != io::ErrorKind::NotFound => {
                Err(Error::Unavailable(format!(
                    "the disk of the pool ({id}) at {root} fails: {source}; look at the kernel's log, mount it anew and restart \
                     the driver"
                )))
            }
            _ => Err(Error::Unavailable(format!(
                "{root} no longer shows the disk or folder of the pool ({id}): mount it there again, and restart the driver"
            ))),
        }
    }

    /// A new id for an object of this pool, which names the pool.
    fn new_id(&self, kind: &str) -> Result<String, Error> {
        fresh_id(&format!("{kind}-{}-", self.id.short()))
    }

    /// Its settings as they are now.
    pub fn settings(&self) -> PoolSettings {
        *self.settings.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes its settings. Calls under way finish with the old ones.
    pub fn change_settings(&self, change: impl FnOnce(&mut PoolSettings)) {
        change(&mut self.settings.write().unwrap_or_else(PoisonError::into_inner));
        // Blocks that were shared may have to be unshared now.
        self.unsharing.wake.notify_one();
    }

    /// Its durable state.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The backend of new volumes that ask for none.
    pub fn default_backend(&self) -> BackendKind {
        if self.reflink { BackendKind::ImageReflink } else { BackendKind::ImageCopy }
    }

    /// Whether the pool's filesystem can serve this backend.
    pub fn supports(&self, backend: BackendKind) -> bool {
        self.reflink || backend == BackendKind::ImageCopy
    }

    /// The backend of this kind.
    pub fn backend(&self, kind: BackendKind) -> &'static dyn Backend {
        match kind {
            BackendKind::ImageReflink => &Images::REFLINK,
            BackendKind::ImageCopy => &Images::COPY,
        }
    }

    /// A volume, whatever its phase.
    ///
    /// # Errors
    /// When there is none.
    pub fn volume(&self, id: &str) -> Result<Arc<Volume>, Error> {
        self.store.read(|state| state.volumes.get(id).cloned()).ok_or_else(|| Error::no_volume(id))
    }

    /// A volume that is whole.
    ///
    /// # Errors
    /// When there is none: one that is on its way in or out does not exist for anybody else.
    pub fn whole_volume(&self, id: &str) -> Result<Arc<Volume>, Error> {
        self.volume(id).and_then(|volume| {
            if volume.is_whole() { Ok(volume) } else { Err(Error::no_volume(id)) }
        })
    }

    /// A snapshot, whatever its phase.
    ///
    /// # Errors
    /// When there is none.
    pub fn snapshot(&self, id: &str) -> Result<Arc<Snapshot>, Error> {
        self.store
            .read(|state| state.snapshots.get(id).cloned())
            .ok_or_else(|| Error::no_snapshot(id))
    }

    /// The loop devices of its images.
    pub(crate) fn devices(&self) -> &Devices {
        &self.devices
    }

    /// Locks a volume's image against all others that attach, mount, bind, detach or delete it.
    pub(crate) fn lock_image(&self, volume: &Volume) -> Result<ImageLock<'_>, Error> {
        self.devices.lock(&self.image(volume), !volume.thin)
    }

    /// Refuses to use a volume whose image lost its end: what is filled up with zeroes hides the loss.
    ///
    /// # Errors
    /// When the image is shorter than recorded.
    pub(crate) fn ensure_whole(&self, volume: &Volume) -> Result<(), Error> {
        ensure_length(&self.image(volume), volume.capacity, &format!("volume {}", volume.id))
    }

    /// How many detaches were left to others that hold the device.
    pub fn detaches_left_to_others(&self) -> u64 {
        self.devices.left_to_others()
    }

    /// The images of all volumes, and where the records say that they are mounted.
    fn places(&self) -> Vec<Place> {
        let place = |volume: &Arc<Volume>| {
            let staged = volume.stage.iter().map(|stage| &stage.path);
            let mounts = staged.chain(volume.publications.keys()).cloned().collect();
            Place { image: self.image(volume), mounts }
        };
        self.store.read(|state| state.volumes.iter().map(place).collect())
    }

    /// The image of a volume.
    pub fn image(&self, volume: &Volume) -> PathBuf {
        self.layout.volume(&volume.image)
    }

    /// What can still be promised, and why.
    ///
    /// # Errors
    /// When the disk does not say.
    pub fn account(&self) -> Result<Account, Error> {
        let (disk, settings) = (disk(self.layout.root())?, self.settings());
        Ok(self.store.read(|state| Account::of(state, disk, &settings)))
    }

    /// The pieces that the images in use lie in: of all of them, and of the one in the most.
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

    /// How many images are in quarantine.
    pub fn quarantined(&self) -> u64 {
        fs::read_dir(self.layout.quarantine()).map_or(0, |entries| entries.count() as u64)
    }

    /// Says that a step is done: the place where tests ask for a crash or a failure.
    pub(crate) fn reach(&self, point: Point) -> Result<(), Error> {
        Ok(self.options.faults.reach(point)?)
    }
}

/// Opens the state of a pool. A state file that is lost, or has never had a record, is made from the marks of the images.
fn open_store(layout: &Layout) -> Result<Store, Error> {
    let open = || Store::open(&layout.state(), &layout.ballast());
    if layout.has_images()? && (Store::is_lost(&layout.state()) || open()?.read(State::is_blank)) {
        tracing::warn!(folder = %layout.root().display(), "state file is lost, rebuilding it from the marks of the images");
        rebuild(layout.root())?;
    }
    Ok(open()?)
}

/// Whether files of the pool can share blocks. A full disk takes no new file, and is asked with one that is there.
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

/// The figures of the disk that `root` is on.
fn disk(root: &Path) -> Result<Disk, Error> {
    let usage = wharf_mount::space::usage(root)?;
    Ok(Disk { total: usage.total, available: usage.available })
}

/// A new id: 128 random bits in hexadecimal.
fn fresh_id(prefix: &str) -> Result<String, Error> {
    let bytes: [u8; 16] = random()?;
    Ok(bytes.iter().fold(prefix.to_owned(), |id, byte| format!("{id}{byte:02x}")))
}

fn now() -> i128 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| i128::try_from(since.as_nanos()).unwrap_or(i128::MAX))
}

/// Removes a file; one that is gone is as good.
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
        // Whoever opens it says what is wrong with anything else.
        _ => Ok(()),
    }
}

/// Says that an image lost its end.
pub(crate) fn truncated(image: &Path, length: u64, recorded: u64, of: &str) -> String {
    format!(
        "image {} of {of} has {length} bytes, and {recorded} are recorded: its end is lost. Put the image back from a \
         backup, or delete {of}; what is left can be read from the image itself",
        image.display()
    )
}
