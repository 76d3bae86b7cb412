//! Reads the mount table, `/proc/self/mountinfo`.

use std::{
    ffi::OsString,
    io,
    os::unix::ffi::OsStringExt,
    path::{Path, PathBuf},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, StatxAttributes, StatxFlags, makedev, statx},
    io::Errno,
};

use crate::{Error, Result};

mod remote;

pub use remote::RemoteMounts;

const TABLE: &str = "/proc/self/mountinfo";

/// One line of the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    /// ID of the mount.
    pub id: u64,
    /// ID of the mount on which it is mounted.
    pub parent: u64,
    /// Device number of the filesystem, as in `st_dev`.
    pub device: u64,
    /// The mounted part of the filesystem: `/`, or a folder or file for a bind mount.
    pub root: PathBuf,
    /// The mount point.
    pub point: PathBuf,
    /// Options of this mount, such as `ro` or `nosuid`.
    pub options: Vec<String>,
    /// The filesystem's kernel name.
    pub filesystem: String,
    /// The device, or another source that the filesystem defines.
    pub source: String,
    /// Options of the filesystem, shared by all its mounts.
    pub super_options: Vec<String>,
}

impl Mount {
    /// Whether the mount or its filesystem is read-only.
    pub fn read_only(&self) -> bool {
        // ext4 reports `emergency_ro` after it has stopped because of an error.
        let says = |option: &String| option == "ro" || option == "emergency_ro";
        let ro = |options: &[String]| options.iter().any(says);
        ro(&self.options) || ro(&self.super_options)
    }
}

/// The mount at a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MountRoot {
    /// Device number of the filesystem, as in `st_dev`.
    pub device: u64,
    /// Device number of the block device whose node is mounted there, if it is a node.
    pub node: Option<u64>,
}

impl MountRoot {
    /// Whether this is the block device with the number `rdev`: a filesystem on it, or its node.
    pub fn shows(&self, rdev: u64) -> bool {
        self.device == rdev || self.node == Some(rdev)
    }
}

/// Returns all mounts in this process's mount namespace.
pub fn table() -> Result<Vec<Mount>> {
    let text = std::fs::read(TABLE).map_err(Error::io("read", TABLE))?;
    parse(&text)
}

/// Returns the topmost mount exactly at `path`.
///
/// Follows symlinks in the parent folders of `path`, but not in its last component. Does not access
/// the mounted filesystem, so a broken one cannot block this call.
pub fn at(path: &Path) -> Result<Option<Mount>> {
    let Some(point) = plain(path)? else { return Ok(None) };
    Ok(topmost(table()?, &point))
}

/// Returns the mount exactly at `path`, if any, without reading the table, which may be long.
///
/// Does not follow a symlink.
pub fn root_at(path: &Path) -> Result<Option<MountRoot>> {
    let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT | AtFlags::STATX_DONT_SYNC;
    let found = match statx(CWD, path, flags, StatxFlags::TYPE) {
        Ok(found) => found,
        Err(Errno::NOENT | Errno::NOTDIR) => return Ok(None),
        // A filesystem that has shut down fails the call: read the table.
        Err(_) => {
            return Ok(at(path)?.map(|mount| MountRoot { device: mount.device, node: None }));
        }
    };
    if !found.stx_attributes_mask.contains(StatxAttributes::MOUNT_ROOT) {
        // Kernels before 5.8 do not report this attribute.
        if at(path)?.is_none() {
            return Ok(None);
        }
    } else if !found.stx_attributes.contains(StatxAttributes::MOUNT_ROOT) {
        return Ok(None);
    }
    let kind = FileType::from_raw_mode(found.stx_mode.into());
    let node = makedev(found.stx_rdev_major, found.stx_rdev_minor);
    Ok(Some(MountRoot {
        device: makedev(found.stx_dev_major, found.stx_dev_minor),
        node: (kind == FileType::BlockDevice).then_some(node),
    }))
}

/// Returns all mounts of the filesystem on the device with the number `rdev`.
pub fn of_device(rdev: u64) -> Result<Vec<Mount>> {
    let mut mounts = table()?;
    mounts.retain(|mount| mount.device == rdev);
    Ok(mounts)
}

/// Converts `path` to the form that the table has.
fn plain(path: &Path) -> Result<Option<PathBuf>> {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
        return Ok(Some(path.to_owned()));
    };
    match folder.canonicalize() {
        Ok(folder) => Ok(Some(folder.join(name))),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::io("resolve", folder)(error)),
    }
}

fn topmost(mut mounts: Vec<Mount>, point: &Path) -> Option<Mount> {
    mounts.retain(|mount| mount.point == point);
    let covered: Vec<u64> = mounts.iter().map(|mount| mount.parent).collect();
    mounts.into_iter().rfind(|mount| !covered.contains(&mount.id))
}

fn parse(text: &[u8]) -> Result<Vec<Mount>> {
    text.split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
        .map(|line| {
            parse_line(line).ok_or_else(|| Error::Malformed {
                path: TABLE.into(),
                detail: format!("unexpected line {:?}", String::from_utf8_lossy(line)),
            })
        })
        .collect()
}

