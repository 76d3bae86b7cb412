//! Label and taint keys.

/// Taint on a Node that is known to be shut down: its volumes may be detached at once.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// On a VolumeSnapshotContent: node whose snapshotter serves it, where a snapshotter runs on every
/// node.
pub const SNAPSHOT_MANAGED_BY: &str = "snapshot.storage.kubernetes.io/managed-by";

/// On a CSIStorageCapacity: the driver.
pub const CAPACITY_DRIVER: &str = "csi.storage.k8s.io/drivername";
/// On a CSIStorageCapacity: the provisioner that manages it.
pub const CAPACITY_MANAGED_BY: &str = "csi.storage.k8s.io/managed-by";
