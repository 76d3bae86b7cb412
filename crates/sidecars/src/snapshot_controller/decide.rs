//! Which content a snapshot is of, and what it may be taken of.

use wharf_cluster::{
    CsiVolumeSource, PersistentVolume, PersistentVolumeClaim, VolumeSnapshot, VolumeSnapshotContent,
};
use wharf_facts::finalizer;

use super::failure::{Failure, Refusal};

/// What a snapshot is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source<'a> {
    /// The claim of this name, of whose volume one is to be taken.
    Claim(&'a str),
    /// The content of this name, which is there.
    Content(&'a str),
}

impl<'a> Source<'a> {
    pub(super) fn of(snapshot: &'a VolumeSnapshot) -> Result<Self, Failure> {
        let source = &snapshot.spec.source;
        match (&source.persistent_volume_claim_name, &source.volume_snapshot_content_name) {
            (Some(claim), None) => Ok(Self::Claim(claim)),
            (None, Some(content)) => Ok(Self::Content(content)),
            _ => Err(Failure::Sources),
        }
    }

    /// The content's name, where there is one or is to be one.
    pub(super) fn content_name(self, snapshot: &VolumeSnapshot) -> String {
        match self {
            Self::Claim(_) => content_name(snapshot),
            Self::Content(name) => name.to_owned(),
        }
    }

    /// Refuses a content under that name that is not of the snapshot.
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

/// What the content of a snapshot that is taken is called. Always the same, so that there is never a second one.
pub(super) fn content_name(snapshot: &VolumeSnapshot) -> String {
    format!("snapcontent-{}", snapshot.metadata.uid)
}

/// Whether the snapshot is of a moment that has passed: a content that is taken now would be another's.
pub(super) fn is_taken(snapshot: &VolumeSnapshot) -> bool {
    let other = snapshot.bound_content().is_some_and(|bound| bound != content_name(snapshot));
    other || snapshot.status.as_ref().is_some_and(|status| status.creation_time.is_some())
}

/// Whether a content is bound to the snapshot.
pub(super) fn is_bound(content: &VolumeSnapshotContent, snapshot: &VolumeSnapshot) -> bool {
    refers(content, snapshot) && content.spec.volume_snapshot_ref.uid == snapshot.metadata.uid
}

/// Groups are taken, bound and deleted as a whole, by others.
pub(super) fn is_in_group(snapshot: &VolumeSnapshot) -> bool {
    snapshot.metadata.has_finalizer(finalizer::SNAPSHOT_IN_GROUP_PROTECTION)
}

/// Whether a finalizer of ours holds a snapshot.
pub(super) fn is_held(snapshot: &VolumeSnapshot) -> bool {
    let ours = [finalizer::SNAPSHOT_SOURCE_PROTECTION, finalizer::SNAPSHOT_BOUND_PROTECTION];
    ours.iter().any(|it| snapshot.metadata.has_finalizer(it))
}

/// Whether a content, which belongs to a snapshot, lacks what holds it until it is deleted in the driver.
pub(super) fn needs_protection(content: &VolumeSnapshotContent) -> bool {
    !content.spec.volume_snapshot_ref.uid.is_empty()
        && !content.metadata.deleting
        && !content.metadata.has_finalizer(finalizer::CONTENT_BOUND_PROTECTION)
}

/// Whether the claim is waiting for a volume from its source, which is this snapshot if the index says so.
pub(super) fn is_restoring(claim: &PersistentVolumeClaim) -> bool {
    let group = claim.source().and_then(|source| source.api_group.as_deref());
    claim.status.phase == "Pending" && group == Some("snapshot.storage.k8s.io")
}

/// The volume of a claim, in its driver, if the two belong together.
pub(super) fn volume<'a>(
    name: &str,
    claim: Option<&PersistentVolumeClaim>,
    volume: Option<&'a PersistentVolume>,
) -> Result<(&'a PersistentVolume, &'a CsiVolumeSource), Refusal> {
    let claim = claim.ok_or_else(|| Refusal::NoClaim(name.to_owned()))?;
    if claim.status.phase != "Bound" {
        return Err(Refusal::UnboundClaim(name.to_owned()));
    }
    let volume_name = claim.spec.volume_name.clone().unwrap_or_default();
    let volume = volume.ok_or(Refusal::NoVolume(volume_name))?;
    let bound = volume.spec.claim_ref.as_ref().is_some_and(|it| {
        it.name == claim.metadata.name
            && Some(&it.namespace) == claim.metadata.namespace.as_ref()
            && (it.uid.is_empty() || it.uid == claim.metadata.uid)
    });
    if !bound {
        return Err(Refusal::BrokenBinding);
    }
    let csi = volume.spec.csi.as_ref();
    let csi = csi.ok_or_else(|| Refusal::NotCsi(volume.metadata.name.clone()))?;
    Ok((volume, csi))
}

fn refers(content: &VolumeSnapshotContent, snapshot: &VolumeSnapshot) -> bool {
    let to = &content.spec.volume_snapshot_ref;
    to.name == snapshot.metadata.name && Some(&to.namespace) == snapshot.metadata.namespace.as_ref()
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
