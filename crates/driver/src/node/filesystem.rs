//! The filesystem of a volume: created once, checked when its superblock asks for it, grown to its
//! device.

use std::{fs::File, os::unix::fs::FileExt, path::Path};

use wharf_mount::{
    Filesystem,
    check::{self, CheckOutcome},
    format::{self, FormatOptions},
    grow,
    loopdev::HeldLoop,
    mount::{self, MountOptions},
    probe::{self, Signature},
};

use super::NodeVolumes;
use crate::{
    devices::{self, ImageLock},
    error::{Error, chain},
    files,
    points::Point,
    record::{Content, Volume},
};

impl NodeVolumes {
    /// Returns the filesystem on the volume's device; formats a blank volume. Never formats over
    /// data.
    pub(super) fn ensure_filesystem(
        &self,
        volume: &Volume,
        device: &HeldLoop,
        wanted: Option<Filesystem>,
    ) -> Result<Filesystem, Error> {
        let own = match volume.content {
            Content::Filesystem(own) => own,
            // The image was not mounted since the format began: all data on it is from our mkfs.
            Content::Formatting(_) if device.read_only => return Err(nothing_to_read(volume)),
            Content::Formatting(own) => {
                refuse_claimed(device, "formatted")?;
                probe::wipe(&open(&device.path, true)?)?;
                return self.format(volume, device, wanted.unwrap_or(own));
            }
            Content::Blank => {
                let wanted = wanted.or(volume.filesystem).unwrap_or(Filesystem::Ext4);
                match self.found(volume, device)? {
                    Found::Nothing if device.read_only => return Err(nothing_to_read(volume)),
                    Found::Nothing => return self.format(volume, device, wanted),
                    Found::Filesystem(own) => own,
                    Found::Foreign(what) => {
                        return Err(Error::Precondition(format!(
                            "volume {} holds {what}, written through its block device: it is never formatted over; \
                             use it as a block volume, or wipe it there",
                            volume.id
                        )));
                    }
                }
            }
        };
        match wanted {
            Some(wanted) if wanted != own => Err(Error::Precondition(format!(
                "volume {} holds {own}, and {wanted} is asked for: ask for {own}, or for none",
                volume.id
            ))),
            _ => Ok(own),
        }
    }

    /// Checks the volume's filesystem if its superblock asks for it, and grows it if it cannot grow
    /// while mounted. Does neither if another process uses the volume.
    pub(super) fn prepare(&self, image: &ImageLock<'_>, volume: &Volume) -> Result<(), Error> {
        if matches!(volume.content, Content::Formatting(_)) {
            return Ok(());
        }
        let path = self.pool.image(volume);
        let file = files::open(&path).map_err(Error::file("open image", &path))?;
        let Signature::Ext4(state) = probe::probe(&file)? else { return Ok(()) };
        let unclean = state.errors || !(state.clean || state.needs_recovery);
        let fits = grow::fits(Filesystem::Ext4, &path)?;
        let Some(work) = OfflineWork::needed(unclean, fits, grow::ext4_grows_mounted()) else {
            return Ok(());
        };
        match image.ensure_detached("checked or grown") {
            // The stage uses this device, and cancels its pending detach.
            Err(Error::Precondition(reason)) => {
                tracing::warn!(
                    volume = volume.id,
                    ?work,
                    reason,
                    "skipped filesystem work, volume is in use"
                );
                return Ok(());
            }
            detached => detached?,
        }
        let limit = self.options.program_limit;
        self.pool.rework(image, volume, |path, undo| match work {
            OfflineWork::Check => match check::check(Filesystem::Ext4, path, undo, limit)? {
                CheckOutcome::Clean => Ok(()),
                CheckOutcome::Repaired => {
                    tracing::warn!(volume = volume.id, "repaired filesystem");
                    Ok(())
                }
                CheckOutcome::Damaged(what) => Err(damaged(volume, &what)),
            },
            OfflineWork::Grow => match grow::grow_offline_ext4(path, undo, limit) {
                Err(wharf_mount::Error::Malformed { detail, .. }) => Err(damaged(volume, &detail)),
                grown => Ok(grown?),
            },
        })
    }

    /// Mounts the volume's device.
    pub(super) fn mount(
        &self,
        device: &HeldLoop,
        target: &Path,
        filesystem: Filesystem,
        flags: &[String],
    ) -> Result<(), Error> {
        let mut flags = flags.to_vec();
        if filesystem == Filesystem::Xfs && !flags.iter().any(|flag| flag == "nouuid") {
            // A clone has the UUID of its source, and both may be mounted.
            flags.push("nouuid".to_owned());
        }
        let options = MountOptions { read_only: device.read_only, flags };
        Ok(mount::mount(&device.path, target, filesystem, &options)?)
    }

    /// Grows a mounted filesystem to the size of its device.
    pub(super) fn grow_mounted(
        &self,
        filesystem: Filesystem,
        device: &HeldLoop,
        point: &Path,
    ) -> Result<(), Error> {
        if device.read_only || grow::fits(filesystem, &device.path)? {
            return Ok(());
        }
        match grow::grow_mounted(filesystem, point) {
            Err(error @ wharf_mount::Error::NotPermitted { .. }) => Err(Error::Precondition(
                format!("{}; it grows at the next stage, when it is not mounted", chain(&error)),
            )),
            grown => Ok(grown?),
        }
    }

