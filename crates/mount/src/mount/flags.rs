//! Mount flags, sorted by their consumer.

use rustix::mount::{MountAttrFlags, MountFlags};

use super::MountOptions;
use crate::{Error, Result};

/// The flags of one mount.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Flags {
    /// Attributes of the mount, for fsmount.
    pub(super) attributes: u32,
    /// Attributes and `superblock` as bits, for mount(2).
    pub(super) bits: u32,
    /// Flags of the superblock that all filesystems share.
    pub(super) superblock: Vec<&'static str>,
    /// Parameters of this filesystem, with their values.
    pub(super) parameters: Vec<(String, Option<String>)>,
}

impl Flags {
    pub(super) fn parse(options: &MountOptions) -> Result<Self> {
        let mut flags = Self::default();
        for flag in options.flags.iter().flat_map(|flag| split(flag)) {
            flags.add(flag)?;
        }
        if options.read_only {
            flags.add("ro")?;
        }
        Ok(flags)
    }

    fn add(&mut self, flag: &str) -> Result<()> {
        if let Some(expected) = refused(flag) {
            return Err(Error::Flag { flag: key(flag).to_owned(), expected });
        }
        if is_for_programs(flag) {
            return Ok(());
        }
        let Some((name, attribute, bit)) = GENERIC.iter().find(|(name, ..)| *name == flag) else {
            self.parameters.push(parameter(flag));
            return Ok(());
        };
        // The access-time flags exclude each other: the last one counts.
        if attribute.intersects(MountAttrFlags::MOUNT_ATTR__ATIME) || *name == "relatime" {
            self.attributes &= !MountAttrFlags::MOUNT_ATTR__ATIME.bits();
            self.bits &= !(MountFlags::NOATIME | MountFlags::STRICTATIME).bits();
        }
        self.attributes |= attribute.bits();
        self.bits |= bit.bits();
        if SUPERBLOCK.contains(name) && !self.superblock.contains(name) {
            self.superblock.push(name);
        }
        Ok(())
    }

    /// Replaces the values of these flags in a text: they may be secret, and the kernel may quote
    /// them.
    pub(super) fn redact(&self, text: String) -> String {
        let values = self.parameters.iter().filter_map(|(_, value)| value.as_deref());
        // Shorter values are not secrets and occur in many words.
        let values = values.filter(|value| value.len() > 3);
        values.fold(text, |text, value| text.replace(value, "..."))
    }

    /// The parameters as the data argument of mount(2).
    pub(super) fn data(&self) -> String {
        let parameters = self.parameters.iter().map(|(key, value)| match value {
            Some(value) if value.contains(',') => format!("{key}=\"{value}\""),
            Some(value) => format!("{key}={value}"),
            None => key.clone(),
        });
        parameters.collect::<Vec<_>>().join(",")
    }
}

const NONE: MountAttrFlags = MountAttrFlags::empty();

/// Flags of every filesystem, as mount attribute and as bit of mount(2).
const GENERIC: &[(&str, MountAttrFlags, MountFlags)] = &[
    ("ro", MountAttrFlags::MOUNT_ATTR_RDONLY, MountFlags::RDONLY),
    ("nosuid", MountAttrFlags::MOUNT_ATTR_NOSUID, MountFlags::NOSUID),
    ("nodev", MountAttrFlags::MOUNT_ATTR_NODEV, MountFlags::NODEV),
    ("noexec", MountAttrFlags::MOUNT_ATTR_NOEXEC, MountFlags::NOEXEC),
    ("noatime", MountAttrFlags::MOUNT_ATTR_NOATIME, MountFlags::NOATIME),
    ("strictatime", MountAttrFlags::MOUNT_ATTR_STRICTATIME, MountFlags::STRICTATIME),
    ("relatime", NONE, MountFlags::RELATIME),
    ("nodiratime", MountAttrFlags::MOUNT_ATTR_NODIRATIME, MountFlags::NODIRATIME),
    ("nosymfollow", MountAttrFlags::MOUNT_ATTR_NOSYMFOLLOW, MountFlags::NOSYMFOLLOW),
    ("sync", NONE, MountFlags::SYNCHRONOUS),
    ("dirsync", NONE, MountFlags::DIRSYNC),
    ("lazytime", NONE, MountFlags::LAZYTIME),
    // Defaults.
    ("defaults", NONE, MountFlags::empty()),
    ("rw", NONE, MountFlags::empty()),
    ("suid", NONE, MountFlags::empty()),
    ("dev", NONE, MountFlags::empty()),
    ("exec", NONE, MountFlags::empty()),
    ("async", NONE, MountFlags::empty()),
    ("atime", NONE, MountFlags::empty()),
    ("diratime", NONE, MountFlags::empty()),
    ("nolazytime", NONE, MountFlags::empty()),
    ("nostrictatime", NONE, MountFlags::empty()),
    ("norelatime", NONE, MountFlags::empty()),
    ("symfollow", NONE, MountFlags::empty()),
];

