//! What an object needs next.

use wharf_cluster::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use wharf_facts::{annotation, finalizer};

use super::failure::Refusal;

/// What a claim needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClaimNeed {
    /// Nothing, or nothing from us, or not yet.
    Nothing,
    /// A volume.
    Volume,
}

/// Whether a claim asks this driver for a volume, or has the mark of one that the driver may be making, all else aside.
pub(super) fn concerns(claim: &PersistentVolumeClaim, driver: &str) -> bool {
    !claim.is_bound() && is_of(claim, driver) || is_marked(claim, driver)
}

/// Whether a claim has the mark of a volume that this driver may be making.
pub(super) fn is_marked(claim: &PersistentVolumeClaim, driver: &str) -> bool {
    claim.metadata.has_finalizer(finalizer::UNSETTLED_VOLUME) && is_of(claim, driver)
}

fn is_of(claim: &PersistentVolumeClaim, driver: &str) -> bool {
    let migrated = claim.metadata.annotations.get(annotation::MIGRATED_TO) == Some(driver);
    migrated || provisioner(claim) == Some(driver)
}

/// What is known of the volume that a claim has a mark for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// Whether the API knows it.
    pub(super) known: bool,
    /// The node that it was asked for, if it is reached from there only.
    pub(super) node: Option<&'a str>,
}

/// What a claim needs because of its mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum MarkNeed {
    /// Its volume, as if it had no mark.
    Volume,
    /// Nothing from us.
    Nothing,
    /// The provisioner of another node has to settle first.
    Wait,
    /// The mark has to go: the volume is known.
    Removal,
    /// The volume is not wanted any more: it has to be found and deleted, and then the mark has to go.
    Settlement,
}

/// What a marked claim needs. `node` tells that only claims of this node are served.
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

/// Whether a marked claim is bound to the volume that the driver was asked for under this name.
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

/// What a claim needs. `node` tells that only claims of this node are served.
pub(super) fn claim_need(
    claim: &PersistentVolumeClaim,
    class: Option<&StorageClass>,
    driver: &str,
    node: Option<&str>,
) -> Result<ClaimNeed, Refusal> {
    let selected = selected_node(claim);
    if claim.is_bound() || !concerns(claim, driver) || node.is_some() && node != selected {
        return Ok(ClaimNeed::Nothing);
    }
    if let Some(named) = provisioner(claim).filter(|named| *named != driver) {
        return Err(Refusal::InTree(named.to_owned()));
    }
    let class = class.ok_or_else(|| {
        let name = claim.class().unwrap_or_default();
        Refusal::NoClass(name.to_owned())
    })?;
    if class.provisioner != driver {
        let (class, provisioner) = (class.metadata.name.clone(), class.provisioner.clone());
        return Err(Refusal::OtherClass { class, provisioner });
    }
    let waits = class.waits_for_consumer() && selected.is_none();
    Ok(if waits { ClaimNeed::Nothing } else { ClaimNeed::Volume })
}

/// The node that the scheduler picked.
pub(crate) fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.metadata.annotations.get(annotation::SELECTED_NODE).filter(|node| !node.is_empty())
}

fn provisioner(claim: &PersistentVolumeClaim) -> Option<&str> {
    let annotations = &claim.metadata.annotations;
    let older = || annotations.get(annotation::STORAGE_PROVISIONER_BETA);
    annotations.get(annotation::STORAGE_PROVISIONER).or_else(older)
}

/// What a change of a claim is a reason for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// Nothing that counts has changed.
    None,
    /// Look at it when its back-off allows.
    Wake,
    /// Look at it now: what failed before was another question.
    Renew,
}

/// The reaction to a change. A claim that went may have a volume in the making, and is looked at as well.
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

/// The annotations of a claim but for the note, which is our own.
fn of_others(claim: &PersistentVolumeClaim) -> impl Iterator<Item = (&str, &str)> {
    claim.metadata.annotations.iter().filter(|(key, _)| *key != annotation::UNSETTLED_VOLUME)
}

/// What a volume needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VolumeNeed {
    Nothing,
    /// Our finalizer, so that it does not go before what it stands for.
    Protection,
    /// To be let go: what it stands for is kept.
    Release,
    /// What it stands for has to be deleted, and then it.
    Deletion,
}

/// What a volume needs.
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
        // Without the finalizer a volume that is being deleted was deleted before.
        "Delete" if phase == "Released" && (held || !metadata.deleting) => VolumeNeed::Deletion,
        "Retain" | "Recycle" if held => VolumeNeed::Release,
        _ => VolumeNeed::Nothing,
    }
}

#[cfg(test)]
#[path = "decide_tests.rs"]
mod tests;
