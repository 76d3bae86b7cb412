//! What the store keeps: volumes, snapshots, groups and nodes.
//!
//! A record carries its own intent: its phase says what was begun and not yet finished, so that one commit of one record is
//! both the fact and the promise to go on. Mounts and loop devices are not kept as truth; the kernel knows them.

mod blocks;
mod text;

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use wharf_csi_sdk::Fingerprint;
use wharf_csi_sdk::types::AccessMode;
use wharf_mount::Filesystem;

pub use blocks::Blocks;

use crate::backend::BackendKind;
use crate::limits::Limits;
use crate::store::Owed;

/// How far a volume, snapshot or group has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Phase {
    /// Promised under this id; its image may be partly made, under a temporary name.
    Creating,
    /// Whole.
    Ready,
    /// Growing to this many bytes.
    Expanding {
        /// The capacity that was asked for.
        to: u64,
    },
    /// Being removed; whatever is left of it goes.
    Deleting,
}

/// What is known of an image's content. Only a `Blank` image is ever formatted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Never written by us: zeroes, or what a user of the raw device wrote.
    Blank,
    /// A format was begun and the image was never mounted since.
    Formatting(#[serde(with = "text")] Filesystem),
    /// Holds this filesystem.
    Filesystem(#[serde(with = "text")] Filesystem),
}

/// What a copy of an image holds, which is what a snapshot or a clone is recorded with.
///
/// It has no `Formatting`: that is the source's own wish, and by the time that the copy is made the source may hold data.
/// A copy of an image whose format was cut short is found out when it is staged, and nothing in it is formatted over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "Content")]
pub enum CopyContent {
    /// Not known to hold a filesystem.
    Blank,
    /// Holds this filesystem.
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

/// Where an image's bytes come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// Another volume, by id.
    Volume(String),
    /// A snapshot, by id.
    Snapshot(String),
}

/// A volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Volume {
    /// The id that the orchestrator knows.
    pub id: String,
    /// The name that the orchestrator gave; never used as a file name.
    pub name: String,
    /// The stem of the image's file name.
    pub image: String,
    /// The request that made it.
    pub fingerprint: Fingerprint,
    /// How its image is made and copied.
    pub backend: BackendKind,
    /// Its size in bytes.
    pub capacity: u64,
    /// The filesystem it gets when its first use asks for none.
    #[serde(with = "text::optional")]
    pub filesystem: Option<Filesystem>,
    /// Whether its space is taken only as it is written.
    pub thin: bool,
    /// How far it has come.
    pub phase: Phase,
    /// What the image holds.
    pub content: Content,
    /// Where its first bytes came from.
    pub source: Option<Source>,
    /// The volume whose blocks it may share: the first ancestor's id, or its own.
    pub family: String,
    /// Limits of its device.
    pub limits: Limits,
    /// The nodes that it is published to.
    pub attachments: BTreeMap<String, Attachment>,
    /// Where it is staged.
    pub stage: Option<Stage>,
    /// Where it is published, by target path.
    pub publications: BTreeMap<PathBuf, Publication>,
    /// Made by its first publish and gone with its last.
    pub ephemeral: bool,
    /// Its filesystem may be frozen, for a copy that is on another pool.
    #[serde(default)]
    pub frozen_for_copy: bool,
    /// Whose its blocks are.
    #[serde(default)]
    pub blocks: Blocks,
}

/// A volume's publication to a node by the controller.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Attachment {
    /// Whether the node may only read.
    pub read_only: bool,
    /// How the node uses it.
    pub usage: Usage,
}

/// How a volume is used: the part of a capability that has to agree between calls.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Who may use it at the same time.
    pub mode: AccessMode,
    /// The device itself, or a filesystem on it.
    pub access: Access,
}

/// The device itself, or a filesystem on it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Access {
    /// The device itself.
    Block,
    /// A filesystem, mounted with these flags.
    Mount {
        /// The filesystem that was asked for; empty for the volume's own.
        filesystem: String,
        /// Mount flags, as given. They may be secret: Debug shows only their number.
        flags: Vec<String>,
    },
}

/// Where and how a volume is staged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stage {
    /// The staging path.
    pub path: PathBuf,
    /// How it is used.
    pub usage: Usage,
    /// Whether its device only reads: by its access mode, or because it was published to the node so.
    #[serde(default)]
    pub read_only: bool,
    /// False between the begin of a stage or unstage and its end.
    pub complete: bool,
}

/// How a volume is published at a target path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Publication {
    /// How it is used.
    pub usage: Usage,
    /// Whether the target may only be read.
    pub read_only: bool,
    /// The pod that uses it, where the orchestrator said so.
    pub pod_uid: Option<String>,
    /// False between the begin of a publish or unpublish and its end.
    pub complete: bool,
}

