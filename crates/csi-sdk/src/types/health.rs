//! How volumes and the storage behind them do.

use wharf_proto::csi;

use super::{AccessMode, VolumeId};

/// One problem of a volume. It is told until it is gone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthProblem {
    /// How bad it is.
    pub status: VolumeHealthStatus,
    /// One CamelCase word for machines, unique together with the status.
    pub reason: String,
    /// For people.
    pub message: String,
}

/// How bad a problem of a volume is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VolumeHealthStatus {
    /// It works, and worse than it should.
    Degraded,
    /// It cannot be used now.
    Inaccessible,
    /// Data is gone.
    DataLoss,
}

/// A volume with problems.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnhealthyVolume {
    /// The volume.
    pub volume: VolumeId,
    /// What it suffers from; never empty.
    pub problems: Vec<HealthProblem>,
}

/// One problem of the storage behind a node's volumes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageProblem {
    /// How bad it is.
    pub status: StorageHealthStatus,
    /// One CamelCase word for machines.
    pub reason: String,
    /// For people.
    pub message: String,
    /// The volumes that it concerns; none means all.
    pub concerns: Option<Concerned>,
}

/// Which volumes a problem of the storage concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Concerned {
    /// Block devices, or else file systems.
    pub block: bool,
    /// How they are used.
    pub mode: AccessMode,
}

/// How bad a problem of the storage is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum StorageHealthStatus {
    /// It works, and worse than it should.
    Degraded,
    /// It cannot be reached.
    Unreachable,
}

/// The answer about one volume.
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
