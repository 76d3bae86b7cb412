//! Label and taint keys.

/// Taint on a Node that is known to be off: its volumes may be detached at once.
pub const OUT_OF_SERVICE: &str = "node.kubernetes.io/out-of-service";

/// On a VolumeSnapshotContent: node whose snapshotter is to serve it, when snapshotters run on every node.
pub const SNAPSHOT_MANAGED_BY: &str = "snapshot.storage.kubernetes.io/managed-by";

/// On a CSIStorageCapacity: driver that it speaks of.
pub const CAPACITY_DRIVER: &str = "csi.storage.k8s.io/drivername";
/// On a CSIStorageCapacity: who keeps it up to date.
pub const CAPACITY_MANAGED_BY: &str = "csi.storage.k8s.io/managed-by";
