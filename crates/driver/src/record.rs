//! The records in the store: volumes, snapshots, groups and nodes.
//!
//! A record includes its own intent: its phase names an operation that was begun and is not
//! finished, so one commit of one record is both the fact and the promise to continue. Mounts and
//! loop devices are not authoritative here; the kernel is asked for them.

mod blocks;
mod text;

use std::{collections::BTreeMap, fmt, path::PathBuf};

use serde::{Deserialize, Serialize};
use wharf_csi_sdk::{Fingerprint, types::AccessMode};
use wharf_mount::Filesystem;

pub use blocks::Blocks;

use crate::{backend::BackendKind, limits::Limits, store::Owed};

/// Phase of a volume, snapshot or group.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Promised under this ID; its image may exist partly, under a temporary name.
    Creating,
    /// Complete.
    Ready,
    /// Growing to this many bytes.
    Expanding {
        /// The requested capacity.
        to: u64,
    },
    /// Being deleted; its remains are removed.
    Deleting,
}

/// Known content of an image. Only a `Blank` image is ever formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Never written by the driver: zeros, or data that a user wrote to the block device.
    Blank,
    /// A format was begun, and the image was not mounted since.
    Formatting(#[serde(with = "text")] Filesystem),
    /// Has this filesystem.
    Filesystem(#[serde(with = "text")] Filesystem),
}

/// Content of a copy, in the record of a snapshot or a clone.
///
/// There is no `Formatting`: that refers to the source, which may have data by the time of the
/// copy. A copy of a partly formatted image is detected when it is staged, and nothing in it is
/// formatted over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Content")]
pub enum CopyContent {
    /// Has no known filesystem.
    Blank,
    /// Has this filesystem.
    Filesystem(#[serde(with = "text")] Filesystem),
}

impl From<Content> for CopyContent {
    fn from(source: Content) -> Self {
        match source {
            Content::Blank | Content::Formatting(_) => Self::Blank,
            Content::Filesystem(filesystem) => Self::Filesystem(filesystem),
        }
    }
}

impl From<CopyContent> for Content {
    fn from(copy: CopyContent) -> Self {
        match copy {
            CopyContent::Blank => Self::Blank,
            CopyContent::Filesystem(filesystem) => Self::Filesystem(filesystem),
        }
    }
}

/// Source of an image's content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// ID of a volume.
    Volume(String),
    /// ID of a snapshot.
    Snapshot(String),
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// ID.
    pub id: String,
    /// Name that the orchestrator gave; never used as a file name.
    pub name: String,
    /// Stem of the image's file name.
    pub image: String,
    /// Fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// Backend of the image.
    pub backend: BackendKind,
    /// Size in bytes.
    pub capacity: u64,
    /// Filesystem to create if the first use requests none.
    #[serde(with = "text::optional")]
    pub filesystem: Option<Filesystem>,
    /// Whether blocks are allocated only when they are written.
    pub thin: bool,
    /// Phase.
    pub phase: Phase,
    /// Content of the image.
    pub content: Content,
    /// Source of the content.
    pub source: Option<Source>,
    /// Family of images that may share blocks: the ID of the first ancestor, or its own.
    pub family: String,
    /// I/O limits.
    pub limits: Limits,
    /// Nodes that it is published to.
    pub attachments: BTreeMap<String, Attachment>,
    /// Stage, if it is staged.
    pub stage: Option<Stage>,
    /// Publications, by target path.
    pub publications: BTreeMap<PathBuf, Publication>,
    /// Whether this is an inline volume: created by its first publish, deleted with its last
    /// publication.
    pub ephemeral: bool,
    /// Whether its filesystem may be frozen for a copy on another pool.
    #[serde(default)]
    pub frozen_for_copy: bool,
    /// State of its blocks.
    #[serde(default)]
    pub blocks: Blocks,
}

/// Publication of a volume to a node by the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Whether the node may only read.
    pub read_only: bool,
    /// How the node uses it.
    pub usage: Usage,
}

