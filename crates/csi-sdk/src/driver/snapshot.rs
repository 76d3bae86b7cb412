//! Snapshots, of one volume and of several.

use async_trait::async_trait;

use super::Existing;
use crate::error::{
    CreateSnapshotError, CreateVolumeGroupSnapshotError, DeleteSnapshotError,
    DeleteVolumeGroupSnapshotError, Failure, GetSnapshotError, GetVolumeGroupSnapshotError,
};
use crate::request::{
    CreateSnapshot, CreateVolumeGroupSnapshot, DeleteSnapshot, DeleteVolumeGroupSnapshot,
    GetVolumeGroupSnapshot,
};
use crate::types::{GroupSnapshot, Snapshot, SnapshotFilter, SnapshotId};

/// CREATE_DELETE_SNAPSHOT.
#[async_trait]
pub trait Snapshots: Send + Sync + 'static {
    /// The snapshot of this name, if it is cut. It may still be copied: then it is not `ready`.
    async fn existing(&self, name: &str) -> Result<Option<Existing<Snapshot>>, Failure>;

    /// Cuts a snapshot, or finishes one that was begun; [`existing`](Snapshots::existing) has shown none of this name.
    /// It returns when the snapshot is cut, and need not wait for a copy.
    async fn create(&self, request: CreateSnapshot) -> Result<Snapshot, CreateSnapshotError>;

    /// Deletes a snapshot; one that is not there is fine.
    async fn delete(&self, request: DeleteSnapshot) -> Result<(), DeleteSnapshotError>;
}

/// LIST_SNAPSHOTS.
#[async_trait]
pub trait SnapshotList: Send + Sync + 'static {
    /// The first snapshots that the filter admits and whose IDs are greater than `after`, by ID, at most `limit`.
    async fn list(
        &self,
        filter: SnapshotFilter,
        after: Option<SnapshotId>,
        limit: usize,
    ) -> Result<Vec<Snapshot>, Failure>;
}

/// GET_SNAPSHOT.
#[async_trait]
pub trait SnapshotLookup: Send + Sync + 'static {
    /// One snapshot.
    async fn get(&self, snapshot: SnapshotId) -> Result<Snapshot, GetSnapshotError>;
}

/// CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT, and the service it belongs to.
#[async_trait]
pub trait GroupSnapshots: Send + Sync + 'static {
    /// The group of this name, if all of it is cut.
    async fn existing(&self, name: &str) -> Result<Option<Existing<GroupSnapshot>>, Failure>;

    /// Cuts all or nothing, at one instant; [`existing`](GroupSnapshots::existing) has shown none of this name.
    async fn create(
        &self,
        request: CreateVolumeGroupSnapshot,
    ) -> Result<GroupSnapshot, CreateVolumeGroupSnapshotError>;

    /// Deletes a group and its members; one that is not there is fine.
    async fn delete(
        &self,
        request: DeleteVolumeGroupSnapshot,
    ) -> Result<(), DeleteVolumeGroupSnapshotError>;

    /// One group.
    async fn get(
        &self,
        request: GetVolumeGroupSnapshot,
    ) -> Result<GroupSnapshot, GetVolumeGroupSnapshotError>;
}
