//! Finalizers, by the controller that sets them.

use crate::sanitise::sanitised;

/// On a PersistentVolume whose volume the provisioner still has to delete.
pub const PROVISIONER: &str = "external-provisioner.volume.kubernetes.io/finalizer";
/// On a PersistentVolumeClaim while another is cloned from it.
pub const CLONING_PROTECTION: &str = "provisioner.storage.kubernetes.io/cloning-protection";
/// On a VolumeSnapshot while the provisioner restores from it.
pub const SNAPSHOT_RESTORE_PROTECTION: &str =
    "provisioner.storage.kubernetes.io/volumesnapshot-as-source-protection";

/// On a PersistentVolumeClaim whose CreateVolume had no final answer: the driver may have made a
/// volume that no object refers to.
pub const UNSETTLED_VOLUME: &str = "wharf.dev/unsettled-volume";

/// On a PersistentVolumeClaim that a pod uses.
pub const PVC_PROTECTION: &str = "kubernetes.io/pvc-protection";
/// On a PersistentVolume that is bound.
pub const PV_PROTECTION: &str = "kubernetes.io/pv-protection";

/// On a PersistentVolumeClaim while a snapshot is taken of it.
pub const PVC_SNAPSHOT_PROTECTION: &str = "snapshot.storage.kubernetes.io/pvc-as-source-protection";
/// On a VolumeSnapshot while claims may restore from it.
pub const SNAPSHOT_SOURCE_PROTECTION: &str =
    "snapshot.storage.kubernetes.io/volumesnapshot-as-source-protection";
/// On a VolumeSnapshot that is bound.
pub const SNAPSHOT_BOUND_PROTECTION: &str =
    "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
/// On a VolumeSnapshotContent that is bound.
pub const CONTENT_BOUND_PROTECTION: &str =
    "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";

/// On a VolumeSnapshot that was taken with a group, while the group exists.
pub const SNAPSHOT_IN_GROUP_PROTECTION: &str =
    "snapshot.storage.kubernetes.io/volumesnapshot-in-group-protection";

/// On VolumeAttachments and PersistentVolumes that the attacher of `driver` works on.
#[must_use]
pub fn attacher(driver: &str) -> String {
    format!("external-attacher/{}", sanitised(driver))
}

#[cfg(test)]
mod tests {
    #[test]
    fn attachers_have_one_finalizer_per_driver() {
        assert_eq!(super::attacher("csi.example.com"), "external-attacher/csi-example-com");
        assert_eq!(super::attacher("ends.with."), "external-attacher/ends-with-X");
    }
}