/// A snapshot of a volume.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The id that the orchestrator knows.
    pub id: String,
    /// The name that the orchestrator gave.
    pub name: String,
    /// The stem of the image's file name.
    pub image: String,
    /// The request that made it.
    pub fingerprint: Fingerprint,
    /// How its image is made and copied.
    pub backend: BackendKind,
    /// The volume it was cut from; it may be gone.
    pub volume: String,
    /// The volume's size at the cut.
    pub size: u64,
    /// The bytes that are held back so that the volume can be overwritten whole.
    pub reserved: u64,
    /// How far it has come.
    pub phase: Phase,
    /// What the image holds.
    pub content: CopyContent,
    /// As in the volume.
    pub family: String,
    /// When it was cut, in nanoseconds since 1970.
    pub cut: i128,
    /// The group that it belongs to.
    pub group: Option<String>,
    /// Whose its blocks are.
    #[serde(default)]
    pub blocks: Blocks,
}

/// Snapshots that were cut at one moment.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The id that the orchestrator knows.
    pub id: String,
    /// The name that the orchestrator gave.
    pub name: String,
    /// The request that made it.
    pub fingerprint: Fingerprint,
    /// Its snapshots, in the order of the request's volumes.
    pub snapshots: Vec<String>,
    /// How many snapshots were asked for; 0 if an older release made it.
    #[serde(default)]
    pub size: usize,
    /// How far it has come.
    pub phase: Phase,
    /// When it was cut, in nanoseconds since 1970.
    pub cut: i128,
}

/// A node that volumes can be published to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The id that NodeGetInfo answers.
    pub id: String,
}

impl Group {
    /// Whether all of its snapshots are recorded. After the loss of the state file only a part of them may be found.
    pub fn is_whole(&self) -> bool {
        self.snapshots.len() >= self.size
    }
}

impl Usage {
    /// The SELinux label that a filesystem is mounted with, from the mount flag `context=`.
    pub fn selinux_label(&self) -> Option<&str> {
        let Access::Mount { flags, .. } = &self.access else { return None };
        let label = flags.iter().find_map(|flag| flag.strip_prefix("context="));
        label.map(|label| label.trim_matches('"'))
    }
}

impl Volume {
    /// Whether it is neither on its way in nor out.
    pub fn is_whole(&self) -> bool {
        matches!(self.phase, Phase::Ready | Phase::Expanding { .. })
    }

    /// Whether someone may be writing to the image now.
    pub fn in_use(&self) -> bool {
        self.stage.is_some() || !self.publications.is_empty()
    }

    /// Whether a use of it may only read: by its access mode, or because it was published to the node so.
    pub fn reads_only(&self, usage: &Usage) -> bool {
        let attached = self.attachments.values().any(|attachment| attachment.read_only);
        usage.mode.is_read_only() || attached
    }

    /// Whether its limits are kept and hold nowhere yet, since no pod is known to use it.
    pub fn limits_wait(&self) -> bool {
        let known = self.publications.values().any(|publication| publication.pod_uid.is_some());
        !self.limits.is_unlimited() && !known
    }

    /// Bytes that the pool owes to this volume beyond what it happens to have written.
    pub fn promised(&self) -> u64 {
        if self.thin { 0 } else { self.size() }
    }

    /// What it counts for in its pool's account.
    pub fn owed(&self) -> Owed<'_> {
        // An image in the making may hold nothing yet, and what an expansion adds is not on disk before it is done.
        let present = if self.thin || self.phase == Phase::Creating { 0 } else { self.capacity };
        let thin = if self.thin { self.size() } else { 0 };
        Owed { family: &self.family, promised: self.promised(), present, thin }
    }

    /// Its size, or the size that it is growing to.
    pub fn size(&self) -> u64 {
        match self.phase {
            Phase::Expanding { to } => to.max(self.capacity),
            _ => self.capacity,
        }
    }
}

impl Snapshot {
    /// What it counts for in its pool's account: once it has blocks of its own, it is owed nothing more.
    pub fn owed(&self) -> Owed<'_> {
        let creating = self.phase == Phase::Creating;
        let whole = self.backend == BackendKind::ImageCopy || self.blocks != Blocks::Shared;
        let promised = if whole && !creating { 0 } else { self.reserved };
        let present = if creating { 0 } else { promised };
        Owed { family: &self.family, promised, present, thin: 0 }
    }

    /// Whether it was cut from a thin volume, so that nothing was held back for it.
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
            // Records that were written when a snapshot had its source's content.
            let old = serde_json::to_string(&source).expect("a record");
            let read: CopyContent = serde_json::from_str(&old).expect("an old record");
            assert_eq!(read, copy);
            let new = serde_json::to_string(&copy).expect("a record");
            assert_eq!(serde_json::from_str::<CopyContent>(&new).expect("a new record"), copy);
        }
    }
}
