//! A pool in an image: an XFS filesystem for folders whose own filesystem cannot share blocks.

use std::{
    fs::{self, File},
    io::ErrorKind,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
    time::Duration,
};

use wharf_mount::{
    Filesystem,
    format::{self, FormatOptions},
    loopdev::{self, HeldLoop, LoopOptions},
    mount::{self, MountOptions},
    mountinfo,
    probe::{self, Signature},
    space, sync,
};

use crate::{error::Error, files, pool::Layout, private};

const IMAGE: &str = "pool.img";
const MOUNT_POINT: &str = "pool";

/// Folder of a pool's files: `root`, or the mount point of the image in it.
pub fn folder(root: &Path) -> PathBuf {
    if exists(root) { mount_point(root) } else { root.to_owned() }
}

/// Mount point of the pool image in `root`.
pub fn mount_point(root: &Path) -> PathBuf {
    root.join(MOUNT_POINT)
}

/// Whether a pool's folder has a pool image.
pub fn exists(root: &Path) -> bool {
    is_there(&root.join(IMAGE))
}

/// Mounts the pool image in `root`, if there is one, and returns the folder of the pool's files.
/// Creates a missing image if `size` is given. Never grows an image or formats over data.
///
/// # Errors
/// If there is no space, mkfs.xfs is missing, the image has other content, or something else is
/// mounted in its place.
pub fn open(root: &Path, size: Option<u64>, limit: Duration) -> Result<PathBuf, Error> {
    let (image, point) = (root.join(IMAGE), mount_point(root));
    if size.is_none() && !is_there(&image) {
        return Ok(root.to_owned());
    }
    refuse_second_pool(root)?;
    if let Some(size) = size
        && !is_there(&image)
    {
        make(root, &image, size, limit)?;
    }
    private::create_own_folder(&point)?;
    private::mend_root(root)?;
    let file = files::open_to_write(&image);
    let file = file.map_err(Error::file("open pool image", &image))?;
    let attached = attached(&file, &image)?;
    if let Some(mounted) = mountinfo::root_at(&point)? {
        let own = attached.map(|device| device.device_number()).transpose()?;
        if own == Some(mounted.device) {
            return Ok(point);
        }
        return Err(Error::Precondition(format!(
            "{} is a mount of something else than {}: unmount it",
            point.display(),
            image.display()
        )));
    }
    let Signature::Xfs(_) = probe::probe(&file)? else {
        return Err(Error::Precondition(format!(
            "{} holds no XFS filesystem: move it away",
            image.display()
        )));
    };
    let device = match attached {
        Some(mut device) => {
            device.cancel_detach()?;
            device
        }
        None => loopdev::attach(&file, &LoopOptions { direct_io: true, ..LoopOptions::default() })?,
    };
    let options = MountOptions { read_only: false, flags: Vec::new() };
    mount::mount(&device.path, &point, Filesystem::Xfs, &options)?;
    Ok(point)
}

/// Unmounts and detaches the image of a pool that is no longer served. Mounts and devices that
/// other processes use stay.
///
/// # Errors
/// If the filesystem or the image is in use, or the kernel cannot be queried.
pub fn close(root: &Path) -> Result<(), Error> {
    let (image, point) = (root.join(IMAGE), mount_point(root));
    let file = match files::open(&image) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(()),
        file => file.map_err(Error::file("open pool image", &image))?,
    };
    let Some(device) = attached(&file, &image)? else { return Ok(()) };
    let number = device.device_number()?;
    if mountinfo::root_at(&point)?.is_some_and(|root| root.device == number) {
        mount::unmount(&point)?;
    }
    if mountinfo::of_device(number)?.is_empty() {
        loopdev::detach(&device.into_loop())?;
    }
    Ok(())
}

/// Refuses a folder with the files of a pool: a pool image next to them would be served instead,
/// and their volumes would be unknown.
///
/// # Errors
/// If there are such files, or they cannot be read.
pub(crate) fn refuse_second_pool(root: &Path) -> Result<(), Error> {
    let image = &root.join(IMAGE);
    if !Layout::new(root).holds_pool()? {
        return Ok(());
    }
    let (folder, other) = (root.display(), image.display());
    Err(Error::Precondition(if is_there(image) {
        format!(
            "{folder} holds two pools: one whose files lie in the folder itself, and {other}: move the files of one of them \
             away"
        )
    } else {
        format!(
            "{folder} holds a pool already, whose files lie in the folder itself, and {other} would take its place: remove \
             --pool-image (`image` in a --config file), or name an empty folder"
        )
    }))
}

/// Creates the image atomically: it is formatted under another name.
fn make(root: &Path, image: &Path, size: u64, limit: Duration) -> Result<(), Error> {
    let partial = root.join(format!(".{IMAGE}.partial"));
    let file = files::create_anew(&partial);
    let file = file.map_err(Error::file("create pool image", &partial))?;
    space::allocate(&file, size, true)?;
    let options = FormatOptions { label: Some("wharf".to_owned()), ..FormatOptions::default() };
    format::format(Filesystem::Xfs, &partial, &options, limit)?;
    file.sync_all().map_err(Error::file("flush pool image", &partial))?;
    fs::rename(&partial, image).map_err(Error::file("rename", &partial))?;
    Ok(sync::folder(root)?)
}

/// Whether the image's name is taken, even by a dangling symlink.
fn is_there(image: &Path) -> bool {
    fs::symlink_metadata(image).is_ok()
}

fn attached(file: &File, image: &Path) -> Result<Option<HeldLoop>, Error> {
    let metadata = file.metadata().map_err(Error::file("look at pool image", image))?;
    let identity = (metadata.dev(), metadata.ino());
    let is_named = |backing: &Path| backing.file_name() == image.file_name();
    let loops = loopdev::list_asking(is_named)?.into_iter().map(|status| status.loopdev);
    match loops.into_iter().find(|device| device.identity() == identity) {
        Some(device) => Ok(HeldLoop::open(device.number, identity, None)?),
        None => Ok(None),
    }
}
