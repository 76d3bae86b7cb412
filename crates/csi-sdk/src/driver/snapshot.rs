//! Traits for snapshots, of one volume and of several.

use async_trait::async_trait;

use super::Existing;
use crate::{
    error::{
        CreateSnapshotError, CreateVolumeGroupSnapshotError, DeleteSnapshotError,
        DeleteVolumeGroupSnapshotError, Failure, GetSnapshotError, GetVolumeGroupSnapshotError,
    },
    request::{
        CreateSnapshot, CreateVolumeGroupSnapshot, DeleteSnapshot, DeleteVolumeGroupSnapshot,
        GetVolumeGroupSnapshot,
    },
    types::{GroupSnapshot, Snapshot, SnapshotFilter, SnapshotId},
};

/// Creates and deletes snapshots: CREATE_DELETE_SNAPSHOT.
#[async_trait]
pub trait Snapshots: Send + Sync + 'static {
    /// Returns the snapshot of this name if it is taken. A snapshot that is still being copied is
    /// returned with `ready` false.
    async fn existing(&self, name: &str) -> Result<Option<Existing<Snapshot>>, Failure>;

    /// Takes a snapshot, or completes one of this name that an earlier call began. Called only
    /// after [`existing`](Snapshots::existing) returned `None`. Returns once the snapshot is taken,
    /// and need not wait for a copy.
    async fn create(&self, request: CreateSnapshot) -> Result<Snapshot, CreateSnapshotError>;

    /// Deletes a snapshot. Succeeds if the snapshot does not exist.
    async fn delete(&self, request: DeleteSnapshot) -> Result<(), DeleteSnapshotError>;
}

/// Lists snapshots: LIST_SNAPSHOTS.
#[async_trait]
pub trait SnapshotList: Send + Sync + 'static {
    /// Returns the first `limit` snapshots that the filter admits and that have an ID greater than
    /// `after`, sorted by ID.
    async fn list(
        &self,
        filter: SnapshotFilter,
        after: Option<SnapshotId>,
        limit: usize,
    ) -> Result<Vec<Snapshot>, Failure>;
}

/// Looks up one snapshot: GET_SNAPSHOT.
#[async_trait]
pub trait SnapshotLookup: Send + Sync + 'static {
    /// Returns one snapshot.
    async fn get(&self, snapshot: SnapshotId) -> Result<Snapshot, GetSnapshotError>;
}

/// Creates and deletes group snapshots: the GroupController service with
/// CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT.
#[async_trait]
pub trait GroupSnapshots: Send + Sync + 'static {
    /// Returns the group of this name if all its snapshots are taken.
    async fn existing(&self, name: &str) -> Result<Option<Existing<GroupSnapshot>>, Failure>;

    /// Takes the snapshots of all volumes at one instant, or none. Called only after
    /// [`existing`](GroupSnapshots::existing) returned `None`.
    async fn create(
        &self,
        request: CreateVolumeGroupSnapshot,
    ) -> Result<GroupSnapshot, CreateVolumeGroupSnapshotError>;

    /// Deletes a group and its members. Succeeds if the group does not exist.
    async fn delete(
        &self,
        request: DeleteVolumeGroupSnapshot,
    ) -> Result<(), DeleteVolumeGroupSnapshotError>;

    /// Returns one group.
    async fn get(
        &self,
        request: GetVolumeGroupSnapshot,
    ) -> Result<GroupSnapshot, GetVolumeGroupSnapshotError>;
}
