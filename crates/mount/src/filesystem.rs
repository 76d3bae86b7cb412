//! The filesystems that a volume may hold.

use std::fmt;
use std::str::FromStr;

/// A filesystem that is made, mounted, checked and grown here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Filesystem {
    /// ext4, which every node can make.
    Ext4,
    /// XFS, which grows while mounted and shares blocks between clones.
    Xfs,
}

/// A name that is no [`Filesystem`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("filesystem {0:?} is not supported: expected ext4 or xfs")]
pub struct UnknownFilesystem(pub String);

impl Filesystem {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Ext4, Self::Xfs];

    /// The name that the kernel and Kubernetes use.
    pub fn kernel_name(self) -> &'static str {
        match self {
            Self::Ext4 => "ext4",
            Self::Xfs => "xfs",
        }
    }
}

impl fmt::Display for Filesystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.kernel_name())
    }
}

impl FromStr for Filesystem {
    type Err = UnknownFilesystem;

    fn from_str(name: &str) -> Result<Self, UnknownFilesystem> {
        Self::ALL
            .into_iter()
            .find(|filesystem| filesystem.kernel_name() == name)
            .ok_or_else(|| UnknownFilesystem(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back() {
        for filesystem in Filesystem::ALL {
            assert_eq!(filesystem.to_string().parse(), Ok(filesystem));
        }
        let error = "ext3".parse::<Filesystem>().unwrap_err();
        assert_eq!(error.to_string(), "filesystem \"ext3\" is not supported: expected ext4 or xfs");
    }
}