/// How a volume is used: the part of a capability that must agree between calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Access mode.
    pub mode: AccessMode,
    /// Block device or filesystem.
    pub access: Access,
}

/// Block device or filesystem.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// The block device.
    Block,
    /// A filesystem, mounted with these flags.
    Mount {
        /// Requested filesystem; empty means the volume's own.
        filesystem: String,
        /// Mount flags, as given. They may be secret: Debug shows only their number.
        flags: Vec<String>,
    },
}

/// A stage of a volume.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// The staging path.
    pub path: PathBuf,
    /// How it is used.
    pub usage: Usage,
    /// Whether the device is read-only: by its access mode, or because it was published to the node
    /// as such.
    #[serde(default)]
    pub read_only: bool,
    /// False from the beginning of a stage or unstage to its end.
    pub complete: bool,
}

/// A publication of a volume at a target path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    /// How it is used.
    pub usage: Usage,
    /// Whether the target is read-only.
    pub read_only: bool,
    /// UID of the pod, if the orchestrator sends it.
    pub pod_uid: Option<String>,
    /// False from the beginning of a publish or unpublish to its end.
    pub complete: bool,
}

/// A snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// ID.
    pub id: String,
    /// Name that the orchestrator gave.
    pub name: String,
    /// Stem of the image's file name.
    pub image: String,
    /// Fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// Backend of the image.
    pub backend: BackendKind,
    /// ID of the source volume, which may have been deleted.
    pub volume: String,
    /// Size of the volume when the snapshot was taken.
    pub size: u64,
    /// Bytes held back so that the whole volume can be overwritten.
    pub reserved: u64,
    /// Phase.
    pub phase: Phase,
    /// Content of the image.
    pub content: CopyContent,
    /// Family of images that may share blocks; see [`Volume::family`].
    pub family: String,
    /// Time of the snapshot, in nanoseconds since 1970.
    pub cut: i128,
    /// ID of its group.
    pub group: Option<String>,
    /// State of its blocks.
    #[serde(default)]
    pub blocks: Blocks,
}

/// Snapshots of several volumes, taken at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// ID.
    pub id: String,
    /// Name that the orchestrator gave.
    pub name: String,
    /// Fingerprint of the request.
    pub fingerprint: Fingerprint,
    /// IDs of its snapshots, in the order of the request's volumes.
    pub snapshots: Vec<String>,
    /// Number of requested snapshots; 0 if an older release created the group.
    #[serde(default)]
    pub size: usize,
    /// Phase.
    pub phase: Phase,
    /// Time of the snapshots, in nanoseconds since 1970.
    pub cut: i128,
}

/// A node that volumes can be published to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// ID that NodeGetInfo returns.
    pub id: String,
}

impl Group {
    /// Whether all of its snapshots are recorded. After the loss of the state file some may be
    /// missing.
    pub fn is_whole(&self) -> bool {
        self.snapshots.len() >= self.size
    }
}

impl Usage {
    /// Returns the SELinux label of the mount, from the mount flag `context=`.
    pub fn selinux_label(&self) -> Option<&str> {
        let Access::Mount { flags, .. } = &self.access else { return None };
        let label = flags.iter().find_map(|flag| flag.strip_prefix("context="));
        label.map(|label| label.trim_matches('"'))
    }
}

impl Volume {
    /// Whether the volume is complete, and not being created or deleted.
    pub fn is_whole(&self) -> bool {
        matches!(self.phase, Phase::Ready | Phase::Expanding { .. })
    }

    /// Whether the image may be written to now.
    pub fn in_use(&self) -> bool {
        self.stage.is_some() || !self.publications.is_empty()
    }

    /// Whether a use of the volume is read-only: by its access mode, or because it was published to
    /// the node as such.
    pub fn reads_only(&self, usage: &Usage) -> bool {
        let attached = self.attachments.values().any(|attachment| attachment.read_only);
        usage.mode.is_read_only() || attached
    }

