//! Supported filesystems of volumes.

use std::{fmt, str::FromStr};

/// A filesystem that this crate can create, mount, check and grow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Filesystem {
    /// ext4, whose tools are on every node.
    Ext4,
    /// XFS, which grows while mounted and shares blocks between clones.
    Xfs,
}

/// A name that is not a [`Filesystem`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("filesystem {0:?} is not supported: expected ext4 or xfs")]
pub struct UnknownFilesystem(pub String);

impl Filesystem {
    /// All filesystems.
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