/// Generic flags that apply to the superblock instead of the mount.
const SUPERBLOCK: &[&str] = &["ro", "sync", "dirsync", "lazytime"];

fn refused(flag: &str) -> Option<&'static str> {
    match key(flag) {
        "bind" | "rbind" | "move" | "remount" => Some("expected a flag, not another operation"),
        "shared" | "rshared" | "private" | "rprivate" | "slave" | "rslave" | "unbindable"
        | "runbindable" => Some("propagation is that of the mount point"),
        "loop" | "offset" | "sizelimit" => Some("the device is already attached"),
        "source" => Some("the device is not given by a flag"),
        _ => None,
    }
}

/// Name of a flag, without its value, which may be secret.
fn key(flag: &str) -> &str {
    flag.split('=').next().unwrap_or_default()
}

/// Flags that only readers of fstab understand.
fn is_for_programs(flag: &str) -> bool {
    const NAMES: &[&str] = &["_netdev", "auto", "noauto", "nofail", "nouser", "silent", "loud"];
    NAMES.contains(&flag) || ["x-", "X-", "comment="].iter().any(|prefix| flag.starts_with(prefix))
}

fn parameter(flag: &str) -> (String, Option<String>) {
    match flag.split_once('=') {
        Some((key, value)) => (key.to_owned(), Some(value.replace('"', ""))),
        None => (flag.to_owned(), None),
    }
}

/// Splits at commas, except between quotes: `context="a:s0:c1,c2"`.
fn split(flags: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    flags
        .split(move |letter| {
            quoted ^= letter == '"';
            letter == ',' && !quoted
        })
        .map(str::trim)
        .filter(|flag| !flag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(flags: &[&str]) -> Result<Flags> {
        let flags = flags.iter().map(|&flag| flag.to_owned()).collect();
        Flags::parse(&MountOptions { read_only: false, flags })
    }

    #[test]
    fn flags_go_to_whom_they_concern() {
        let flags =
            parse(&["noexec,nouuid", "sync", "errors=remount-ro", "x-systemd.a=b"]).unwrap();
        assert_eq!(flags.attributes, MountAttrFlags::MOUNT_ATTR_NOEXEC.bits());
        assert_eq!(flags.bits, (MountFlags::NOEXEC | MountFlags::SYNCHRONOUS).bits());
        assert_eq!(flags.superblock, ["sync"]);
        assert_eq!(flags.data(), "nouuid,errors=remount-ro");
    }

    #[test]
    fn read_only_concerns_both_mount_and_filesystem() {
        let options = MountOptions { read_only: true, flags: vec!["rw".into(), "ro".into()] };
        let flags = Flags::parse(&options).unwrap();
        assert_eq!(flags.attributes, MountAttrFlags::MOUNT_ATTR_RDONLY.bits());
        assert_eq!(flags.superblock, ["ro"]);
    }

    #[test]
    fn the_last_way_to_treat_access_times_holds() {
        let flags = parse(&["noatime", "strictatime"]).unwrap();
        assert_eq!(flags.attributes, MountAttrFlags::MOUNT_ATTR_STRICTATIME.bits());
        assert_eq!(parse(&["noatime", "relatime"]).unwrap().attributes, 0);
    }

    #[test]
    fn quoted_commas_stay_inside_their_value() {
        let flags = parse(&["context=\"u:r:t:s0:c1,c2\",nodev"]).unwrap();
        let context = ("context".to_owned(), Some("u:r:t:s0:c1,c2".to_owned()));
        assert_eq!(flags.parameters, [context]);
        assert_eq!(flags.data(), "context=\"u:r:t:s0:c1,c2\"");
    }

    #[test]
    fn values_are_taken_out_of_the_kernels_words() {
        let flags = parse(&["data=hunter2,commit=7"]).unwrap();
        let told = flags.redact("Bad value 'hunter2' for 'data', 7".to_owned());
        assert_eq!(told, "Bad value '...' for 'data', 7");
    }

    #[test]
    fn other_operations_are_no_flags() {
        for flag in ["remount", "bind", "rshared", "loop=/dev/loop0", "source=/dev/vda"] {
            let error = parse(&[flag]).unwrap_err().to_string();
            let (key, value) = flag.split_once('=').unwrap_or((flag, "/"));
            assert!(error.contains(key) && !error.contains(value), "{error}");
        }
    }
}