    /// Whether its limits are recorded but not applied, since no pod is known to use it.
    pub fn limits_wait(&self) -> bool {
        let known = self.publications.values().any(|publication| publication.pod_uid.is_some());
        !self.limits.is_unlimited() && !known
    }

    /// Bytes that the pool promises to this volume, written or not.
    pub fn promised(&self) -> u64 {
        if self.thin { 0 } else { self.size() }
    }

    /// Returns its part in the pool's account.
    pub fn owed(&self) -> Owed<'_> {
        // An incomplete image may be empty, and the bytes of an expansion are not on disk before it
        // ends.
        let present = if self.thin || self.phase == Phase::Creating { 0 } else { self.capacity };
        let thin = if self.thin { self.size() } else { 0 };
        Owed { family: &self.family, promised: self.promised(), present, thin }
    }

    /// Returns its size, or the size that it is growing to.
    pub fn size(&self) -> u64 {
        match self.phase {
            Phase::Expanding { to } => to.max(self.capacity),
            _ => self.capacity,
        }
    }
}

impl Snapshot {
    /// Returns its part in the pool's account: with its own blocks it needs no promise.
    pub fn owed(&self) -> Owed<'_> {
        let creating = self.phase == Phase::Creating;
        let whole = self.backend == BackendKind::ImageCopy || self.blocks != Blocks::Shared;
        let promised = if whole && !creating { 0 } else { self.reserved };
        let present = if creating { 0 } else { promised };
        Owed { family: &self.family, promised, present, thin: 0 }
    }

    /// Whether it is a snapshot of a thin volume, so that nothing is held back for it.
    pub fn is_thin(&self) -> bool {
        self.reserved == 0
    }
}

impl fmt::Debug for Access {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Block => out.write_str("Block"),
            Self::Mount { filesystem, flags } => {
                write!(out, "Mount({filesystem:?}, {} flags)", flags.len())
            }
        }
    }
}

/// Records for tests.
#[cfg(test)]
pub(crate) mod fixtures {
    use super::*;

    pub(crate) fn volume(id: &str, capacity: u64) -> Volume {
        Volume {
            id: id.to_owned(),
            name: format!("name of {id}"),
            image: format!("image-of-{id}"),
            fingerprint: Fingerprint::default(),
            backend: BackendKind::ImageReflink,
            capacity,
            filesystem: None,
            thin: false,
            phase: Phase::Ready,
            content: Content::Blank,
            source: None,
            family: id.to_owned(),
            limits: Limits::default(),
            attachments: BTreeMap::new(),
            stage: None,
            publications: BTreeMap::new(),
            ephemeral: false,
            frozen_for_copy: false,
            blocks: Blocks::Shared,
        }
    }

    pub(crate) fn snapshot(id: &str, volume: &Volume) -> Snapshot {
        Snapshot {
            id: id.to_owned(),
            name: format!("name of {id}"),
            image: format!("image-of-{id}"),
            fingerprint: Fingerprint::default(),
            backend: volume.backend,
            volume: volume.id.clone(),
            size: volume.capacity,
            reserved: volume.promised(),
            phase: Phase::Ready,
            content: volume.content.into(),
            family: volume.family.clone(),
            cut: 1,
            group: None,
            blocks: Blocks::Shared,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_copy_wishes_to_be_formatted() {
        let ext4 = Filesystem::Ext4;
        for (source, copy) in [
            (Content::Blank, CopyContent::Blank),
            (Content::Formatting(ext4), CopyContent::Blank),
            (Content::Filesystem(ext4), CopyContent::Filesystem(ext4)),
        ] {
            assert_eq!(CopyContent::from(source), copy);
            // Old records have the content type of their source.
            let old = serde_json::to_string(&source).expect("a record");
            let read: CopyContent = serde_json::from_str(&old).expect("an old record");
            assert_eq!(read, copy);
            let new = serde_json::to_string(&copy).expect("a record");
            assert_eq!(serde_json::from_str::<CopyContent>(&new).expect("a new record"), copy);
        }
    }
}
