//! Why a volume was not created or deleted, in the words of the events.

use tonic::{Code, Status};
use wharf_cluster::ApiFailure;
use wharf_facts::access_mode::AccessModeError;
use wharf_uds::code_name;

use super::{
    secrets::SecretRefusal,
    source::SourceRefusal,
    state::{State, after_error},
    topology::TopologyRefusal,
};
use crate::secret::SecretFailure;

/// Why an attempt failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The objects do not allow a request.
    #[error(transparent)]
    Refused(#[from] ProvisionRefusal),
    /// The source of the volume is missing or not ready.
    #[error("error getting handle for DataSource Type {kind} by Name {name}: {refusal}")]
    Source { kind: String, name: String, refusal: Box<SourceRefusal> },
    /// The source could not be protected from deletion.
    #[error("the source of the volume could not be protected: {0}")]
    Protect(#[source] ApiFailure),
    /// The topology of the request could not be determined.
    #[error(transparent)]
    Topology(#[from] TopologyRefusal),
    /// The class does not name a valid secret.
    #[error(transparent)]
    SecretName(#[from] SecretRefusal),
    /// The secret for the call cannot be read.
    #[error(transparent)]
    Secret(#[from] SecretFailure),
    /// An object that is required by name cannot be read.
    #[error(transparent)]
    Read(ApiFailure),
    /// The driver created a volume that differs from the request.
    #[error("{mismatch}{}", orphan(.name, .cleanup.as_deref()))]
    Mismatch { mismatch: Mismatch, name: String, cleanup: Option<Box<Status>> },
    /// A request without a final answer cannot be repeated unchanged.
    #[error(
        "StorageClass {0:?} is not as it was when the volume was asked for, so that the volume cannot be found: bring it \
         back as it was, or give the volume up with wharf sidecars settle"
    )]
    ClassChanged(String),
    /// A request without a final answer cannot be repeated with the source in the note.
    #[error(
        "the source of the claim is not the one that the note on the claim names, so that the volume cannot be found: remove \
         the annotation {} if the claim's own source is right, or give the volume up with wharf sidecars settle",
        wharf_facts::annotation::UNSETTLED_VOLUME
    )]
    SourceChanged,
    /// A volume is not deleted while it is attached.
    #[error("persistentvolume {volume} is still attached to node {node}")]
    Attached { volume: String, node: String },
    /// The volume is deleted, but its PersistentVolume is not.
    #[error("failed to delete the PersistentVolume of a deleted volume: {0}")]
    DeleteObject(#[source] ApiFailure),
    /// The driver does not report its capabilities.
    #[error(
        "failed to fetch capabilities of the CSI driver: rpc error: code = {} desc = {}",
        code_name(.0.code()), .0.message()
    )]
    Away(#[source] Box<Status>),
    /// The driver returned an error, or did not answer.
    #[error("rpc error: code = {} desc = {}", code_name(.0.code()), .0.message())]
    Driver(#[from] Box<Status>),
}

/// Why the objects do not allow a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum ProvisionRefusal {
    #[error("storageClass {0:?} not found")]
    NoClass(String),
    #[error(
        "StorageClass {class:?} names provisioner {provisioner:?}, which the claim was not meant for"
    )]
    OtherClass { class: String, provisioner: String },
    #[error(
        "the claim is of in-tree plugin {0:?}, which was migrated to this CSI driver: in-tree volumes are not \
         translated here; use a StorageClass that names the CSI driver"
    )]
    InTree(String),
    #[error("CSI driver does not support {of}: {service} {capability} capability is not reported")]
    Incapable { of: &'static str, service: &'static str, capability: &'static str },
    #[error("claim Selector is not supported")]
    Selector,
    #[error("volume name prefix cannot be of length 0")]
    NoPrefix,
    #[error("corrupted PVC object, it is missing UID")]
    NoUid,
    #[error(
        "fstype specified in parameters with both \"fstype\" and \"csi.storage.k8s.io/fstype\" keys"
    )]
    TwoFsTypes,
    #[error(
        "failed to strip CSI Parameters of prefixed keys: found unknown parameter key {0:?} with reserved namespace \
         csi.storage.k8s.io/"
    )]
    UnknownParameter(String),
    #[error(transparent)]
    AccessMode(#[from] AccessModeError),
    #[error("the PVC source not found for PVC {0}")]
    UnnamedSource(String),
    #[error(
        "the PVC source does not belong to the right APIGroup. Expected snapshot.storage.k8s.io, Got {0}"
    )]
    SourceGroup(String),
    #[error(
        "dataSourceRef names a source in namespace {0}: sources of other namespaces are not supported here"
    )]
    OtherNamespace(String),
    #[error(
        "VAC {class} referenced in PVC is for driver {named} which does not match driver name {driver}"
    )]
    AttributesDriver { class: String, named: String, driver: String },
}

/// How a volume differs from the request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Mismatch {
    #[error("created volume capacity {made} less than requested capacity {asked}")]
    TooSmall { made: i64, asked: i64 },
    #[error("volume content source missing")]
    Empty,
    #[error("the driver made a volume and did not say which")]
    Nameless,
}

impl Failure {
    /// The state of the volume after this failure; `movable`: the scheduler may select another
    /// node.
    pub(super) fn state(&self, movable: bool) -> State {
        match self {
            Self::Refused(_) => State::Finished,
            Self::Topology(TopologyRefusal::UnknownNode(_)) => State::Reschedule,
            Self::Driver(status) => after_error(status.code(), movable),
            Self::Mismatch { .. } => State::InBackground,
            _ => State::NoChange,
        }
    }

    /// The driver's gRPC code.
    pub(super) fn code(&self) -> Option<Code> {
        match self {
            Self::Driver(status) => Some(status.code()),
            _ => None,
        }
    }
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        Self::Driver(Box::new(status))
    }
}

fn orphan(name: &str, cleanup: Option<&Status>) -> String {
    match cleanup {
        None => String::new(),
        Some(status) => {
            let (code, text) = (code_name(status.code()), status.message());
            format!(
                ". Cleanup of volume {name} failed, volume is orphaned: rpc error: code = {code} desc = {text}"
            )
        }
    }
}
