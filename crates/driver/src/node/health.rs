//! Health of volumes and of the pool.

use std::{fs, path::Path, sync::Arc};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};
use wharf_mount::{
    loopdev::{HeldLoop, Loop},
    space,
};

use super::{NodeVolumes, stage::mounted_from};
use crate::{
    devices,
    error::{Error, chain},
    pool,
    record::{Access, Stage, Volume},
};

/// Images with more extents are slow to copy: about 25 microseconds per extent.
const MANY_EXTENTS: u32 = 40_000;

/// Severity of a problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// It works with reduced performance or safety.
    Degraded,
    /// It cannot be used.
    Inaccessible,
    /// Data is lost.
    DataLoss,
}

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ailment {
    /// Severity.
    pub severity: Severity,
    /// One CamelCase word for machines.
    pub reason: &'static str,
    /// Text for people.
    pub message: String,
}

impl NodeVolumes {
    /// Returns the problems of a volume; empty if it is healthy.
    ///
    /// # Errors
    /// If the volume does not exist, or the kernel cannot be queried.
    pub fn volume_health(&self, id: &str) -> Result<Vec<Ailment>, Error> {
        self.examine(&*self.pool.whole_volume(id)?)
    }

    /// Returns the problems of each of many volumes.
    ///
    /// # Errors
    /// If the kernel cannot be queried.
    pub fn examine_all(&self, volumes: &[Arc<Volume>]) -> Result<Vec<Vec<Ailment>>, Error> {
        volumes.iter().map(|volume| self.examine(volume)).collect()
    }

    /// Returns the worst problem of the pool; `None` if it is healthy.
    pub fn pool_health(&self) -> Option<Ailment> {
        let account = match self.pool.account() {
            Ok(account) => account,
            Err(error) => {
                return Some(ailment(Severity::Inaccessible, "PoolUnreadable", error.to_string()));
            }
        };
        let root = self.pool.layout().root();
        if let Some(error) = write_failure(root) {
            let message = format!("{}: {error}", root.display());
            return Some(ailment(Severity::Inaccessible, "PoolReadOnly", message));
        }
        if account.below_floor() {
            let message = format!(
                "{} bytes are available, {} must be kept free (--floor): nothing new is created",
                account.disk.available, account.floor
            );
            return Some(ailment(Severity::Degraded, "PoolNearlyFull", message));
        }
        (account.below_thin_floor() && account.thin_promised > 0).then(|| {
            let message = format!(
                "{} bytes are available: below {} (--thin-floor) nothing thin is created or grown, and writes to thin volumes \
                 fail when the pool is full",
                account.disk.available, account.thin_floor
            );
            ailment(Severity::Degraded, "PoolAlmostFull", message)
        })
    }

    /// Returns a problem if a volume may soon lack space that is not allocated yet.
    fn examine_space(&self, volume: &Volume) -> Option<Ailment> {
        let account = self.pool.account().ok()?;
        let low = match volume.thin {
            true => account.below_thin_floor() || account.below_floor(),
            false => account.below_floor() && self.pool.shares_blocks(volume),
        };
        let why = match volume.thin {
            true => "it is thin: its writes fail when the pool is full",
            false => {
                "it shares blocks with a copy that is not unshared yet: its writes may fail until then"
            }
        };
        let available = account.disk.available;
        let message = format!("the pool has {available} bytes available, and {why}");
        low.then(|| ailment(Severity::Degraded, "PoolAlmostFull", message))
    }

    fn examine(&self, volume: &Volume) -> Result<Vec<Ailment>, Error> {
        let image = self.pool.image(volume);
        let length = match fs::metadata(&image) {
            Ok(metadata) => metadata.len(),
            Err(error) => {
                let message = format!("{}: {error}", image.display());
                return Ok(vec![ailment(Severity::DataLoss, "ImageMissing", message)]);
            }
        };
        let mut found: Vec<_> = self.examine_space(volume).into_iter().collect();
        if length < volume.capacity {
            let of = format!("volume {}", volume.id);
            let message = pool::truncated(&image, length, volume.capacity, &of);
            found.push(ailment(Severity::DataLoss, "ImageTruncated", message));
        }
        let footprint = self.pool.backend(volume.backend).footprint(&image);
        if let Ok(footprint) = footprint
            && footprint.extents > MANY_EXTENTS
        {
            let message =
                format!("its image has {} extents: snapshots are slow", footprint.extents);
            found.push(ailment(Severity::Degraded, "Fragmented", message));
        }
        if let Some(stage) = volume.stage.as_ref().filter(|stage| stage.complete) {
            let devices = self.pool.devices().find(&image)?;
            found.extend(examine_stage(&devices, stage)?);
            found.extend(self.examine_device(&image, devices.first())?);
        }
        Ok(found)
    }

