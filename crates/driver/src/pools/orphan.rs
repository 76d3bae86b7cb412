//! Tears down volumes that no served pool knows: their pool is missing, or they were deleted.
//!
//! A pod must not wait for a disk that may never come back. The kernel knows the mounts, and the
//! notes of attached images ([`crate::state_dir::AttachedImages`]) name their volumes. An image of
//! a pool that this or another driver serves is never touched here. When the missing pool is
//! served again, its recovery finds that the volume is not mounted.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, mpsc},
    thread,
};

use wharf_mount::{
    loopdev::{self, HeldLoop, Loop},
    mount,
    mounted::Mounted,
    mountinfo, paths,
};

use super::{Pools, opening::ANSWER_WAIT};
use crate::{
    devices::shown_here,
    error::Error,
    node::remove_target,
    pool::{Layout, Pool, identity::short_of},
    state_dir::{AttachedImage, Note, image_of},
    store::State,
};

/// An attached image whose pool is not served.
struct Orphan {
    device: HeldLoop,
    /// Note of the attachment; `None` if an older release attached it.
    note: Option<AttachedImage>,
}

/// A pool that is not served.
#[derive(Clone)]
struct Unserved {
    folder: PathBuf,
    note: Option<Note>,
}

impl Pools {
    /// Unmounts a volume from a target, and removes the target.
    ///
    /// # Errors
    /// If something else is mounted there, or the volume's pool is being opened.
    pub fn unpublish_orphan(&self, volume: &str, target: &Path) -> Result<(), Error> {
        self.refuse_opening(volume)?;
        self.unmount_orphan(volume, target)?;
        remove_target(target)
    }

    /// Unmounts a volume from a staging path.
    ///
    /// # Errors
    /// If something else is mounted there, or the volume's pool is being opened.
    pub fn unstage_orphan(&self, volume: &str, path: &Path) -> Result<(), Error> {
        self.refuse_opening(volume)?;
        self.unmount_orphan(volume, path)
    }

    /// Returns a device that shows an image of a pool that is not served; without a note, an image
    /// of any pool that has none.
    fn attached_of(&self, pool: Option<&Note>) -> Result<Option<Loop>, Error> {
        let folders = pool.map(|pool| self.image_folders(&pool.folder)).unwrap_or_default();
        let noted = self.state_dir.notes();
        let of_pool = |orphan: &Orphan| match (&orphan.note, pool) {
            (Some(note), Some(pool)) => note.pool == pool.pool,
            (Some(note), None) => noted.values().all(|other| other.pool != note.pool),
            (None, _) => folders.iter().any(|it| orphan.device.backing.starts_with(it)),
        };
        let mut orphans = self.orphans(|_, _| true)?.into_iter().filter(of_pool);
        let found = orphans.find(|it| !self.is_foreign(&it.device, it.note.as_ref()));
        Ok(found.map(|orphan| orphan.device.into_loop()))
    }

    /// Like [`Self::attached_of`], with the usual timeout of a disk.
    ///
    /// # Errors
    /// If the kernel cannot be queried, or a disk hangs.
    pub(super) fn attached_of_in_time(
        self: &Arc<Self>,
        pool: Option<Note>,
    ) -> Result<Option<Loop>, Error> {
        let (pools, (answer, answers)) = (self.clone(), mpsc::channel());
        let folder = pool.as_ref().map(|pool| pool.folder.clone()).unwrap_or_default();
        let look = move || {
            let found = pools.attached_of(pool.as_ref());
            drop(pools);
            // The caller may have stopped waiting.
            let _ = answer.send(found);
        };
        let thread = thread::Builder::new().name("look for volumes".to_owned()).spawn(look);
        thread.map_err(Error::file("start a thread for", &folder))?;
        answers.recv_timeout(ANSWER_WAIT).unwrap_or_else(|_| {
            Err(Error::Unavailable(format!(
                "whether volumes of the pool are in use cannot be found out: a disk, perhaps that at {}, gave no answer in \
                 {ANSWER_WAIT:?}; call again once it answers or is unmounted",
                folder.display()
            )))
        })
    }

