//! mount(2), for kernels before 5.2.

use std::{ffi::CString, fs::File, path::Path};

use rustix::{
    io::Errno,
    mount::{MountFlags, UnmountFlags, mount_bind, mount_remount},
};

use super::{by_handle, flags::Flags};
use crate::{Filesystem, paths::open_handle};

pub(super) fn mount(
    device: &Path,
    point: &File,
    fs: Filesystem,
    flags: &Flags,
) -> Result<(), Errno> {
    let data = CString::new(flags.data()).map_err(|_| Errno::INVAL)?;
    let bits = MountFlags::from_bits_retain(flags.bits);
    rustix::mount::mount(device, by_handle(point), fs.kernel_name(), bits, data.as_c_str())
}

/// Creates a bind mount. A read-only one is writable for a moment: mount(2) needs a second step to
/// restrict it.
pub(super) fn bind(from: &File, point: &File, target: &Path, read_only: bool) -> Result<(), Errno> {
    mount_bind(by_handle(from), by_handle(point))?;
    if !read_only {
        return Ok(());
    }
    // The handle refers to the folder below the new mount: open the target again to reach the
    // mount's root.
    let restricted = open_handle(target).map_err(|_| Errno::NOENT).and_then(|root| {
        mount_remount(by_handle(&root), MountFlags::BIND | MountFlags::RDONLY, "")
    });
    if restricted.is_err() {
        let _ = rustix::mount::unmount(target, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
    }
    restricted
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use wharf_testkit::skip;

    use super::*;
    use crate::{
        format::{FormatOptions, format},
        loopdev::{self, Loop, LoopOptions},
        mount::MountOptions,
        mountinfo,
    };

    /// A mount point that is unmounted on drop, with the loop device mounted there.
    struct Point(tempfile::TempDir, Option<Loop>);

    impl Drop for Point {
        fn drop(&mut self) {
            let _ = rustix::mount::unmount(self.0.path(), UnmountFlags::DETACH);
            self.1.iter().for_each(|attached| drop(loopdev::detach(attached)));
        }
    }

    fn point() -> Option<Point> {
        if rustix::process::geteuid().is_root() {
            return Some(Point(tempfile::tempdir().unwrap(), None));
        }
        skip::record(None, "needs root");
        None
    }

    #[test]
    fn a_bind_mount_is_read_only_if_asked_for() {
        for read_only in [false, true] {
            let Some(point) = point() else { return };
            let path = point.0.path();
            let handle = open_handle(path).unwrap();
            bind(&handle, &handle, path, read_only).unwrap();
            assert_eq!(mountinfo::at(path).unwrap().unwrap().read_only(), read_only);
            assert_eq!(std::fs::write(path.join("file"), "x").is_err(), read_only);
        }
    }

    #[test]
    fn a_filesystem_is_mounted_with_its_flags() {
        let Some(mut point) = point() else { return };
        let image = tempfile::NamedTempFile::new().unwrap();
        image.as_file().set_len(32 << 20).unwrap();
        let options = FormatOptions::default();
        format(Filesystem::Ext4, image.path(), &options, Duration::from_secs(60)).unwrap();
        let attached = loopdev::attach(image.as_file(), &LoopOptions::default()).unwrap();
        point.1 = Some(attached.clone());

        let path = point.0.path();
        let flags = vec!["noexec,errors=remount-ro".to_owned()];
        let flags = Flags::parse(&MountOptions { read_only: true, flags }).unwrap();
        let handle = open_handle(path).unwrap();
        mount(&attached.path, &handle, Filesystem::Ext4, &flags).unwrap();
        let found = mountinfo::at(path).unwrap().unwrap();
        assert!(found.read_only());
        assert!(found.options.iter().any(|option| option == "noexec"), "{found:?}");
        let errors = |option: &String| option == "errors=remount-ro";
        assert!(found.super_options.iter().any(errors), "{found:?}");
    }
}