/// `36 35 98:0 /root /point rw,noatime shared:1 - ext4 /dev/root rw,errors=continue`
fn parse_line(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|byte| *byte == b' ');
    let id = number(fields.next()?)?;
    let parent = number(fields.next()?)?;
    let mut device = fields.next()?.splitn(2, |byte| *byte == b':');
    let major = number(device.next()?)?;
    let minor = number(device.next()?)?;
    let root = PathBuf::from(unescape(fields.next()?));
    let point = PathBuf::from(unescape(fields.next()?));
    let options = list(fields.next()?);
    // The optional fields, such as shared:1, end with a dash.
    fields.by_ref().find(|field| *field == b"-")?;
    Some(Mount {
        id,
        parent,
        device: makedev(u32::try_from(major).ok()?, u32::try_from(minor).ok()?),
        root,
        point,
        options,
        filesystem: text(fields.next()?),
        source: text(fields.next()?),
        super_options: list(fields.next()?),
    })
}

fn number(field: &[u8]) -> Option<u64> {
    std::str::from_utf8(field).ok()?.parse().ok()
}

fn text(field: &[u8]) -> String {
    unescape(field).to_string_lossy().into_owned()
}

/// Splits before unescaping: commas inside a value are escaped.
fn list(field: &[u8]) -> Vec<String> {
    field.split(|byte| *byte == b',').map(text).collect()
}

/// Blanks, newlines and backslashes are escaped as a backslash and three octal digits.
fn unescape(field: &[u8]) -> OsString {
    let mut bytes = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, after)) = rest.split_first() {
        match octal(rest) {
            Some(byte) => {
                bytes.push(byte);
                rest = &rest[4..];
            }
            None => {
                bytes.push(*first);
                rest = after;
            }
        }
    }
    OsString::from_vec(bytes)
}

fn octal(text: &[u8]) -> Option<u8> {
    let [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', ..] = text else { return None };
    Some((a - b'0') * 64 + (b - b'0') * 8 + (c - b'0'))
}

#[cfg(test)]
mod tests {
    use std::{ffi::OsStr, fmt::Write, os::unix::ffi::OsStrExt};

    use proptest::prelude::*;

    use super::*;

    fn one(line: &str) -> Mount {
        parse(line.as_bytes()).unwrap().remove(0)
    }

    #[test]
    fn lines_with_and_without_optional_fields() {
        let plain = one("36 35 98:1 / /a rw,noatime - ext4 /dev/root rw,errors=continue\n");
        assert_eq!((plain.id, plain.parent), (36, 35));
        assert_eq!(plain.device, makedev(98, 1));
        assert_eq!(plain.point, Path::new("/a"));
        assert_eq!(plain.options, ["rw", "noatime"]);
        assert_eq!(plain.super_options, ["rw", "errors=continue"]);
        assert!(!plain.read_only());

        let shared = one("1 0 7:0 /sub /b\\040c ro shared:2 master:1 - xfs /dev/loop0 rw");
        assert_eq!(shared.root, Path::new("/sub"));
        assert_eq!(shared.point, Path::new("/b c"));
        assert_eq!((shared.filesystem.as_str(), shared.source.as_str()), ("xfs", "/dev/loop0"));
        assert!(shared.read_only());
    }

    #[test]
    fn a_read_only_filesystem_is_read_only_at_every_mount() {
        assert!(one("1 0 7:0 / /b rw - xfs /dev/loop0 ro").read_only());
        assert!(!one("1 0 7:0 / /b rw - xfs /dev/loop0 rw,errors=ro").read_only());
    }

    #[test]
    fn an_empty_source_is_no_error() {
        assert_eq!(one("1 0 0:5 / /b rw - tmpfs  rw").source, "");
    }

    #[test]
    fn what_is_no_line_is_named() {
        for line in ["x", "1 0 7:0 / /b rw ext4 /dev/a rw", "1 0 7 / /b rw - ext4 a rw"] {
            let error = parse(line.as_bytes()).unwrap_err().to_string();
            assert!(error.contains(TABLE) && error.contains(line), "{error}");
        }
    }

    #[test]
    fn the_topmost_of_stacked_mounts_is_found_in_any_order() {
        let lower = one("10 1 7:0 / /a rw - ext4 /dev/loop0 rw");
        let upper = one("5 10 7:1 / /a rw - ext4 /dev/loop1 rw");
        let other = one("11 1 7:2 / /b rw - ext4 /dev/loop2 rw");
        for mounts in [[&lower, &upper, &other], [&upper, &other, &lower]] {
            let mounts = mounts.into_iter().cloned().collect();
            assert_eq!(topmost(mounts, Path::new("/a")), Some(upper.clone()));
        }
        assert_eq!(topmost(vec![lower], Path::new("/c")), None);
    }

    /// Escapes as the kernel does.
    fn escape(bytes: &[u8]) -> Vec<u8> {
        let mut text = String::new();
        let mut out = Vec::new();
        for byte in bytes {
            if b" \t\n\\#".contains(byte) {
                text.clear();
                write!(text, "\\{byte:03o}").unwrap();
                out.extend(text.as_bytes());
            } else {
                out.push(*byte);
            }
        }
        out
    }

    proptest! {
        #[test]
        fn escapes_are_undone(name in prop::collection::vec(1_u8..=255, 1..40)) {
            let mut line = b"1 0 7:0 / /".to_vec();
            line.extend(escape(&name));
            line.extend(b" rw - ext4 /dev/a rw");
            let mount = parse(&line).unwrap().remove(0);
            let point = mount.point.as_os_str().as_bytes();
            prop_assert_eq!(OsStr::from_bytes(&point[1..]), OsStr::from_bytes(&name));
        }

        #[test]
        fn no_line_makes_it_panic(line in prop::collection::vec(any::<u8>(), 0..120)) {
            let _ = parse(&line);
        }
    }
}
