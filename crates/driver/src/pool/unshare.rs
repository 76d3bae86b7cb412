//! Copies that get blocks of their own, one stretch after the other.
//!
//! A stretch is copied into the blocks of the copy's reserve, and these blocks are cloned into the copy: the disk needs no
//! free space for it, and the bytes of the copy stay what they are. FALLOC_FL_UNSHARE_RANGE would allocate from the free
//! space, where a thin volume or a foreign file may be faster. Only images are unshared that nobody has attached: between
//! the copying and the cloning a write to the image would be lost.
//!
//! A thick volume may overwrite its blocks in place as soon as the copy has given them up. A power cut must not bring the
//! copy back to those blocks. So a third file, the pin, shares them until the copy's new blocks are on disk.

use std::{
    collections::HashMap,
    fs::File,
    ops::Range,
    path::PathBuf,
    sync::{Condvar, Mutex, PoisonError},
    time::{Duration, Instant},
};

use tokio::sync::Notify;
use wharf_mount::{space, unshare};

use super::{Mark, Pool, fresh_id, sharing::SharedCopy};
use crate::{
    error::Error,
    files,
    points::Point,
    record::{Blocks, Phase, Snapshot, Volume},
};

/// Bytes that are moved at a time. Deletion and staging of the image wait for no more than this.
const STRETCH: u64 = 8 << 20;
/// Blocks of a filesystem that shares them.
const BLOCK: u64 = 4096;
/// How long a copy is left alone after a failure, such as a full disk.
const REST: Duration = Duration::from_secs(5);

/// What is known of copies that get blocks of their own.
#[derive(Debug, Default)]
pub(super) struct Unsharing {
    /// Notified when there may be something to do.
    pub(super) wake: Notify,
    /// Copies that failed, and when they are tried again.
    resting: Mutex<HashMap<String, Instant>>,
    finished: Condvar,
}

/// What a step of the unsharing did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnshareStep {
    /// So many bytes were read and written; there may be more to do.
    Moved(u64),
    /// Nothing can be done before this time has passed.
    Wait(Duration),
    /// Nothing is to be done.
    Idle,
}

/// An image that is worked on.
struct Copy {
    id: String,
    image: String,
    path: PathBuf,
    is_volume: bool,
}

impl Pool {
    /// Takes one step of the unsharing. Failures are logged, and tried again later.
    pub fn unshare_step(&self) -> UnshareStep {
        let now = Instant::now();
        let resting: HashMap<String, Instant> = {
            let mut resting = self.unsharing.resting();
            resting.retain(|_, until| *until > now);
            resting.clone()
        };
        let wait = resting.values().min().map(|until| until.duration_since(now));
        let idle = wait.map_or(UnshareStep::Idle, UnshareStep::Wait);
        // Space first, for all of them: nothing thin is created before. One in use has its turn when it is unstaged.
        let shared = self.store.read(|state| self.ground().to_unshare(state));
        let mut free = shared.into_iter().filter(|it| !it.in_use);
        let (id, done) = if let Some(copy) = free.find(|it| !resting.contains_key(&it.id)) {
            (copy.id.clone(), self.begin_unsharing(&copy))
        } else if let Some(copy) = self.next_unsharing(&resting) {
            (copy.id.clone(), self.unshare_stretch(&copy))
        } else {
            return idle;
        };
        UnshareStep::Moved(done.unwrap_or_else(|error| {
            tracing::warn!(id, %error, "failed to unshare a copy, retrying");
            self.unsharing.resting().insert(id, Instant::now() + REST);
            0
        }))
    }

    /// Waits until [`Pool::unshare_step`] may have something to do.
    pub async fn unsharing_wanted(&self) {
        self.unsharing.wake.notified().await;
    }

    /// Bytes that all copies together still share and should not.
    pub fn unsharing_left(&self) -> u64 {
        let images: Vec<_> = self.store.read(|state| {
            let volumes = state.volumes.iter().filter(|it| it.blocks.is_unsharing());
            let snapshots = state.snapshots.iter().filter(|it| it.blocks.is_unsharing());
            let volumes = volumes.map(|it| it.image.clone());
            volumes.chain(snapshots.map(|it| it.image.clone())).collect()
        });
        images.iter().map(|image| self.reserve_left(image)).sum()
    }

