use wharf_cluster::{PersistentVolume, PersistentVolumeClaim, StorageClass};
use wharf_facts::annotation;

/// The message about a volume of an in-tree plugin that was migrated to `driver`; `None` for other
/// volumes.
pub(crate) fn volume_message(volume: &PersistentVolume, driver: &str) -> Option<String> {
    if volume.spec.csi.is_some() {
        return None;
    }
    let plugin = volume.spec.in_tree();
    let annotated = volume.metadata.annotations.get(annotation::MIGRATED_TO);
    if plugin.map(|it| it.driver) != Some(driver) && annotated != Some(driver) {
        return None;
    }
    let plugin = plugin.map(|it| format!(" {}", it.name)).unwrap_or_default();
    Some(format!(
        "wharf does not translate volumes of in-tree plugin{plugin} for CSI driver {driver}: this volume is not attached, \
         detached, expanded or deleted. Run the upstream sidecars for this driver, or replace the volume by a \
         PersistentVolume with spec.csi"
    ))
}

/// The message about a claim that gets no volume from provisioners of `driver` that serve one node
/// each; `None` if they serve it, or it is for another driver.
pub(crate) fn claim_message(
    claim: &PersistentVolumeClaim,
    class: Option<&StorageClass>,
    driver: &str,
) -> Option<String> {
    let class = class.filter(|it| it.provisioner == driver && !it.waits_for_consumer())?;
    let annotations = &claim.metadata.annotations;
    let asks = [annotation::STORAGE_PROVISIONER, annotation::STORAGE_PROVISIONER_BETA]
        .iter()
        .any(|key| annotations.get(key) == Some(driver));
    let selected = annotations.get(annotation::SELECTED_NODE).is_some_and(|node| !node.is_empty());
    if !asks || selected || claim.is_bound() || claim.metadata.deleting {
        return None;
    }
    Some(format!(
        "StorageClass {} has volumeBindingMode Immediate, and provisioners with --node-deployment make volumes only for claims \
         whose node was selected: this claim gets no volume. Use a StorageClass with volumeBindingMode WaitForFirstConsumer",
        class.metadata.name
    ))
}

/// The message about a group snapshot.
pub(crate) fn group_message() -> &'static str {
    "wharf takes and deletes no group snapshots: this one is ignored. Run the upstream snapshot-controller and csi-snapshotter \
     with the feature gate CSIVolumeGroupSnapshot where they are needed"
}

#[cfg(test)]
mod tests;
