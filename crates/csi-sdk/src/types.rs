//! Arguments and results of a driver's methods.

mod capability;
mod capacity;
mod health;
mod id;
mod node;
mod secrets;
mod snapshot;
mod topology;
mod volume;

pub use capability::{Access, AccessMode, Capability};
pub use capacity::{CapacityRange, OutOfRange};
pub(crate) use health::volume_health;
pub use health::{
    Concerned, HealthProblem, StorageHealthStatus, StorageProblem, UnhealthyVolume,
    VolumeHealthStatus,
};
pub use id::{GroupSnapshotId, NodeId, SnapshotId, VolumeId};
pub use node::{NodeInfo, Usage, VolumeStats};
pub use secrets::{Context, Parameters, Secrets};
pub use snapshot::{GroupSnapshot, Snapshot, SnapshotFilter};
pub use topology::{Topology, TopologyRequirement};
pub(crate) use volume::signed;
pub use volume::{
    AvailableCapacity, Condition, ContentSource, Expanded, ExpansionMode, Sources, Validation,
    Volume, VolumeEntry,
};
