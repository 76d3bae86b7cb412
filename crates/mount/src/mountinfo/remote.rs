//! Mounts on which access to a path may wait for a program or another machine.

use std::path::Path;

use super::{Mount, TABLE, parse};
use crate::{Error, Result};

/// Kernel names of such filesystems, without the suffix that FUSE programs add after a dot.
const REMOTE: [&str; 16] = [
    "9p", "afs", "beegfs", "ceph", "cifs", "coda", "fuse", "fuseblk", "gfs2", "lustre", "nfs",
    "nfs4", "ocfs2", "orangefs", "smb3", "virtiofs",
];

/// The mount table if it has network or FUSE filesystems, to find out which paths are on one.
#[derive(Clone, Debug, Default)]
pub struct RemoteMounts {
    /// The whole table; empty if nothing remote is mounted.
    mounts: Vec<Mount>,
}

impl RemoteMounts {
    /// Reads the mount table. Does not access any mount.
    pub fn read() -> Result<Self> {
        let text = std::fs::read(TABLE).map_err(Error::io("read", TABLE))?;
        Self::of(&text)
    }

    /// Parses the table only if needed: it may have thousands of lines.
    fn of(text: &[u8]) -> Result<Self> {
        let mut lines = text.split(|byte| *byte == b'\n');
        match lines.any(|line| kind(line).is_some_and(is_remote)) {
            true => Ok(Self { mounts: parse(text)? }),
            false => Ok(Self::default()),
        }
    }

    /// Whether `path` is on a remote mount. Does not follow symlinks.
    pub fn contains(&self, path: &Path) -> bool {
        let above = self.mounts.iter().filter(|mount| path.starts_with(&mount.point));
        // Of several mounts at one point, the last covers the others.
        let shown = above.max_by_key(|mount| mount.point.as_os_str().len());
        shown.is_some_and(|mount| is_remote(mount.filesystem.as_bytes()))
    }
}

/// Kernel name of the filesystem in a line of the table.
fn kind(line: &[u8]) -> Option<&[u8]> {
    let separator = line.windows(3).position(|bytes| bytes == b" - ")?;
    line[separator + 3..].split(|byte| *byte == b' ').next()
}

fn is_remote(kind: &[u8]) -> bool {
    let name = kind.split(|byte| *byte == b'.').next().unwrap_or_default();
    REMOTE.iter().any(|remote| remote.as_bytes() == name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_remote_where_its_topmost_mount_is() {
        let lines = [
            "1 0 7:0 / / rw shared:1 - ext4 /dev/a rw",
            "2 1 0:40 / /mnt/net rw - nfs4 server:/ rw",
            "3 2 7:1 / /mnt/net/disk rw - xfs /dev/b rw",
            "4 1 0:41 / /mnt/program rw master:2 - fuse.sshfs host: rw",
            "5 1 7:2 / /mnt/twice rw - ext4 /dev/c rw",
            "6 5 0:42 / /mnt/twice rw - fuse x rw",
        ];
        let remote = RemoteMounts::of(lines.join("\n").as_bytes()).unwrap();
        for (path, expected) in [
            ("/image", false),
            ("/mnt/network/image", false),
            ("/mnt/net/image (deleted)", true),
            ("/mnt/net/disk/image", false),
            ("/mnt/program/image", true),
            ("/mnt/twice/image", true),
            ("", false),
        ] {
            assert_eq!(remote.contains(Path::new(path)), expected, "{path}");
        }
        let local = RemoteMounts::of(lines[0].as_bytes()).unwrap();
        assert!(local.mounts.is_empty() && !local.contains(Path::new("/image")));
    }
}
