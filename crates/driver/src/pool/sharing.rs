//! Where thick volumes may share blocks with their copies, and which copies must not.
//!
//! A block that two images share takes a new block when one of them is overwritten. Where nobody but thick volumes can take
//! the pool's space, the account holds that block back. Elsewhere it may be gone when the thick volume needs it, so a copy
//! gets blocks of its own: a snapshot, clone or restore of a thick volume, and a thick clone or restore of anything.

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

/// What decides whether blocks stay shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ground {
    /// Kinds of volumes that may be created.
    pub(super) kinds: Kinds,
    /// Nobody else keeps files on the pool's filesystem.
    pub(super) own_filesystem: bool,
    /// The filesystem writes all blocks to a new place, shared or not (btrfs): thick volumes there share none.
    pub(super) copy_on_write: bool,
}

/// What a copy is made of.
#[derive(Clone, Copy, Debug)]
pub(super) struct Origin<'a> {
    pub(super) family: &'a str,
    pub(super) blocks: Blocks,
}

/// An image that shares blocks with a thick volume and should not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SharedCopy {
    pub(super) id: String,
    pub(super) family: String,
    pub(super) is_volume: bool,
    pub(super) in_use: bool,
}

impl Ground {
    /// Whether thick volumes may share blocks with their copies: only if nobody else can take the pool's space.
    pub(super) fn may_share(self, state: &State) -> bool {
        let thin = self.kinds.allow(Kind::Thin)
            || state.volumes.iter().any(|volume| volume.thin)
            || state.snapshots.iter().any(|snapshot| snapshot.is_thin());
        self.own_filesystem && !thin
    }

    /// Whether a new copy that is made by sharing blocks has to get its own. `thick` is that of a volume; a snapshot is
    /// never overwritten, and needs none for itself.
    pub(super) fn must_unshare(self, state: &State, origin: Origin<'_>, thick: bool) -> bool {
        if self.copy_on_write {
            return false;
        }
        // The origin may share blocks with a thick volume that it knows nothing of any more.
        let with_thick = || {
            let mut family = state.volumes.iter().filter(|it| it.family == origin.family);
            family.any(|volume| !volume.thin)
        };
        origin.blocks.is_unsharing() || (!self.may_share(state) && (thick || with_thick()))
    }

    /// Images that share blocks with a thick volume although they must not: those that were made where it was allowed, or by
    /// an older version. Of each family one thick volume stays as it is, if possible the one in use.
    pub(super) fn to_unshare(self, state: &State) -> Vec<SharedCopy> {
        if self.copy_on_write || self.may_share(state) {
            return Vec::new();
        }
        let mut families: BTreeMap<&str, Family<'_>> = BTreeMap::new();
        // An image whose blocks are its own has a family of its own, and shares blocks again with copies in that family.
        for volume in state.volumes.iter().filter(|it| !it.blocks.is_unsharing()) {
            families.entry(&volume.family).or_default().volumes.push(volume);
        }
        // A snapshot that is a copy is counted to its volume's family, and shares nothing.
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
    /// Whether thick volumes share blocks with their snapshots and clones here.
    pub fn may_share(&self) -> bool {
        self.store.read(|state| self.ground().may_share(state))
    }

    /// Notes that another pool has its files on this filesystem: from now on copies of thick volumes get blocks of their own,
    /// also those that exist. Until the last of them has its own blocks, the other pool can still take the space that a thick
    /// volume needs when shared blocks are overwritten.
    pub(crate) fn share_filesystem(&self) {
        if self.own_filesystem.swap(false, Ordering::Relaxed) {
            let folder = self.layout.root().display();
            tracing::warn!(%folder, "another pool is on this pool's filesystem: snapshots and clones of thick volumes get blocks of their own");
            self.unsharing.wake.notify_one();
        }
    }

    pub(super) fn ground(&self) -> Ground {
        Ground {
            kinds: self.settings().kinds,
            own_filesystem: self.own_filesystem.load(Ordering::Relaxed),
            copy_on_write: self.copy_on_write,
        }
    }

    /// Whether nothing thin may be created yet: what is written to it would take the space of thick volumes whose copies
    /// have no space of their own.
    pub fn thin_must_wait(&self) -> bool {
        let ground = self.ground();
        self.store.read(|state| !ground.to_unshare(state).is_empty())
    }

    /// Whether a thick volume shares blocks with a copy that has none of its own yet, so that a write of it may need space.
    pub(crate) fn shares_blocks(&self, volume: &Volume) -> bool {
        let ground = self.ground();
        self.store.read(|state| {
            volume.blocks.is_unsharing()
                || has_unsharing_copy(state, volume)
                || ground.to_unshare(state).iter().any(|copy| copy.family == volume.family)
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

/// Whether the pool's folder is the root of a filesystem, and holds no foreign files. A mount of a folder of a larger one, such as
/// a hostPath, is not.
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
