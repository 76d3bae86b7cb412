//! Annotation keys, by the object that carries them.

/// On a Node: JSON object from driver name to the driver's node id.
pub const NODE_ID: &str = "csi.volume.kubernetes.io/nodeid";
/// On a Node: the topology labels that wharf set, and so may replace or remove.
pub const TOPOLOGY_LABELS: &str = "csi.wharf.dev/topology-labels";
/// On a Node: present where attaching is left to the attach/detach controller.
pub const CONTROLLER_MANAGED_ATTACH: &str =
    "volumes.kubernetes.io/controller-managed-attach-detach";

/// On a CSINode: in-tree plugins that are migrated to CSI, sorted, comma separated.
pub const MIGRATED_PLUGINS: &str = "storage.alpha.kubernetes.io/migrated-plugins";

/// On a VolumeAttachment: the ID of the node that the volume was attached to, for the detach.
pub const ATTACHMENT_NODE_ID: &str = "csi.alpha.kubernetes.io/node-id";
/// On a VolumeAttachment of a PersistentVolume: the volume's handle, for the detach.
pub const ATTACHMENT_VOLUME_HANDLE: &str = "csi.wharf.dev/volume-handle";
/// On a VolumeAttachment of a PersistentVolume with a secret for attaching: `namespace/name` of the
/// secret, for the detach.
pub const ATTACHMENT_SECRET: &str = "csi.wharf.dev/publish-secret";

/// On a PersistentVolumeClaim: driver that provisions it.
pub const STORAGE_PROVISIONER: &str = "volume.kubernetes.io/storage-provisioner";
/// Older key of [`STORAGE_PROVISIONER`], still written and read.
pub const STORAGE_PROVISIONER_BETA: &str = "volume.beta.kubernetes.io/storage-provisioner";
/// On a PersistentVolumeClaim: its class, from before there was a field; overrides the field.
pub const STORAGE_CLASS_BETA: &str = "volume.beta.kubernetes.io/storage-class";
/// On a PersistentVolumeClaim: node that the scheduler picked for its first consumer.
pub const SELECTED_NODE: &str = "volume.kubernetes.io/selected-node";
/// On a PersistentVolumeClaim with the finalizer of the same name: the CreateVolume request, as
/// JSON.
pub const UNSETTLED_VOLUME: &str = "wharf.dev/unsettled-volume";
/// On a PersistentVolumeClaim of a migrated plugin: driver that expands it.
pub const STORAGE_RESIZER: &str = "volume.kubernetes.io/storage-resizer";
/// On a PersistentVolumeClaim: the last expansion needed no call on the node.
pub const NODE_EXPANSION_NOT_REQUIRED: &str = "volume.kubernetes.io/node-expansion-not-required";
/// On a PersistentVolumeClaim: the binder has finished.
pub const BIND_COMPLETED: &str = "pv.kubernetes.io/bind-completed";

/// On a PersistentVolume or its claim: bound by the controller, not by a user.
pub const BOUND_BY_CONTROLLER: &str = "pv.kubernetes.io/bound-by-controller";
/// On a PersistentVolume or its claim: driver that took over from an in-tree plugin.
pub const MIGRATED_TO: &str = "pv.kubernetes.io/migrated-to";
/// On a PersistentVolume: driver that made it.
pub const PROVISIONED_BY: &str = "pv.kubernetes.io/provisioned-by";
/// On a PersistentVolume: secret for its deletion. Always written, possibly empty.
pub const DELETION_SECRET_NAME: &str = "volume.kubernetes.io/provisioner-deletion-secret-name";
/// Namespace of [`DELETION_SECRET_NAME`].
pub const DELETION_SECRET_NAMESPACE: &str =
    "volume.kubernetes.io/provisioner-deletion-secret-namespace";
/// On a PersistentVolume: secret for changes of its attributes class.
pub const MODIFY_SECRET_NAME: &str = "volume.kubernetes.io/controller-modify-secret-name";
/// Namespace of [`MODIFY_SECRET_NAME`].
pub const MODIFY_SECRET_NAMESPACE: &str = "volume.kubernetes.io/controller-modify-secret-namespace";
/// On a PersistentVolume: its size before an expansion that the node must still finish.
pub const PRE_RESIZE_CAPACITY: &str = "volume.alpha.kubernetes.io/pre-resize-capacity";

/// On a VolumeSnapshotClass: `true` makes it the default of its driver.
pub const DEFAULT_SNAPSHOT_CLASS: &str = "snapshot.storage.kubernetes.io/is-default-class";
/// On a VolumeSnapshotContent: a claim may restore it with another volume mode.
pub const ALLOW_VOLUME_MODE_CHANGE: &str =
    "snapshot.storage.kubernetes.io/allow-volume-mode-change";
/// On a VolumeSnapshotContent: CreateSnapshot may be running in the driver.
pub const SNAPSHOT_BEING_CREATED: &str =
    "snapshot.storage.kubernetes.io/volumesnapshot-being-created";
/// On a VolumeSnapshotContent: its snapshot is being deleted.
pub const SNAPSHOT_BEING_DELETED: &str =
    "snapshot.storage.kubernetes.io/volumesnapshot-being-deleted";
/// On a VolumeSnapshotContent: secret for its deletion.
pub const SNAPSHOT_DELETION_SECRET_NAME: &str =
    "snapshot.storage.kubernetes.io/deletion-secret-name";
/// Namespace of [`SNAPSHOT_DELETION_SECRET_NAME`].
pub const SNAPSHOT_DELETION_SECRET_NAMESPACE: &str =
    "snapshot.storage.kubernetes.io/deletion-secret-namespace";
/// On a VolumeSnapshotContent: the driver's handle of its group snapshot.
pub const GROUP_SNAPSHOT_HANDLE: &str = "groupsnapshot.storage.k8s.io/volumeGroupSnapshotHandle";
