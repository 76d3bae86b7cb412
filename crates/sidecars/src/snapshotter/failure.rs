//! Why a snapshot was not taken, found or deleted, in the words of the status.

use tonic::Status;
use wharf_cluster::ApiFailure;
use wharf_uds::code_name;

use crate::{secret::SecretFailure, snapshot_class::ParameterError};

/// Why a content failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum Failure {
    /// The objects do not allow a CreateSnapshot call.
    #[error(
        "failed to get input parameters to create snapshot for content {content}: {:?}",
        .refusal.to_string()
    )]
    Input { content: String, refusal: Box<ContentRefusal> },
    /// The content could not be marked before the call.
    #[error(
        "failed to add VolumeSnapshotBeingCreated annotation on the content {content}: {:?}",
        .failure.to_string()
    )]
    Mark { content: String, failure: ApiFailure },
    /// The class has invalid parameters for sidecars.
    #[error("failed to remove CSI Parameters of prefixed keys: {0}")]
    Parameters(#[from] ParameterError),
    /// The content names no VolumeSnapshot.
    #[error("cannot create snapshot. Snapshot content {0} not bound to a snapshot")]
    Unbound(String),
    /// CreateSnapshot failed.
    #[error("failed to take snapshot of the volume {volume}: {:?}", text(.status))]
    Create { volume: String, status: Box<Status> },
    /// The driver gave a final answer, and the mark could not be removed.
    #[error(
        "failed to remove VolumeSnapshotBeingCreated annotation from the content {content}: {failure}"
    )]
    Unmark { content: String, failure: ApiFailure },
    /// The objects do not allow a ListSnapshots call.
    #[error(transparent)]
    Refused(ContentRefusal),
    /// ListSnapshots failed.
    #[error("failed to list snapshot for content {content}: {:?}", text(.status))]
    Check { content: String, status: Box<Status> },
    /// The driver does not have the snapshot.
    #[error("failed to list snapshot for content {content}: {:?}", format!("can not find snapshot for snapshotID {handle}"))]
    Missing { content: String, handle: String },
    /// The call succeeded, but the status could not be written.
    #[error("error updating status for volume snapshot content {content}: {failure}")]
    Save { content: String, failure: ApiFailure },
    /// DeleteSnapshot failed, or a write after it.
    #[error("failed to delete snapshot {content:?}, err: {reason}")]
    Delete { content: String, event: &'static str, reason: String },
    /// The finalizer could not be removed.
    #[error("snapshot controller failed to update {content} on API server: {failure}")]
    Release { content: String, failure: ApiFailure },
}

/// Why the objects do not allow a call.
#[derive(Debug, thiserror::Error)]
pub(super) enum ContentRefusal {
    #[error("failed to take snapshot {0} without a snapshot class")]
    NoClass(String),
    #[error("volumesnapshotclass.snapshot.storage.k8s.io {0:?} not found")]
    UnknownClass(String),
    #[error(
        "failed to get snapshot class {class} for snapshot content {content}: volumesnapshotclass.snapshot.storage.k8s.io {class:?} not found"
    )]
    UnknownClassOf { class: String, content: String },
    #[error("failed to get secret reference for snapshot content {content}: {error}")]
    SecretName { content: String, error: ParameterError },
    #[error(
        "cannot retrieve secrets for snapshot content {0:?}, err: secret name or namespace not specified"
    )]
    EmptySecretName(String),
    #[error("cannot get credentials for snapshot content {content:?}: {failure}")]
    Secret { content: String, failure: Box<SecretFailure> },
}

/// A gRPC error in the form of Go programs.
pub(super) fn text(status: &Status) -> String {
    format!("rpc error: code = {} desc = {}", code_name(status.code()), status.message())
}
