//! Decides the content and the source of a snapshot.

use wharf_cluster::{
    CsiVolumeSource, PersistentVolume, PersistentVolumeClaim, VolumeSnapshot, VolumeSnapshotContent,
};
use wharf_facts::finalizer;

use super::failure::{Failure, TakeRefusal};

/// The source of a snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SnapshotSource<'a> {
    /// The claim of this name, whose volume is to be snapshot.
    Claim(&'a str),
    /// The existing content of this name.
    Content(&'a str),
}

impl<'a> SnapshotSource<'a> {
    pub(super) fn of(snapshot: &'a VolumeSnapshot) -> Result<Self, Failure> {
        let source = &snapshot.spec.source;
        match (&source.persistent_volume_claim_name, &source.volume_snapshot_content_name) {
            (Some(claim), None) => Ok(Self::Claim(claim)),
            (None, Some(content)) => Ok(Self::Content(content)),
            _ => Err(Failure::Sources),
        }
    }

    /// The content's name, if it exists or is to be created.
    pub(super) fn content_name(self, snapshot: &VolumeSnapshot) -> String {
        match self {
            Self::Claim(_) => content_name(snapshot),
            Self::Content(name) => name.to_owned(),
        }
    }

    /// Refuses a content of this name that does not belong to the snapshot.
    pub(super) fn check(
        self,
        snapshot: &VolumeSnapshot,
        content: &VolumeSnapshotContent,
    ) -> Result<(), Failure> {
        let name = &content.metadata.name;
        let uid = &content.spec.volume_snapshot_ref.uid;
        match self {
            Self::Claim(_) if content.spec.source.volume_handle.is_none() => {
                return Err(Failure::NotDynamic(name.clone()));
            }
            Self::Content(_) if content.spec.source.snapshot_handle.is_none() => {
                return Err(Failure::Dynamic);
            }
            _ => {}
        }
        let unbound = uid.is_empty() && matches!(self, Self::Content(_));
        match refers(content, snapshot) && (unbound || *uid == snapshot.metadata.uid) {
            true => Ok(()),
            false => Err(Failure::OfAnother(name.clone())),
        }
    }
}

/// The name of the content for a snapshot that is to be taken. It never changes, so that there is
/// only one.
pub(super) fn content_name(snapshot: &VolumeSnapshot) -> String {
    format!("snapcontent-{}", snapshot.metadata.uid)
}

/// Whether the snapshot was taken already: a content that is created now would be of another time.
pub(super) fn is_taken(snapshot: &VolumeSnapshot) -> bool {
    let other = snapshot.bound_content().is_some_and(|bound| bound != content_name(snapshot));
    other || snapshot.status.as_ref().is_some_and(|status| status.creation_time.is_some())
}

/// Whether a content is bound to the snapshot.
pub(super) fn is_bound(content: &VolumeSnapshotContent, snapshot: &VolumeSnapshot) -> bool {
    refers(content, snapshot) && content.spec.volume_snapshot_ref.uid == snapshot.metadata.uid
}

/// Group snapshots are taken, bound and deleted as a whole, by other controllers.
pub(super) fn is_in_group(snapshot: &VolumeSnapshot) -> bool {
    snapshot.metadata.has_finalizer(finalizer::SNAPSHOT_IN_GROUP_PROTECTION)
}

/// Whether one of our finalizers is on a snapshot.
pub(super) fn is_held(snapshot: &VolumeSnapshot) -> bool {
    let ours = [finalizer::SNAPSHOT_SOURCE_PROTECTION, finalizer::SNAPSHOT_BOUND_PROTECTION];
    ours.iter().any(|it| snapshot.metadata.has_finalizer(it))
}

/// Whether a content, which belongs to a snapshot, lacks the finalizer that keeps it until it is
/// deleted in the driver.
pub(super) fn needs_protection(content: &VolumeSnapshotContent) -> bool {
    !content.spec.volume_snapshot_ref.uid.is_empty()
        && !content.metadata.deleting
        && !content.metadata.has_finalizer(finalizer::CONTENT_BOUND_PROTECTION)
}

/// Whether the claim waits for a volume from its source, which is this snapshot according to the
/// index.
pub(super) fn is_restoring(claim: &PersistentVolumeClaim) -> bool {
    let group = claim.source().and_then(|source| source.api_group.as_deref());
    claim.status.phase == "Pending" && group == Some("snapshot.storage.k8s.io")
}

/// The CSI volume of a claim, if both are bound to each other.
pub(super) fn volume<'a>(
    name: &str,
    claim: Option<&PersistentVolumeClaim>,
    volume: Option<&'a PersistentVolume>,
) -> Result<(&'a PersistentVolume, &'a CsiVolumeSource), TakeRefusal> {
    let claim = claim.ok_or_else(|| TakeRefusal::NoClaim(name.to_owned()))?;
    if claim.status.phase != "Bound" {
        return Err(TakeRefusal::UnboundClaim(name.to_owned()));
    }
    let volume_name = claim.spec.volume_name.clone().unwrap_or_default();
    let volume = volume.ok_or(TakeRefusal::NoVolume(volume_name))?;
    let bound = volume.spec.claim_ref.as_ref().is_some_and(|it| {
        it.name == claim.metadata.name
            && Some(&it.namespace) == claim.metadata.namespace.as_ref()
            && (it.uid.is_empty() || it.uid == claim.metadata.uid)
    });
    if !bound {
        return Err(TakeRefusal::BrokenBinding);
    }
    let csi = volume.spec.csi.as_ref();
    let csi = csi.ok_or_else(|| TakeRefusal::NotCsi(volume.metadata.name.clone()))?;
    Ok((volume, csi))
}

fn refers(content: &VolumeSnapshotContent, snapshot: &VolumeSnapshot) -> bool {
    let to = &content.spec.volume_snapshot_ref;
    to.name == snapshot.metadata.name && Some(&to.namespace) == snapshot.metadata.namespace.as_ref()
}

#[cfg(test)]
mod tests;