    /// Thaws orphans, and waits as long as a disk may take.
    pub(super) fn thaw_orphans_in_time(self: &Arc<Self>) {
        let (pools, (ended, end)) = (self.clone(), mpsc::channel::<()>());
        let thaw = move || {
            pools.thaw_orphans();
            drop((pools, ended));
        };
        match thread::Builder::new().name("thaw".to_owned()).spawn(thaw) {
            // The channel carries no messages: it disconnects when the thread ends.
            Ok(_) => drop(end.recv_timeout(ANSWER_WAIT)),
            Err(error) => tracing::warn!(%error, "failed to start thread to thaw volumes"),
        }
    }

    /// Thaws filesystems that a kill left frozen and whose pool is not served; nothing else thaws
    /// them. A pool that is being opened thaws its volumes itself.
    fn thaw_orphans(&self) {
        match self.orphans(|_, _| true) {
            Ok(orphans) => {
                let missing = orphans.iter().filter(|orphan| {
                    let (device, note) = (&orphan.device, orphan.note.as_ref());
                    !self.is_opening(device) && !self.is_foreign(device, note)
                });
                missing.for_each(|orphan| thaw_or_warn(&orphan.device));
            }
            Err(error) => {
                tracing::warn!(%error, "failed to find frozen volumes of unserved pools");
            }
        }
    }

    fn unmount_orphan(&self, volume: &str, path: &Path) -> Result<(), Error> {
        paths::refuse_symlinks_below(&self.options.node.kubelet_root, path)?;
        while let Some(root) = mountinfo::root_at(path)? {
            let mut shown = None;
            for orphan in self.orphans_of(volume)? {
                if root.shows(orphan.device.device_number()?) {
                    shown = Some(orphan);
                }
            }
            let Some(orphan) = shown else { return Err(not_shown(volume, path)) };
            self.unmount_and_detach(orphan, volume, Some(path))?;
        }
        // A staged block volume has no mount.
        for orphan in self.orphans_of(volume)? {
            if orphan.note.is_some() && !self.is_foreign(&orphan.device, orphan.note.as_ref()) {
                self.unmount_and_detach(orphan, volume, None)?;
            }
        }
        Ok(())
    }

    /// Unmounts an image from a path, and detaches it if nothing shows it any more.
    fn unmount_and_detach(
        &self,
        orphan: Orphan,
        volume: &str,
        path: Option<&Path>,
    ) -> Result<(), Error> {
        let Orphan { device, note } = orphan;
        let lock = self.image_locks.lock_orphan(&device)?;
        // Check again under the lock: the pool may be served or being opened by now, and then its
        // records decide. Check in this order, since a pool is served before its opening ends.
        if self.is_opening(&device) || self.is_served(&device) {
            let text = format!("the pool of volume {volume} is served now or soon: call again");
            return Err(Error::Pending(text));
        }
        let Some(_unserved) = self.hold_unserved(&device, note.as_ref()) else {
            return Err(served_elsewhere(volume, path));
        };
        if let Some(path) = path {
            let number = device.device_number()?;
            if !mountinfo::root_at(path)?.is_some_and(|root| root.shows(number)) {
                return Ok(());
            }
            thaw_or_warn(&device);
            mount::unmount(path)?;
            tracing::warn!(volume, path = %path.display(), device = %device.path.display(), "unmounted volume of unserved pool");
        }
        unstage_inline(&device)?;
        if !shown_here(&device)?
            && lock.detach(device)?
            && let Some(note) = note
        {
            self.state_dir.attached().remove(&note.image);
        }
        Ok(())
    }

    /// Returns the devices that may show a volume which no served pool knows.
    fn orphans_of(&self, volume: &str) -> Result<Vec<Orphan>, Error> {
        self.orphans(|note, below| match (note, below) {
            (Some(note), _) => note.volume == volume,
            (None, Some(Unserved { note: Some(pool), .. })) => {
                short_of(volume).is_none_or(|short| pool.may_hold(short))
            }
            (None, below) => below.is_some(),
        })
    }

