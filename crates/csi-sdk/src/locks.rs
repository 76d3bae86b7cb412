//! Which operations may run at the same time.
//!
//! An operation claims all its keys at once or not at all, so no operation ever waits for another and none can lock
//! each other out. [The table](crate#locks) says which request claims what.

use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::path::PathBuf;

use crate::types::{GroupSnapshotId, NodeId, SnapshotId, VolumeId};

/// What can be claimed.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Key {
    VolumeName(String),
    Volume(VolumeId),
    /// All nodes that a volume is published to, so that a second one is seen before it is added.
    Attachments(VolumeId),
    Attachment(VolumeId, NodeId),
    /// All targets of this node that a volume is published to, for the same reason.
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
            Key::VolumeName(name) => write!(f, "the volume named {name:?}"),
            Key::Volume(id) | Key::Attachments(id) | Key::Targets(id) => write!(f, "volume {id}"),
            Key::Attachment(id, node) => write!(f, "volume {id} on node {node}"),
            Key::Target(id, path) => write!(f, "volume {id} at {}", path.display()),
            Key::SnapshotName(name) => write!(f, "the snapshot named {name:?}"),
            Key::Snapshot(id) => write!(f, "snapshot {id}"),
            Key::GroupName(name) => write!(f, "the group snapshot named {name:?}"),
            Key::Group(id) => write!(f, "group snapshot {id}"),
        }
    }
}

/// Whether others may have the same key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Share {
    Shared,
    Exclusive,
}

/// The keys of one operation. A key that is claimed in both ways is claimed exclusively.
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

/// Who holds what.
#[derive(Debug, Default)]
pub(crate) struct LockTable(HashMap<Key, Held>);

#[derive(Debug)]
struct Held {
    share: Share,
    /// The RPCs that hold it: one, or several that share it.
    holders: Vec<&'static str>,
}

/// The claim that another operation stands in the way of.
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

    /// Gives back what was taken with the same arguments.
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
