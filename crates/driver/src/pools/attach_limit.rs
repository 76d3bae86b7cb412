//! The limit of volumes attached to a node. It covers all pools, and no pool waits for another
//! pool's disk.

use std::{
    collections::BTreeSet,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use wharf_mount::loopdev;

use super::Pools;
use crate::{error::Error, store::State};

/// Volumes that are being attached, each with its node.
#[derive(Clone, Debug, Default)]
pub(super) struct Attaching(Arc<Mutex<BTreeSet<Pair>>>);

/// IDs of a volume and a node.
type Pair = (String, String);

/// Reserved room for a volume on a node. The volume counts as attached until this is dropped.
#[derive(Debug)]
#[must_use = "dropping this frees the room"]
pub(crate) struct AttachRoom {
    attaching: Attaching,
    pair: Pair,
}

impl Drop for AttachRoom {
    fn drop(&mut self) {
        self.attaching.lock().remove(&self.pair);
    }
}

impl Attaching {
    fn lock(&self) -> MutexGuard<'_, BTreeSet<Pair>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pools {
    /// Reserves room for a volume on a node that allows at most `most` volumes. The caller must
    /// hold a lock on the volume.
    ///
    /// # Errors
    /// If that many other volumes are attached to the node or being attached.
    pub(crate) fn room_for(
        &self,
        volume: &str,
        node: &str,
        most: u64,
    ) -> Result<AttachRoom, Error> {
        let mut attaching = self.attaching.lock();
        let coming: Vec<_> = attaching.iter().filter(|(_, to)| to == node).collect();
        // A volume that is being attached is recorded by its pool before it leaves the set: check
        // both under one lock.
        let others = |state: &State| {
            let there = state.volumes.iter().filter(|it| {
                let is_coming = || coming.iter().any(|(id, _)| *id == it.id);
                it.id != volume && (it.attachments.contains_key(node) || is_coming())
            });
            there.count() as u64
        };
        let served: u64 = self.served().iter().map(|it| it.pool.store().read(others)).sum();
        let count = served + self.staged_elsewhere(volume, node);
        if count >= most {
            return Err(Error::Exhausted(format!(
                "node {node} has {count} volumes and takes no more (--attach-limit)"
            )));
        }
        let pair = (volume.to_owned(), node.to_owned());
        attaching.insert(pair.clone());
        Ok(AttachRoom { attaching: self.attaching.clone(), pair })
    }

    /// Counts the staged volumes, other than this one, of pools that are not served. Their
    /// attachments are recorded on the pools' disks, but the driver notes on its own node which
    /// images it attaches.
    fn staged_elsewhere(&self, volume: &str, node: &str) -> u64 {
        if node != self.options.node_id {
            return 0;
        }
        let served = self.served();
        let is_known = |id: &str| {
            let is_there = |state: &State| state.volumes.get(id).is_some();
            served.iter().any(|it| it.pool.store().read(is_there))
        };
        let mut noted = self.state_dir.attached().volumes();
        noted.retain(|id| id != volume && !is_known(id));
        if noted.is_empty() {
            return 0;
        }
        // A note may be stale if someone else detached the device.
        match loopdev::list_asking(|_| false) {
            Ok(devices) => {
                let shown = devices.iter().filter_map(|it| {
                    self.state_dir.attached().of_device(&it.loopdev).map(|note| note.volume)
                });
                let shown: BTreeSet<String> = shown.collect();
                noted.intersection(&shown).count() as u64
            }
            Err(error) => {
                tracing::warn!(%error, "failed to list loop devices, counting all noted volumes");
                noted.len() as u64
            }
        }
    }
}
