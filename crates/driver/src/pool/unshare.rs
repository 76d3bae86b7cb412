//! Unshares copies: gives them their own blocks, one stretch at a time.
//!
//! A stretch is copied into the blocks of the copy's reserve, and these blocks are cloned into the
//! copy. This needs no free space, and the content of the copy does not change.
//! FALLOC_FL_UNSHARE_RANGE would allocate from free space, which a thin volume or a foreign file
//! may take first. Only images that are not attached are unshared: a write between the copying and
//! the cloning would be lost.
//!
//! A thick volume may overwrite its blocks in place as soon as the copy does not share them any
//! more. After a power cut the copy must not refer to these blocks again. So a third file, the pin,
//! shares them until the copy's new blocks are on disk.

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

/// Bytes moved per step, which is the longest that a deletion or stage of the image waits.
const STRETCH: u64 = 8 << 20;
/// Block size of filesystems that share blocks.
const BLOCK: u64 = 4096;
/// Pause after a failure of a copy, such as a full disk.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// State of the unsharing of a pool.
#[derive(Debug, Default)]
pub(super) struct Unsharing {
    /// Notified when there may be work.
    pub(super) wake: Notify,
    /// Copies that failed, with the time of their next attempt.
    resting: Mutex<HashMap<String, Instant>>,
    finished: Condvar,
}

/// Result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnshareStep {
    /// This many bytes were moved; there may be more work.
    Moved(u64),
    /// There is no work before this time has passed.
    Wait(Duration),
    /// There is no work.
    Idle,
}

/// An image to be unshared.
struct Copy {
    id: String,
    image: String,
    path: PathBuf,
    is_volume: bool,
}

impl Pool {
    /// Runs one step. Failures are logged and retried later.
    pub fn unshare_step(&self) -> UnshareStep {
        let now = Instant::now();
        let resting: HashMap<String, Instant> = {
            let mut resting = self.unsharing.resting();
            resting.retain(|_, until| *until > now);
            resting.clone()
        };
        let wait = resting.values().min().map(|until| until.duration_since(now));
        let idle = wait.map_or(UnshareStep::Idle, UnshareStep::Wait);
        // First reserve space for all copies, since thin volumes are refused until then. A copy in
        // use is reserved when it is unstaged.
        let shared = self.store.read(|state| self.sharing_policy().to_unshare(state));
        let mut free = shared.into_iter().filter(|it| !it.in_use);
        let (id, done) = if let Some(copy) = free.find(|it| !resting.contains_key(&it.id)) {
            (copy.id.clone(), self.begin_unsharing(&copy))
        } else if let Some(copy) = self.next_unsharing(&resting) {
            (copy.id.clone(), self.unshare_stretch(&copy))
        } else {
            return idle;
        };
        UnshareStep::Moved(done.unwrap_or_else(|error| {
            tracing::warn!(id, %error, "failed to unshare copy, retrying");
            self.unsharing.resting().insert(id, Instant::now() + RETRY_PAUSE);
            0
        }))
    }

    /// Waits until [`Pool::unshare_step`] may have something to do.
    pub async fn unsharing_wanted(&self) {
        self.unsharing.wake.notified().await;
    }

    /// Bytes that all copies still share and must not.
    pub fn unsharing_left(&self) -> u64 {
        let images: Vec<_> = self.store.read(|state| {
            let volumes = state.volumes.iter().filter(|it| it.blocks.is_unsharing());
            let snapshots = state.snapshots.iter().filter(|it| it.blocks.is_unsharing());
            let volumes = volumes.map(|it| it.image.clone());
            volumes.chain(snapshots.map(|it| it.image.clone())).collect()
        });
        images.iter().map(|image| self.reserve_left(image)).sum()
    }

    /// Waits up to `limit` until a volume is unshared; before that it must not be written.
    ///
    /// # Errors
    /// If the volume does not exist, or is not unshared in time; the error has the progress.
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

    /// Refuses a volume that is being unshared.
    pub(crate) fn refuse_unsharing(&self, volume: &Volume) -> Result<(), Error> {
        let Blocks::Unsharing { bytes } = volume.blocks else { return Ok(()) };
        let left = self.reserve_left(&volume.image);
        Err(Error::Pending(format!(
            "volume {} is a copy that is still being unshared ({} of {bytes} bytes to go): call again",
            volume.id,
            left.min(bytes)
        )))
    }

    /// Reports that a volume is no longer in use, which may have blocked its unsharing.
    pub(crate) fn volume_released(&self) {
        self.unsharing.wake.notify_one();
    }

    /// Reports a new copy. One that shares blocks with a `thick` volume may have been promised
    /// before the settings changed.
    pub(super) fn wake_unsharing(&self, id: &str, blocks: Blocks, thick: bool) {
        if let Blocks::Unsharing { bytes } = blocks {
            tracing::info!(id, bytes, "unsharing copy");
        }
        let promised_before =
            || thick && blocks == Blocks::Shared && self.reflink && !self.may_share();
        if blocks.is_unsharing() || promised_before() {
            self.unsharing.wake.notify_one();
        }
    }

    /// Returns the next image to work on. Volumes come first, since a pod may wait for one.
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

    /// Makes the reserve of an existing copy, and records that it is being unshared.
    fn begin_unsharing(&self, shared: &SharedCopy) -> Result<u64, Error> {
        let copy = match shared.is_volume {
            true => self.volume_copy(&*self.volume(&shared.id)?),
            false => self.snapshot_copy(&*self.snapshot(&shared.id)?),
        };
        let image = self.devices.lock(&copy.path, copy.is_volume)?;
        if !self.may_work_on(&copy, false)? {
            return Ok(0);
        }
        // A person may have attached it.
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

    /// Whether a reserve was changed by someone else: ours has only whole blocks.
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
            // After a crash: unpin the old blocks once the image's new ones are on disk.
            image.sync_all().map_err(Error::file("flush image", &copy.path))?;
            pin.set_len(0).map_err(Error::file("empty pin", &path))?;
        }
        let shared = unshare::shared(image, stretch.clone())?;
        // Blocks that a crash left shared between the two belong to the image already.
        let held = unshare::unshared(reserve, stretch.clone())?;
        // Shared ranges without a reserve are shared with a later copy, which has its own reserve.
        let shared = unshare::common(&shared, &held);
        if shared.is_empty() {
            return Ok(0);
        }
        unshare::copy(image, reserve, &shared)?;
        self.reach(Point::UnshareCopied)?;
        unshare::reflink(image, &pin, &shared)?;
        // The pin must be on disk before the image changes.
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
        // Only a rebuild reads the mark, and it detects a stale one.
        Mark::note_blocks(&copy.path, Blocks::Own).unwrap_or_else(|error| {
            tracing::warn!(id = copy.id, %error, "failed to mark copy as unshared");
        });
        self.set_blocks(copy, Blocks::Own, None)?;
        self.reach(Point::UnshareKept)?;
        self.remove_reserve(&copy.image)?;
        tracing::info!(id = copy.id, "unshared copy");
        let _resting = self.unsharing.resting();
        self.unsharing.finished.notify_all();
        Ok(0)
    }

    /// Whether a copy exists and is not in use. Call it with the image locked.
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

    /// Records the state of a copy's blocks, unless the copy was deleted or is in use meanwhile.
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