    fn format(
        &self,
        volume: &Volume,
        device: &HeldLoop,
        filesystem: Filesystem,
    ) -> Result<Filesystem, Error> {
        let smallest = format::minimum_size(filesystem);
        if volume.capacity < smallest {
            return Err(Error::Precondition(format!(
                "volume {} has {} bytes, and {filesystem} needs {smallest}",
                volume.id, volume.capacity
            )));
        }
        refuse_claimed(device, "formatted")?;
        self.pool.set_content(&volume.id, Content::Formatting(filesystem))?;
        self.pool.reach(Point::StageFormatting)?;
        // A discard would return the space of a thick volume to the pool.
        let zeroed = self.never_written(volume)?;
        let options = FormatOptions { discard: volume.thin, zeroed, ..FormatOptions::default() };
        format::format(filesystem, &device.path, &options, self.options.program_limit)?;
        self.pool.reach(Point::StageFormatted)?;
        self.pool.set_content(&volume.id, Content::Filesystem(filesystem))?;
        self.pool.reach(Point::StageFormatKept)?;
        Ok(filesystem)
    }

    /// Discards an unfinished format before another user writes to the device.
    pub(super) fn abandon_format(&self, volume: &Volume, device: &HeldLoop) -> Result<(), Error> {
        if matches!(volume.content, Content::Formatting(_)) && !device.read_only {
            refuse_claimed(device, "wiped")?;
            probe::wipe(&open(&device.path, true)?)?;
            self.pool.set_content(&volume.id, Content::Blank)?;
        }
        Ok(())
    }

    /// Detects the content of a blank volume.
    fn found(&self, volume: &Volume, device: &HeldLoop) -> Result<Found, Error> {
        Ok(match probe::probe(&open(&device.path, false)?)? {
            Signature::Ext4(_) => Found::Filesystem(Filesystem::Ext4),
            Signature::Xfs(_) => Found::Filesystem(Filesystem::Xfs),
            // A probe reads only the places of signatures.
            Signature::None => match self.first_data(volume)? {
                None => Found::Nothing,
                Some(offset) => Found::Foreign(format!("data at byte {offset}")),
            },
            other => Found::Foreign(other.to_string()),
        })
    }

    /// Returns the offset of the first byte that is not zero. Reads only allocated data.
    fn first_data(&self, volume: &Volume) -> Result<Option<u64>, Error> {
        let image = self.pool.image(volume);
        let file = files::open(&image).map_err(Error::file("open image", &image))?;
        let mut buffer = vec![0; 1 << 20];
        let mut offset = 0;
        while let Some(data) =
            next_data(&file, offset).map_err(Error::file("look at image", &image))?
        {
            let length =
                file.read_at(&mut buffer, data).map_err(Error::file("read image", &image))?;
            if let Some(index) = buffer[..length].iter().position(|byte| *byte != 0) {
                return Ok(Some(data + index as u64));
            }
            if length == 0 {
                break;
            }
            offset = data + length as u64;
        }
        Ok(None)
    }

    /// Whether the image reads as zeros everywhere, so that mkfs need not write them.
    fn never_written(&self, volume: &Volume) -> Result<bool, Error> {
        let image = self.pool.image(volume);
        let file = files::open(&image).map_err(Error::file("open image", &image))?;
        let data = next_data(&file, 0).map_err(Error::file("look at image", &image))?;
        Ok(data.is_none())
    }
}

/// Work on an ext4 before it is mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum OfflineWork {
    /// Its superblock records errors.
    Check,
    /// It is smaller than its image, and the kernel does not grow it while mounted. It is checked
    /// first.
    Grow,
}

impl OfflineWork {
    fn needed(unclean: bool, fits: bool, grows_mounted: bool) -> Option<Self> {
        match (unclean, fits || grows_mounted) {
            (_, false) => Some(Self::Grow),
            (true, true) => Some(Self::Check),
            (false, true) => None,
        }
    }
}

fn refuse_claimed(device: &HeldLoop, verb: &'static str) -> Result<(), Error> {
    if device.stays_claimed()? { Err(devices::in_use("volume", device, verb)) } else { Ok(()) }
}

fn damaged(volume: &Volume, what: &str) -> Error {
    Error::Precondition(format!(
        "the filesystem of volume {0} has damage that is not repaired automatically: {what}; repair it with \
         `wharf driver pool repair {0}`",
        volume.id
    ))
}

fn nothing_to_read(volume: &Volume) -> Error {
    let id = &volume.id;
    Error::Precondition(format!(
        "volume {id} was never written and is requested read-only: there is nothing to read"
    ))
}

/// Offset of the next data at or after `offset`; allocated but unwritten space is not data.
fn next_data(file: &File, offset: u64) -> std::io::Result<Option<u64>> {
    match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(offset)) {
        Ok(data) => Ok(Some(data)),
        Err(rustix::io::Errno::NXIO) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

enum Found {
    Nothing,
    Filesystem(Filesystem),
    Foreign(String),
}

fn open(device: &Path, write: bool) -> Result<File, Error> {
    File::options().read(true).write(write).open(device).map_err(Error::file("open", device))
}

#[cfg(test)]
mod tests {
    use super::OfflineWork::{self, Check, Grow};

    #[test]
    fn a_filesystem_grows_mounted_where_the_kernel_lets_it() {
        for (unclean, fits, grows_mounted, work) in [
            (false, true, false, None),
            (false, true, true, None),
            (false, false, true, None),
            (false, false, false, Some(Grow)),
            (true, true, false, Some(Check)),
            (true, false, true, Some(Check)),
            (true, false, false, Some(Grow)),
        ] {
            let needed = OfflineWork::needed(unclean, fits, grows_mounted);
            assert_eq!(needed, work, "unclean {unclean}, fits {fits}, online {grows_mounted}");
        }
    }
}