    /// Returns problems with the devices of a staged volume's image.
    fn examine_device(
        &self,
        image: &Path,
        device: Option<&HeldLoop>,
    ) -> Result<Vec<Ailment>, Error> {
        let Some(device) = device else { return Ok(Vec::new()) };
        if self.pool.devices().shows_old_file(image, device)? {
            let message = devices::replaced(image, device).to_string();
            return Ok(vec![ailment(Severity::Degraded, "ImageReplaced", message)]);
        }
        let Some(second) = self.pool.devices().second_writer(image)? else { return Ok(Vec::new()) };
        let message = format!(
            "its image is also attached to {}: writes there and to {} destroy its data; detach it by hand",
            second.path.display(),
            device.path.display()
        );
        Ok(vec![ailment(Severity::Degraded, "SecondDevice", message)])
    }
}

fn examine_stage(devices: &[HeldLoop], stage: &Stage) -> Result<Vec<Ailment>, Error> {
    let inaccessible = |reason, message| Ok(vec![ailment(Severity::Inaccessible, reason, message)]);
    let Some(device) = devices.first() else {
        return inaccessible(
            "DeviceMissing",
            "it is staged, but its loop device is missing".to_owned(),
        );
    };
    if stage.usage.access == Access::Block {
        return Ok(Vec::new());
    }
    if !mounted_from(device, &stage.path)? {
        let message = format!("it is staged at {}, and not mounted there", stage.path.display());
        return inaccessible("MountMissing", message);
    }
    let mut found = Vec::new();
    match space::usage(&stage.path) {
        Err(error) => {
            found.push(ailment(Severity::Inaccessible, "FilesystemShutDown", chain(&error)));
        }
        Ok(usage) if (usage.read_only || stopped(device)) && !device.read_only => {
            let message = "its filesystem turned read-only after an error".to_owned();
            found.push(ailment(Severity::Inaccessible, "TurnedReadOnly", message));
        }
        Ok(_) => {}
    }
    if let Some(errors) = ext4_errors(device).filter(|errors| *errors > 0) {
        let message =
            format!("ext4 counted {errors} errors: unmount it, it is checked at the next stage");
        found.push(ailment(Severity::Degraded, "FilesystemErrors", message));
    }
    Ok(found)
}

/// Whether ext4 has stopped after an error, which newer kernels report only among its options.
fn stopped(device: &Loop) -> bool {
    let file = format!("/proc/fs/ext4/loop{}/options", device.number);
    let options = fs::read_to_string(file).unwrap_or_default();
    options.lines().any(|option| option == "emergency_ro")
}

/// Returns why a folder's filesystem refuses writes, except for lack of space. Tries to create an
/// unnamed file: a filesystem that stopped after an error still reports itself as writable.
pub(super) fn write_failure(folder: &Path) -> Option<Errno> {
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    match rustix::fs::open(folder, flags, Mode::WUSR) {
        Ok(_) | Err(Errno::NOSPC | Errno::DQUOT) => None,
        // Without O_TMPFILE, check the permissions instead.
        Err(Errno::OPNOTSUPP | Errno::ISDIR) => {
            rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).err()
        }
        Err(errno) => Some(errno),
    }
}

/// Returns the number of errors that ext4 has recorded for a device; `None` for other filesystems.
fn ext4_errors(device: &Loop) -> Option<u64> {
    let file = format!("/sys/fs/ext4/loop{}/errors_count", device.number);
    fs::read_to_string(file).ok()?.trim().parse().ok()
}

fn ailment(severity: Severity, reason: &'static str, message: String) -> Ailment {
    Ailment { severity, reason, message }
}
