//! Decides the next step for an object.

use wharf_cluster::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use wharf_facts::{annotation, finalizer};

use super::failure::ProvisionRefusal;

/// The next step for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimNeed {
    /// Nothing, or nothing yet, or another component acts.
    Nothing,
    /// Create a volume.
    Volume,
}

/// Whether a claim requests a volume of this driver, or has the mark of one that the driver may be
/// creating; checks nothing else.
pub(super) fn concerns(claim: &PersistentVolumeClaim, driver: &str) -> bool {
    !claim.is_bound() && is_of(claim, driver) || is_marked(claim, driver)
}

/// Whether a claim has the mark of a volume that this driver may be creating.
pub(super) fn is_marked(claim: &PersistentVolumeClaim, driver: &str) -> bool {
    claim.metadata.has_finalizer(finalizer::UNSETTLED_VOLUME) && is_of(claim, driver)
}

fn is_of(claim: &PersistentVolumeClaim, driver: &str) -> bool {
    let migrated = claim.metadata.annotations.get(annotation::MIGRATED_TO) == Some(driver);
    migrated || provisioner(claim) == Some(driver)
}

/// The state of a marked claim's volume.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// Whether a PersistentVolume has it.
    pub(super) known: bool,
    /// The node of the call, if the volume is accessible from that node only.
    pub(super) node: Option<&'a str>,
}

/// The next step for a marked claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkNeed {
    /// Create its volume, as for an unmarked claim.
    Volume,
    /// Nothing: another component acts.
    Nothing,
    /// Wait until the provisioner of another node has settled the volume.
    Wait,
    /// Remove the mark: the volume has a PersistentVolume.
    Removal,
    /// Settle: find the unwanted volume, delete it, and then remove the mark.
    Settlement,
}

/// The next step for a marked claim. With `node` only claims of this node are served.
pub(super) fn mark_need(
    claim: &PersistentVolumeClaim,
    asked: Asked<'_>,
    node: Option<&str>,
) -> MarkNeed {
    let selected = selected_node(claim);
    let has_moved = asked.node.is_some() && asked.node != selected;
    if node.is_some() && node != asked.node.or(selected) {
        return if node == selected && has_moved { MarkNeed::Wait } else { MarkNeed::Nothing };
    }
    if asked.known {
        MarkNeed::Removal
    } else if claim.metadata.deleting || claim.is_bound() || has_moved {
        MarkNeed::Settlement
    } else {
        MarkNeed::Volume
    }
}

/// Whether a marked claim is bound to the volume that was requested under this name.
pub(super) fn is_bound_to(claim: &PersistentVolumeClaim, name: &str) -> bool {
    claim.spec.volume_name.as_deref() == Some(name)
}

/// Whether a PersistentVolume is of this driver and belongs to this claim.
pub(crate) fn is_volume_of(
    volume: &PersistentVolume,
    claim: &PersistentVolumeClaim,
    driver: &str,
) -> bool {
    let owner = volume.spec.claim_ref.as_ref();
    volume.is_of(driver) && owner.is_some_and(|it| it.uid == claim.metadata.uid)
}

/// The next step for a claim. With `node` only claims of this node are served.
pub(super) fn claim_need(
    claim: &PersistentVolumeClaim,
    class: Option<&StorageClass>,
    driver: &str,
    node: Option<&str>,
) -> Result<ClaimNeed, ProvisionRefusal> {
    let selected = selected_node(claim);
    if claim.is_bound() || !concerns(claim, driver) || node.is_some() && node != selected {
        return Ok(ClaimNeed::Nothing);
    }
    if let Some(named) = provisioner(claim).filter(|named| *named != driver) {
        return Err(ProvisionRefusal::InTree(named.to_owned()));
    }
    let class = class.ok_or_else(|| {
        let name = claim.class().unwrap_or_default();
        ProvisionRefusal::NoClass(name.to_owned())
    })?;
    if class.provisioner != driver {
        let (class, provisioner) = (class.metadata.name.clone(), class.provisioner.clone());
        return Err(ProvisionRefusal::OtherClass { class, provisioner });
    }
    let waits = class.waits_for_consumer() && selected.is_none();
    Ok(if waits { ClaimNeed::Nothing } else { ClaimNeed::Volume })
}

/// The node that the scheduler selected.
pub(crate) fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.metadata.annotations.get(annotation::SELECTED_NODE).filter(|node| !node.is_empty())
}

fn provisioner(claim: &PersistentVolumeClaim) -> Option<&str> {
    let annotations = &claim.metadata.annotations;
    let older = || annotations.get(annotation::STORAGE_PROVISIONER_BETA);
    annotations.get(annotation::STORAGE_PROVISIONER).or_else(older)
}

/// The reaction to a change of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// No relevant change.
    None,
    /// Queue it after its back-off.
    Wake,
    /// Queue it now: the earlier failure was about a different request.
    Renew,
}

/// The reaction to a change. A deleted claim may have a volume in progress, and is queued as well.
pub(super) fn reaction(
    old: Option<&PersistentVolumeClaim>,
    new: Option<&PersistentVolumeClaim>,
    driver: &str,
) -> Reaction {
    let concerned =
        |claim: Option<&PersistentVolumeClaim>| claim.is_some_and(|it| concerns(it, driver));
    match (old, new) {
        _ if !concerned(old) && !concerned(new) => Reaction::None,
        (Some(old), Some(new)) => {
            let same_question = old.metadata.uid == new.metadata.uid
                && old.spec == new.spec
                && of_others(old).eq(of_others(new));
            let is_given_up = is_marked(new, driver)
                && (new.metadata.deleting != old.metadata.deleting
                    || new.is_bound() && !is_marked(old, driver));
            if same_question && !is_given_up { Reaction::None } else { Reaction::Renew }
        }
        (None, Some(_)) => Reaction::Renew,
        (_, None) => Reaction::Wake,
    }
}

/// The annotations of a claim without the note, which is our own.
fn of_others(claim: &PersistentVolumeClaim) -> impl Iterator<Item = (&str, &str)> {
    claim.metadata.annotations.iter().filter(|(key, _)| *key != annotation::UNSETTLED_VOLUME)
}

/// The next step for a volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VolumeNeed {
    Nothing,
    /// Add our finalizer, so that the object is not deleted before the volume.
    Protection,
    /// Remove our finalizer: the volume is retained.
    Release,
    /// Delete the volume, and then the object.
    Deletion,
}

/// The next step for a volume.
pub(super) fn volume_need(volume: &PersistentVolume, driver: &str) -> VolumeNeed {
    let metadata = &volume.metadata;
    let csi = volume.is_of(driver);
    let made_by_another = metadata.annotations.get(annotation::PROVISIONED_BY);
    if !csi || made_by_another.is_some_and(|maker| maker != driver) {
        return VolumeNeed::Nothing;
    }
    let held = metadata.has_finalizer(finalizer::PROVISIONER);
    let phase = volume.status.phase.as_str();
    match volume.spec.persistent_volume_reclaim_policy.as_str() {
        "Delete" if phase == "Bound" && !metadata.deleting && !held => VolumeNeed::Protection,
        // Without the finalizer the volume of an object that is being deleted is gone already.
        "Delete" if phase == "Released" && (held || !metadata.deleting) => VolumeNeed::Deletion,
        "Retain" | "Recycle" if held => VolumeNeed::Release,
        _ => VolumeNeed::Nothing,
    }
}

#[cfg(test)]
mod tests;