    /// Waits until a volume has blocks of its own, for no longer than `limit`: before that it must not be written.
    ///
    /// # Errors
    /// When there is no such volume, or it still has not when the time is up; the error says how far it has come.
    pub fn await_unshared(&self, id: &str, limit: Duration) -> Result<(), Error> {
        let deadline = Instant::now() + limit;
        let mut resting = self.unsharing.resting();
        loop {
            let volume = self.whole_volume(id)?;
            let left = deadline.saturating_duration_since(Instant::now());
            if !volume.blocks.is_unsharing() || left.is_zero() {
                return self.refuse_unsharing(&volume);
            }
            let waited = self.unsharing.finished.wait_timeout(resting, left);
            resting = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Refuses a volume that is getting blocks of its own.
    pub(crate) fn refuse_unsharing(&self, volume: &Volume) -> Result<(), Error> {
        let Blocks::Unsharing { bytes } = volume.blocks else { return Ok(()) };
        let left = self.reserve_left(&volume.image);
        Err(Error::Pending(format!(
            "volume {} is a copy that still gets blocks of its own ({} of {bytes} bytes to go): call again",
            volume.id,
            left.min(bytes)
        )))
    }

    /// Says that a volume is no longer in use, which may have kept it from being unshared.
    pub(crate) fn volume_released(&self) {
        self.unsharing.wake.notify_one();
    }

    /// Says that a copy was made. One that shares blocks with something `thick` may have been promised before the settings
    /// changed.
    pub(super) fn wake_unsharing(&self, id: &str, blocks: Blocks, thick: bool) {
        if let Blocks::Unsharing { bytes } = blocks {
            tracing::info!(id, bytes, "unsharing a copy");
        }
        let promised_before =
            || thick && blocks == Blocks::Shared && self.reflink && !self.may_share();
        if blocks.is_unsharing() || promised_before() {
            self.unsharing.wake.notify_one();
        }
    }

    /// The next image to work on. Volumes come first, since a pod may wait for one.
    fn next_unsharing(&self, resting: &HashMap<String, Instant>) -> Option<Copy> {
        self.store.read(|state| {
            let mut volumes = state.volumes.iter().filter(|it| it.is_whole() && !it.in_use());
            let volume = volumes
                .find(|it| it.blocks.is_unsharing() && !resting.contains_key(&it.id))
                .map(|volume| self.volume_copy(volume));
            volume.or_else(|| {
                let mut snapshots = state.snapshots.iter().filter(|it| it.phase == Phase::Ready);
                snapshots
                    .find(|it| it.blocks.is_unsharing() && !resting.contains_key(&it.id))
                    .map(|snapshot| self.snapshot_copy(snapshot))
            })
        })
    }

    /// Holds the space that an existing copy needs, and records that it is being unshared.
    fn begin_unsharing(&self, shared: &SharedCopy) -> Result<u64, Error> {
        let copy = match shared.is_volume {
            true => self.volume_copy(&*self.volume(&shared.id)?),
            false => self.snapshot_copy(&*self.snapshot(&shared.id)?),
        };
        let image = self.devices.lock(&copy.path, copy.is_volume)?;
        if !self.may_work_on(&copy, false)? {
            return Ok(0);
        }
        // Somebody may have attached it by hand.
        image.ensure_detached("unshared")?;
        let file = files::open(&copy.path);
        let file = file.map_err(Error::file("open image", &copy.path))?;
        let blocks = match self.reserve_shared(&copy.image, &file)? {
            0 => Blocks::Own,
            bytes => Blocks::Unsharing { bytes },
        };
        self.set_blocks(&copy, blocks, Some(fresh_id("family-")?))?;
        self.wake_unsharing(&copy.id, blocks, false);
        Ok(0)
    }

    /// Moves the last stretch of a copy's reserve into the copy. Returns the bytes moved.
    fn unshare_stretch(&self, copy: &Copy) -> Result<u64, Error> {
        let _image = self.devices.lock(&copy.path, copy.is_volume)?;
        if !self.may_work_on(copy, true)? {
            return Ok(0);
        }
        let image = files::open_to_write(&copy.path);
        let image = image.map_err(Error::file("open image", &copy.path))?;
        if self.is_reserve_damaged(copy) {
            self.remove_reserve(&copy.image)?;
        }
        if !self.layout.reserve(&copy.image).exists()
            && self.reserve_shared(&copy.image, &image)? == 0
        {
            return self.finish_unsharing(copy);
        }
        let (reserve, path) = self.open_reserve(&copy.image)?;
        let end = space::size(&reserve)?;
        if end == 0 {
            return self.finish_unsharing(copy);
        }
        let start = (end - 1) / STRETCH * STRETCH;
        let moved = self.move_blocks(copy, &image, &reserve, start..end)?;
        reserve.set_len(start).map_err(Error::file("shorten reserve", path))?;
        self.reach(Point::UnshareShortened)?;
        Ok(moved)
    }

    /// Whether somebody changed the reserve of a copy: the driver leaves whole blocks of a file.
    fn is_reserve_damaged(&self, copy: &Copy) -> bool {
        let reserve = std::fs::symlink_metadata(self.layout.reserve(&copy.image));
        let pin = std::fs::symlink_metadata(self.layout.pin(&copy.image));
        reserve.is_ok_and(|it| !it.is_file() || it.len() % BLOCK != 0)
            || pin.is_ok_and(|it| !it.is_file())
    }

    fn move_blocks(
        &self,
        copy: &Copy,
        image: &File,
        reserve: &File,
        stretch: Range<u64>,
    ) -> Result<u64, Error> {
        let path = self.layout.pin(&copy.image);
        let pin = files::open_or_create(&path);
        let pin = pin.map_err(Error::file("open pin", &path))?;
        if space::size(&pin)? > 0 {
            // After a crash: its blocks may be overwritten once the image's new ones are on disk.
            image.sync_all().map_err(Error::file("flush image", &copy.path))?;
            pin.set_len(0).map_err(Error::file("empty pin", &path))?;
        }
        let shared = unshare::shared(image, stretch.clone())?;
        // Blocks that a crash left shared between the two are the image's already.
        let held = unshare::unshared(reserve, stretch.clone())?;
        // What is shared without a reserve is shared with a later copy, which has one.
        let shared = unshare::common(&shared, &held);
        if shared.is_empty() {
            return Ok(0);
        }
        unshare::copy(image, reserve, &shared)?;
        self.reach(Point::UnshareCopied)?;
        unshare::reflink(image, &pin, &shared)?;
        // The pin has to be on disk before the image changes.
        pin.sync_all().map_err(Error::file("flush pin", &path))?;
        self.reach(Point::UnsharePinned)?;
        unshare::reflink(reserve, image, &shared)?;
        self.reach(Point::UnshareCloned)?;
        image.sync_all().map_err(Error::file("flush image", &copy.path))?;
        self.reach(Point::UnshareMoved)?;
        pin.set_len(0).map_err(Error::file("empty pin", &path))?;
        unshare::forget_cached(image, stretch.clone());
        unshare::forget_cached(reserve, stretch);
        Ok(unshare::length(&shared))
    }

    fn finish_unsharing(&self, copy: &Copy) -> Result<u64, Error> {
        // Only a rebuild reads the mark, and it finds out by itself if the mark could not be written.
        Mark::note_blocks(&copy.path, Blocks::Own).unwrap_or_else(|error| {
            tracing::warn!(id = copy.id, %error, "failed to mark a copy as unshared");
        });
        self.set_blocks(copy, Blocks::Own, None)?;
        self.reach(Point::UnshareKept)?;
        self.remove_reserve(&copy.image)?;
        tracing::info!(id = copy.id, "unshared a copy");
        let _resting = self.unsharing.resting();
        self.unsharing.finished.notify_all();
        Ok(0)
    }

    /// Whether a copy is there and nobody uses its image. To be asked while the image is locked.
    fn may_work_on(&self, copy: &Copy, unsharing: bool) -> Result<bool, Error> {
        if !copy.is_volume {
            let found = self.snapshot(&copy.id);
            return Ok(found.is_ok_and(|it| {
                it.phase == Phase::Ready && it.blocks.is_unsharing() == unsharing
            }));
        }
        let Ok(volume) = self.volume(&copy.id) else { return Ok(false) };
        if !volume.is_whole() || volume.in_use() || volume.blocks.is_unsharing() != unsharing {
            return Ok(false);
        }
        match self.devices.find(&copy.path)?.first() {
            None => Ok(true),
            Some(device) => Err(crate::devices::in_use("copy", device, "unshared")),
        }
    }

    /// Records whose the blocks of a copy are, unless it was deleted or is used meanwhile.
    fn set_blocks(&self, copy: &Copy, blocks: Blocks, family: Option<String>) -> Result<(), Error> {
        let (id, is_volume) = (copy.id.clone(), copy.is_volume);
        self.store.update(move |draft| {
            let free = match is_volume {
                true => draft.volumes.get(&id).is_some_and(|it| it.is_whole() && !it.in_use()),
                false => draft.snapshots.get(&id).is_some_and(|it| it.phase == Phase::Ready),
            };
            if !free {
                return Err(Error::Pending(format!("{id} is in use or being deleted")));
            }
            if is_volume {
                draft.edit(&id, |it: &mut Volume| {
                    it.blocks = blocks;
                    it.family = family.unwrap_or_else(|| it.family.clone());
                });
            } else {
                draft.edit(&id, |it: &mut Snapshot| {
                    it.blocks = blocks;
                    it.family = family.unwrap_or_else(|| it.family.clone());
                });
            }
            Ok(())
        })
    }

    fn volume_copy(&self, volume: &Volume) -> Copy {
        let (id, image) = (volume.id.clone(), volume.image.clone());
        Copy { id, image, path: self.image(volume), is_volume: true }
    }

    fn snapshot_copy(&self, snapshot: &Snapshot) -> Copy {
        let (id, image) = (snapshot.id.clone(), snapshot.image.clone());
        Copy { id, path: self.layout.snapshot(&image), image, is_volume: false }
    }
}

impl Unsharing {
    fn resting(&self) -> std::sync::MutexGuard<'_, HashMap<String, Instant>> {
        self.resting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
