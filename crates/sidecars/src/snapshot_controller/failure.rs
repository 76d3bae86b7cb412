//! Why a snapshot was not created or deleted, in the words of status and events.

use wharf_cluster::ApiFailure;

use crate::snapshot_class::ParameterError;

/// Why a snapshot failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    #[error(
        "Exactly one of PersistentVolumeClaimName and VolumeSnapshotContentName should be specified"
    )]
    Sources,
    #[error(
        "Failed to get snapshot class with error volumesnapshotclass.snapshot.storage.k8s.io {0:?} not found"
    )]
    UnknownClass(String),
    #[error("Failed to set default snapshot class with error {0}")]
    DefaultClass(#[source] TakeRefusal),
    #[error("Failed to check and update snapshot: {0}")]
    Finalizers(#[source] ApiFailure),
    #[error("VolumeSnapshotContent is missing")]
    ContentMissing,
    #[error("VolumeSnapshotContent is missing")]
    ContentLost,
    #[error("VolumeSnapshotContent is not bound to the VolumeSnapshot correctly")]
    Misbound,
    #[error(
        "VolumeSnapshotContent is dynamically provisioned while expecting a pre-provisioned one"
    )]
    Dynamic,
    #[error(
        "VolumeSnapshotContent {0} is pre-provisioned while expecting a dynamically provisioned one"
    )]
    NotDynamic(String),
    #[error("VolumeSnapshotContent [{0}] is bound to a different snapshot")]
    OfAnother(String),
    #[error("Snapshot failed to bind VolumeSnapshotContent, {0}")]
    Bind(#[source] ApiFailure),
    #[error("Failed to create snapshot content with error {0}")]
    Take(#[from] TakeRefusal),
    #[error("Snapshot status update failed, {0}")]
    Status(#[source] ApiFailure),
    #[error("Snapshot is being used to restore a PVC")]
    Restoring,
    #[error("Failed to delete snapshot content API object")]
    DeleteContent(#[source] ApiFailure),
    #[error("Error check and remove PVC Finalizer for VolumeSnapshot")]
    ReleaseClaim(#[source] ApiFailure),
    #[error("the snapshot's objects could not be written: {0}")]
    Write(#[source] ApiFailure),
}

/// Why no snapshot can be taken.
#[derive(Debug, thiserror::Error)]
pub(super) enum TakeRefusal {
    #[error(
        "failed to retrieve PVC {0} from the lister: \"persistentvolumeclaim \\\"{0}\\\" not found\""
    )]
    NoClaim(String),
    #[error(
        "snapshot controller failed to update {0} on API server: cannot get claim from snapshot"
    )]
    ClaimMissing(String),
    #[error(
        "snapshot controller failed to update {0} on API server: cannot add finalizer on claim because it is being deleted"
    )]
    ClaimDeleting(String),
    #[error("snapshot controller failed to update {claim} on API server: {failure}")]
    Protect { claim: String, failure: ApiFailure },
    #[error("the PVC {0} is not yet bound to a PV, will not attempt to take a snapshot")]
    UnboundClaim(String),
    #[error(
        "failed to retrieve PV {0} from the API server: \"persistentvolumes \\\"{0}\\\" not found\""
    )]
    NoVolume(String),
    #[error("claim in dataSource not bound or invalid")]
    BrokenBinding,
    #[error("cannot find CSI PersistentVolumeSource for volume {0}")]
    NotCsi(String),
    #[error("cannot find default snapshot class")]
    NoDefaultClass,
    #[error("{0} default snapshot classes were found")]
    ManyDefaultClasses(usize),
    #[error(transparent)]
    Parameters(#[from] ParameterError),
    #[error("failed to get input parameters to create snapshot {snapshot}: {:?}", .refusal.to_string())]
    Input { snapshot: String, refusal: Box<TakeRefusal> },
    #[error("snapshot controller failed to update {snapshot} on API server: {failure}")]
    Create { snapshot: String, failure: ApiFailure },
}

/// Where a failure is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportTo {
    /// In the log only.
    Nowhere,
    /// In an event with this reason.
    Event(&'static str),
    /// In an event and the status.
    Status(&'static str),
    /// In an event and the status, which marks the snapshot as not ready.
    Unusable(&'static str),
}

impl Failure {
    pub(super) fn report_to(&self) -> ReportTo {
        match self {
            Self::Sources => ReportTo::Unusable("SnapshotValidationError"),
            Self::UnknownClass(_) => ReportTo::Status("GetSnapshotClassFailed"),
            Self::DefaultClass(_) => ReportTo::Status("SetDefaultSnapshotClassFailed"),
            Self::Finalizers(_) => ReportTo::Event("SnapshotFinalizerError"),
            Self::ContentMissing | Self::ContentLost => {
                ReportTo::Unusable("SnapshotContentMissing")
            }
            Self::Misbound => ReportTo::Unusable("SnapshotMisbound"),
            Self::Dynamic | Self::NotDynamic(_) => ReportTo::Unusable("SnapshotContentMismatch"),
            Self::OfAnother(_) => ReportTo::Unusable("SnapshotContentMisbound"),
            Self::Bind(_) => ReportTo::Unusable("SnapshotBindFailed"),
            Self::Take(_) => ReportTo::Unusable("SnapshotContentCreationFailed"),
            Self::Status(_) => ReportTo::Status("SnapshotStatusUpdateFailed"),
            Self::Restoring => ReportTo::Event("SnapshotDeletePending"),
            Self::DeleteContent(_) => ReportTo::Event("SnapshotContentObjectDeleteError"),
            Self::ReleaseClaim(_) => ReportTo::Event("ErrorPVCFinalizer"),
            Self::Write(_) => ReportTo::Nowhere,
        }
    }

    /// Whether a retry can help, without a change that queues the snapshot anyway.
    pub(super) fn may_pass(&self) -> bool {
        !matches!(self, Self::ContentLost | Self::Misbound)
    }
}
