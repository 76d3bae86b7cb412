//! Health of volumes and of the storage behind them.

use wharf_proto::csi;

use super::{AccessMode, VolumeId};

/// One problem of a volume, reported for as long as it lasts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthProblem {
    /// Severity.
    pub status: VolumeHealthStatus,
    /// One CamelCase word for machines, unique together with the status.
    pub reason: String,
    /// Text for people.
    pub message: String,
}

/// Severity of a volume's problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VolumeHealthStatus {
    /// The volume works with reduced performance or redundancy.
    Degraded,
    /// The volume cannot be used at present.
    Inaccessible,
    /// Data is lost.
    DataLoss,
}

/// A volume with problems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnhealthyVolume {
    /// The volume.
    pub volume: VolumeId,
    /// Problems of the volume; never empty.
    pub problems: Vec<HealthProblem>,
}

/// One problem of the storage behind a node's volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageProblem {
    /// Severity.
    pub status: StorageHealthStatus,
    /// One CamelCase word for machines.
    pub reason: String,
    /// Text for people.
    pub message: String,
    /// The affected volumes; `None` means all.
    pub concerns: Option<Concerned>,
}

/// The volumes that a problem of the storage affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concerned {
    /// Block devices if true, filesystems if false.
    pub block: bool,
    /// Access mode of the affected volumes.
    pub mode: AccessMode,
}

/// Severity of a storage problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageHealthStatus {
    /// The storage works with reduced performance or redundancy.
    Degraded,
    /// The storage cannot be reached.
    Unreachable,
}

/// Builds the answer about one volume.
pub(crate) fn volume_health(volume: VolumeId, problems: Vec<HealthProblem>) -> csi::VolumeHealth {
    let health_statuses = problems.into_iter().map(Into::into).collect();
    csi::VolumeHealth { volume_id: volume.into(), health_statuses }
}

impl From<HealthProblem> for csi::volume_health::VolumeHealthEntry {
    fn from(problem: HealthProblem) -> Self {
        use csi::VolumeHealthErrorType as Wire;
        let status = match problem.status {
            VolumeHealthStatus::Degraded => Wire::Degraded,
            VolumeHealthStatus::Inaccessible => Wire::Inaccessible,
            VolumeHealthStatus::DataLoss => Wire::DataLoss,
        };
        Self { status: status.into(), reason: problem.reason, message: problem.message }
    }
}

impl From<StorageProblem> for csi::node_get_storage_health_response::StorageBackendHealth {
    fn from(problem: StorageProblem) -> Self {
        use csi::StorageHealthErrorType as Wire;
        let status = match problem.status {
            StorageHealthStatus::Degraded => Wire::StorageDegraded,
            StorageHealthStatus::Unreachable => Wire::StorageUnreachable,
        };
        Self {
            status: status.into(),
            reason: problem.reason,
            message: problem.message,
            volume_capability: problem.concerns.map(Into::into),
        }
    }
}

impl From<Concerned> for csi::VolumeCapability {
    fn from(concerned: Concerned) -> Self {
        use csi::volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume};
        let access = match concerned.block {
            true => AccessType::Block(BlockVolume {}),
            false => AccessType::Mount(MountVolume::default()),
        };
        let mode = csi::volume_capability::access_mode::Mode::from(concerned.mode);
        Self { access_type: Some(access), access_mode: Some(AccessMode { mode: mode.into() }) }
    }
}
