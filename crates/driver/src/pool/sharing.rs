//! Decides where thick volumes may share blocks with their copies, and which copies must be
//! unshared.
//!
//! Overwriting a block that two images share needs a new block. If only thick volumes can take the
//! pool's space, the account holds that block back. Otherwise the space may be gone when the thick
//! volume needs it, so these copies get their own blocks: a snapshot, clone or restore of a thick
//! volume, and a thick clone or restore of any volume.

use std::{collections::BTreeMap, sync::atomic::Ordering};

use wharf_mount::mountinfo;

use super::{Kind, Kinds, Layout, Pool};
use crate::{
    backend::BackendKind,
    error::Error,
    private,
    record::{Blocks, Phase, Snapshot, Source, Volume},
    store::State,
};

/// Policy for sharing blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct SharingPolicy {
    /// Kinds of volumes that may be created.
    pub(super) kinds: Kinds,
    /// Whether no other files are on the pool's filesystem.
    pub(super) own_filesystem: bool,
    /// Whether the filesystem writes all blocks to new places (btrfs): thick volumes there share no
    /// blocks.
    pub(super) copy_on_write: bool,
}

/// The source of a copy.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin<'a> {
    pub(super) family: &'a str,
    pub(super) blocks: Blocks,
}

/// An image that shares blocks with a thick volume and must be unshared.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharedCopy {
    pub(super) id: String,
    pub(super) family: String,
    pub(super) is_volume: bool,
    pub(super) in_use: bool,
}

impl SharingPolicy {
    /// Whether thick volumes may share blocks with their copies: only if nothing else can take the
    /// pool's space.
    pub(super) fn may_share(self, state: &State) -> bool {
        let thin = self.kinds.allow(Kind::Thin)
            || state.volumes.iter().any(|volume| volume.thin)
            || state.snapshots.iter().any(|snapshot| snapshot.is_thin());
        self.own_filesystem && !thin
    }

    /// Whether a new copy that shares blocks must be unshared. `thick` refers to a volume; a
    /// snapshot is never overwritten and needs no blocks for itself.
    pub(super) fn must_unshare(self, state: &State, origin: Origin<'_>, thick: bool) -> bool {
        if self.copy_on_write {
            return false;
        }
        // The source may share blocks with a thick volume elsewhere in its family.
        let with_thick = || {
            let mut family = state.volumes.iter().filter(|it| it.family == origin.family);
            family.any(|volume| !volume.thin)
        };
        origin.blocks.is_unsharing() || (!self.may_share(state) && (thick || with_thick()))
    }

    /// Returns images that share blocks with a thick volume but must not: those made while it was
    /// allowed, or by an older version. One thick volume of each family keeps its blocks,
    /// preferably one in use.
    pub(super) fn to_unshare(self, state: &State) -> Vec<SharedCopy> {
        if self.copy_on_write || self.may_share(state) {
            return Vec::new();
        }
        let mut families: BTreeMap<&str, Family<'_>> = BTreeMap::new();
        // An unshared image has its own family, in which it may share blocks with later copies.
        for volume in state.volumes.iter().filter(|it| !it.blocks.is_unsharing()) {
            families.entry(&volume.family).or_default().volumes.push(volume);
        }
        // A snapshot made by copying is in its volume's family but shares no blocks.
        let reflinks = state.snapshots.iter().filter(|it| it.backend == BackendKind::ImageReflink);
        for cut in reflinks.filter(|it| !it.blocks.is_unsharing()) {
            families.entry(&cut.family).or_default().snapshots.push(cut);
        }
        families.values().flat_map(Family::to_unshare).collect()
    }
}

#[derive(Default)]
struct Family<'a> {
    volumes: Vec<&'a Volume>,
    snapshots: Vec<&'a Snapshot>,
}

impl Family<'_> {
    fn to_unshare(&self) -> Vec<SharedCopy> {
        let thick = self.volumes.iter().filter(|volume| !volume.thin);
        let Some(stays) = thick.max_by_key(|it| (it.in_use(), it.id == it.family)) else {
            return Vec::new();
        };
        let volumes = self.volumes.iter().filter(|it| it.id != stays.id && it.is_whole());
        let volumes = volumes.map(|volume| SharedCopy {
            id: volume.id.clone(),
            family: volume.family.clone(),
            is_volume: true,
            in_use: volume.in_use(),
        });
        let snapshots = self.snapshots.iter().filter(|it| it.phase == Phase::Ready);
        let snapshots = snapshots.map(|snapshot| SharedCopy {
            id: snapshot.id.clone(),
            family: snapshot.family.clone(),
            is_volume: false,
            in_use: false,
        });
        volumes.chain(snapshots).collect()
    }
}

impl Pool {
    /// Whether thick volumes share blocks with their snapshots and clones on this pool.
    pub fn may_share(&self) -> bool {
        self.store.read(|state| self.sharing_policy().may_share(state))
    }

    /// Records that another pool is on this filesystem: from now on copies of thick volumes are
    /// unshared, existing ones, too. Until the last one is unshared, the other pool can take space
    /// that a thick volume needs to overwrite shared blocks.
    pub(crate) fn share_filesystem(&self) {
        if self.own_filesystem.swap(false, Ordering::Relaxed) {
            let folder = self.layout.root().display();
            tracing::warn!(%folder, "unsharing copies of thick volumes, filesystem has another pool");
            self.unsharing.wake.notify_one();
        }
    }

    pub(super) fn sharing_policy(&self) -> SharingPolicy {
        SharingPolicy {
            kinds: self.settings().kinds,
            own_filesystem: self.own_filesystem.load(Ordering::Relaxed),
            copy_on_write: self.copy_on_write,
        }
    }

    /// Whether no thin volume may be created yet: its writes could take space that thick volumes
    /// with shared blocks need.
    pub fn thin_must_wait(&self) -> bool {
        let policy = self.sharing_policy();
        self.store.read(|state| !policy.to_unshare(state).is_empty())
    }

    /// Whether a thick volume shares blocks with a copy that is not unshared yet, so that writes to
    /// it may need space.
    pub(crate) fn shares_blocks(&self, volume: &Volume) -> bool {
        let policy = self.sharing_policy();
        self.store.read(|state| {
            volume.blocks.is_unsharing()
                || has_unsharing_copy(state, volume)
                || policy.to_unshare(state).iter().any(|copy| copy.family == volume.family)
        })
    }
}

fn has_unsharing_copy(state: &State, volume: &Volume) -> bool {
    let cut_here = |id: &String| state.snapshots.get(id).is_some_and(|it| it.volume == volume.id);
    let is_source = |source: &Source| match source {
        Source::Volume(id) => *id == volume.id,
        Source::Snapshot(id) => cut_here(id),
    };
    let mut volumes = state.volumes.iter().filter(|it| it.blocks.is_unsharing());
    let mut snapshots = state.snapshots.iter().filter(|it| it.blocks.is_unsharing());
    volumes.any(|it| it.source.as_ref().is_some_and(is_source))
        || snapshots.any(|it| it.volume == volume.id)
}

/// Whether the pool's folder is the root of a filesystem without foreign files. A mounted subfolder
/// of a larger filesystem, such as a hostPath, is not.
pub(super) fn is_own_filesystem(layout: &Layout) -> Result<bool, Error> {
    if private::has_foreign_files(layout.root())? {
        return Ok(false);
    }
    if mountinfo::root_at(layout.root())?.is_none() {
        return Ok(false);
    }
    let mount = mountinfo::at(layout.root())?;
    Ok(mount.is_some_and(|mount| mount.root == std::path::Path::new("/")))
}

#[cfg(test)]
mod tests;
