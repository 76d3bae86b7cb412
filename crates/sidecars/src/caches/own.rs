//! Decides which volumes and claims concern a driver.

use wharf_cluster::{PersistentVolume, PersistentVolumeClaim, Store};
use wharf_facts::annotation;

pub(super) fn is_volume_of(
    volume: &PersistentVolume,
    is_own: impl Fn(&str) -> bool,
    finalizer: Option<&str>,
) -> bool {
    match &volume.spec.csi {
        Some(csi) => is_own(&csi.driver),
        None => {
            let migrated = volume.metadata.annotations.get(annotation::MIGRATED_TO);
            let plugin = volume.spec.in_tree();
            migrated.is_some_and(&is_own)
                || plugin.is_some_and(|plugin| is_own(plugin.driver))
                || finalizer.is_some_and(|it| volume.metadata.has_finalizer(it))
        }
    }
}

pub(super) fn is_bound_to(
    claim: &PersistentVolumeClaim,
    volumes: &Store<PersistentVolume>,
) -> bool {
    claim.spec.volume_name.as_deref().is_some_and(|volume| volumes.get(volume).is_some())
}

/// A claim that was never provisioned for may be bound to any driver's volume.
pub(super) fn may_be_claim_of(
    claim: &PersistentVolumeClaim,
    is_own: impl Fn(&str) -> bool,
) -> bool {
    let annotations = &claim.metadata.annotations;
    let mut drivers = [
        annotation::MIGRATED_TO,
        annotation::STORAGE_PROVISIONER,
        annotation::STORAGE_PROVISIONER_BETA,
    ]
    .into_iter()
    .filter_map(|key| annotations.get(key))
    .peekable();
    drivers.peek().is_none() || drivers.any(is_own)
}
