//! Reports objects that ask for unsupported features, once for each, while the controllers work on.
//!
//! - `decide`: which objects these are, and the messages, as pure functions.
//! - `guard`: follows the caches, writes an event on each such object, and counts them.

mod decide;
mod guard;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use wharf_cluster::Key;

pub(crate) use self::decide::{claim_message, group_message, volume_message};
pub use self::guard::Guard;

/// The reason of the event on an object that is not served.
pub const NOT_SERVED: &str = "NotServed";

/// An unsupported feature that objects can ask for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Gap {
    /// PersistentVolumes of in-tree plugins that were migrated to the driver are not translated.
    InTreeVolumes,
    /// Claims of StorageClasses that bind immediately get no volume from provisioners that serve
    /// one node each.
    ImmediateClaims,
    /// VolumeGroupSnapshots are not bound.
    GroupSnapshots,
    /// VolumeGroupSnapshotContents of the driver are neither created nor deleted.
    GroupContents,
}

impl Gap {
    /// The kind of the objects.
    pub fn kind(self) -> &'static str {
        match self {
            Self::InTreeVolumes => "PersistentVolume",
            Self::ImmediateClaims => "PersistentVolumeClaim",
            Self::GroupSnapshots => "VolumeGroupSnapshot",
            Self::GroupContents => "VolumeGroupSnapshotContent",
        }
    }

    /// The reason in CamelCase.
    pub fn reason(self) -> &'static str {
        match self {
            Self::InTreeVolumes => "InTreeVolume",
            Self::ImmediateClaims => "ImmediateBinding",
            Self::GroupSnapshots | Self::GroupContents => "GroupSnapshot",
        }
    }
}

/// The objects of a process that are not served now, by controller. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct Unserved(Arc<Mutex<BTreeMap<(&'static str, Gap), Objects>>>);

/// UIDs by key.
type Objects = HashMap<Key, Box<str>>;

impl Unserved {
    /// The number of unserved objects by controller.
    pub fn counts(&self) -> Vec<(&'static str, Gap, usize)> {
        let all = self.lock();
        all.iter().map(|((controller, gap), objects)| (*controller, *gap, objects.len())).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<(&'static str, Gap), Objects>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