    /// Returns attached images of this driver that belong to no pool it serves, if `concerns`
    /// returns true for their note or pool. Filters first, since each remaining device is compared
    /// with all images of the served pools.
    fn orphans(
        &self,
        concerns: impl Fn(Option<&AttachedImage>, Option<&Unserved>) -> bool,
    ) -> Result<Vec<Orphan>, Error> {
        let unserved = self.unserved();
        let folders: Vec<_> =
            unserved.iter().map(|pool| (self.image_folders(&pool.folder), pool)).collect();
        let mut found = Vec::new();
        // Do not wait for disks here: devices that concern the caller are queried below.
        for device in loopdev::list_asking(|_| false)?.into_iter().map(|status| status.loopdev) {
            let note = self.state_dir.attached().of_device(&device);
            let is_below =
                |folders: &[PathBuf]| folders.iter().any(|it| device.backing.starts_with(it));
            let below = folders.iter().find(|(folders, _)| is_below(folders));
            let below = below.map(|(_, pool)| Unserved::clone(pool));
            let is_ours = note.is_some() || below.is_some();
            if !is_ours || !concerns(note.as_ref(), below.as_ref()) || self.is_served(&device) {
                continue;
            }
            let backing = Some(device.backing.as_path());
            if let Some(device) = HeldLoop::open(device.number, device.identity(), backing)? {
                found.push(Orphan { device, note });
            }
        }
        Ok(found)
    }

    /// Returns the pools that are configured or noted, and not served.
    fn unserved(&self) -> Vec<Unserved> {
        let notes = self.state_dir.notes();
        let slots = self.slots();
        let absent = slots.values().filter(|slot| slot.served().is_none()).map(|slot| Unserved {
            folder: slot.config.folder.clone(),
            note: notes.get(&slot.config.name).cloned(),
        });
        let unconfigured = notes.iter().filter(|(name, _)| !slots.contains_key(*name));
        let unconfigured = unconfigured
            .map(|(_, note)| Unserved { folder: note.folder.clone(), note: Some(note.clone()) });
        absent.chain(unconfigured).collect()
    }

    /// Whether a device shows an image of a served pool.
    fn is_served(&self, device: &Loop) -> bool {
        self.served().iter().any(|served| owns(&served.pool, device))
    }
}

/// Whether a device shows an image of a pool: by its inode, by the pool's hints, or by its random
/// name if the disk does not respond.
fn owns(pool: &Pool, device: &Loop) -> bool {
    let name = image_of(&device.backing);
    let is_named =
        |state: &State| state.volumes.iter().any(|volume| Some(&volume.image) == name.as_ref());
    if pool.store().read(is_named) || pool.devices().knows(device) {
        return true;
    }
    let images: Vec<_> =
        pool.store().read(|state| state.volumes.iter().map(|volume| pool.image(volume)).collect());
    images.iter().any(|image| pool.devices().shows(image, device))
}

/// Thaws the filesystem on a device. One that has shut down cannot be opened, and is unmounted all
/// the same.
fn thaw_or_warn(device: &HeldLoop) {
    if let Err(error) = thaw(device) {
        tracing::warn!(device = %device.path.display(), %error, "failed to thaw volume of unserved pool");
    }
}

/// Thaws the filesystem on a device, wherever it is mounted.
fn thaw(device: &HeldLoop) -> Result<(), Error> {
    let number = device.device_number()?;
    for mount in mountinfo::of_device(number)? {
        // A mount that is covered by a second mount cannot be opened by its path.
        if let Some(filesystem) = Mounted::of_device(&mount.point, number)? {
            if filesystem.thaw()? {
                tracing::warn!(mount = %mount.point.display(), "thawed filesystem after a crash");
            }
            return Ok(());
        }
    }
    Ok(())
}

fn not_shown(volume: &str, path: &Path) -> Error {
    Error::Precondition(format!(
        "{} is a mount of something else than volume {volume}: unpublish or unstage the volume that it shows, or unmount it \
         by hand",
        path.display()
    ))
}

fn served_elsewhere(volume: &str, path: Option<&Path>) -> Error {
    let place = path.map_or_else(|| "a device".to_owned(), |path| path.display().to_string());
    Error::Precondition(format!(
        "{place} shows an image of a pool that another process serves, and volume {volume} is not on a pool of this driver: \
         call the driver that serves the pool"
    ))
}

/// Unmounts an inline volume from its pool's staging folder if it is mounted nowhere else: no other
/// call unstages it.
fn unstage_inline(device: &HeldLoop) -> Result<(), Error> {
    let Some(image) = image_of(&device.backing) else { return Ok(()) };
    let staging = Layout::new("").ephemeral(&image);
    let mounts = mountinfo::of_device(device.device_number()?)?;
    if mounts.iter().all(|mount| mount.point.ends_with(&staging)) {
        for mount in &mounts {
            mount::unmount(&mount.point)?;
        }
    }
    Ok(())
}
