//! Keys that Kubernetes adds to a driver's requests: to the volume context, and to class
//! parameters.

/// Prefix of Kubernetes' own keys in class parameters; others with this prefix are not passed to
/// the driver.
pub const PREFIX: &str = "csi.storage.k8s.io/";

/// Volume context: name of the pod.
pub const POD_NAME: &str = "csi.storage.k8s.io/pod.name";
/// Volume context: namespace of the pod.
pub const POD_NAMESPACE: &str = "csi.storage.k8s.io/pod.namespace";
/// Volume context: UID of the pod.
pub const POD_UID: &str = "csi.storage.k8s.io/pod.uid";
/// Volume context: service account of the pod.
pub const SERVICE_ACCOUNT_NAME: &str = "csi.storage.k8s.io/serviceAccount.name";
/// Volume context or secrets: tokens of the pod's service account, as JSON by audience. Must never
/// be printed.
pub const SERVICE_ACCOUNT_TOKENS: &str = "csi.storage.k8s.io/serviceAccount.tokens";
/// Volume context: `true` for a volume that is declared in the pod itself.
pub const EPHEMERAL: &str = "csi.storage.k8s.io/ephemeral";

/// Class parameter: file system to format with.
pub const FS_TYPE: &str = "csi.storage.k8s.io/fstype";
/// CreateVolume parameter, if extra metadata is asked for: name of the claim.
pub const PVC_NAME: &str = "csi.storage.k8s.io/pvc/name";
/// CreateVolume parameter, if extra metadata is asked for: namespace of the claim.
pub const PVC_NAMESPACE: &str = "csi.storage.k8s.io/pvc/namespace";
/// CreateVolume parameter, if extra metadata is asked for: name of the PersistentVolume to be
/// created.
pub const PV_NAME: &str = "csi.storage.k8s.io/pv/name";

/// Volume attribute: the provisioner that made a volume, as `<ms>-<random>-<driver>[-<node>]`.
pub const PROVISIONER_IDENTITY: &str = "storage.kubernetes.io/csiProvisionerIdentity";
