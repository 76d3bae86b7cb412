//! Decides which operations may run concurrently.
//!
//! An operation claims all its keys at once or none, so no operation waits for another and there
//! are no deadlocks. The [table of locks](crate#locks) lists the keys of each request.

use std::{
    collections::{BTreeMap, HashMap},
    fmt,
    path::PathBuf,
};

use crate::types::{GroupSnapshotId, NodeId, SnapshotId, VolumeId};

/// An object that can be claimed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    VolumeName(String),
    Volume(VolumeId),
    /// All nodes that a volume is published to. Claimed exclusively so that a second node is
    /// noticed before the volume is published to it.
    Attachments(VolumeId),
    Attachment(VolumeId, NodeId),
    /// All targets on this node that a volume is published at. Claimed exclusively for the same
    /// reason.
    Targets(VolumeId),
    Target(VolumeId, PathBuf),
    SnapshotName(String),
    Snapshot(SnapshotId),
    GroupName(String),
    Group(GroupSnapshotId),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::VolumeName(name) => write!(f, "the volume named {name:?}"),
            Self::Volume(id) | Self::Attachments(id) | Self::Targets(id) => {
                write!(f, "volume {id}")
            }
            Self::Attachment(id, node) => write!(f, "volume {id} on node {node}"),
            Self::Target(id, path) => write!(f, "volume {id} at {}", path.display()),
            Self::SnapshotName(name) => write!(f, "the snapshot named {name:?}"),
            Self::Snapshot(id) => write!(f, "snapshot {id}"),
            Self::GroupName(name) => write!(f, "the group snapshot named {name:?}"),
            Self::Group(id) => write!(f, "group snapshot {id}"),
        }
    }
}

/// Whether several operations may hold a key at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Share {
    Shared,
    Exclusive,
}

/// The keys of one operation. A key claimed both shared and exclusively is exclusive.
#[derive(Clone, Debug, Default)]
pub(crate) struct Claims(BTreeMap<Key, Share>);

impl Claims {
    pub(crate) fn shared(self, key: Key) -> Self {
        self.and(key, Share::Shared)
    }

    pub(crate) fn exclusive(self, key: Key) -> Self {
        self.and(key, Share::Exclusive)
    }

    pub(crate) fn and(mut self, key: Key, share: Share) -> Self {
        let held = self.0.entry(key).or_insert(share);
        *held = share.max(*held);
        self
    }
}

/// The keys that running operations hold.
#[derive(Debug, Default)]
pub(crate) struct LockTable(HashMap<Key, Held>);

#[derive(Debug)]
struct Held {
    share: Share,
    /// The RPCs that hold the key: one, or several that share it.
    holders: Vec<&'static str>,
}

/// A claim that another operation blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Conflict {
    pub(crate) key: Key,
    pub(crate) holder: &'static str,
}

impl LockTable {
    /// Takes all claims for an RPC, or none.
    pub(crate) fn take(&mut self, rpc: &'static str, claims: &Claims) -> Result<(), Conflict> {
        for (key, share) in &claims.0 {
            if let Some(held) = self.0.get(key)
                && (*share, held.share) != (Share::Shared, Share::Shared)
            {
                return Err(Conflict { key: key.clone(), holder: held.holders[0] });
            }
        }
        for (key, share) in &claims.0 {
            let vacant = || Held { share: *share, holders: Vec::new() };
            self.0.entry(key.clone()).or_insert_with(vacant).holders.push(rpc);
        }
        Ok(())
    }

    /// Releases the claims of one [`take`](Self::take) with the same arguments.
    pub(crate) fn give_back(&mut self, rpc: &'static str, claims: &Claims) {
        for key in claims.0.keys() {
            if let Some(held) = self.0.get_mut(key) {
                if let Some(holder) = held.holders.iter().position(|holder| *holder == rpc) {
                    held.holders.swap_remove(holder);
                }
                if held.holders.is_empty() {
                    self.0.remove(key);
                }
            }
        }
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

#[cfg(test)]
mod tests;
