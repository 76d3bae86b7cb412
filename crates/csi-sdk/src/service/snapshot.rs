//! Snapshot RPCs of the Controller service.

use tonic::Status;
use wharf_proto::csi;

use super::{Core, accept, check_id, compare};
use crate::{
    paging::Page,
    parts::offered,
    request::{CreateSnapshot, DeleteSnapshot, snapshot_filter, snapshot_id},
};

const MAX_ID: usize = 128;

impl Core {
    pub(super) async fn create_snapshot(
        &self,
        wire: csi::CreateSnapshotRequest,
    ) -> Result<csi::CreateSnapshotResponse, Status> {
        let snapshots = offered(&self.parts.snapshots, "CreateSnapshot")?;
        let accepted = accept("CreateSnapshot", wire)?;
        self.operate(accepted, |request: CreateSnapshot| async move {
            let snapshot = match snapshots.existing(&request.name).await? {
                Some(existing) => compare::snapshot(existing, &request)?,
                None => snapshots.create(request).await?,
            };
            check_id("snapshot ID", &snapshot.id, MAX_ID)?;
            Ok(csi::CreateSnapshotResponse { snapshot: Some(snapshot.into()) })
        })
        .await
    }

    pub(super) async fn delete_snapshot(
        &self,
        wire: csi::DeleteSnapshotRequest,
    ) -> Result<csi::DeleteSnapshotResponse, Status> {
        let snapshots = offered(&self.parts.snapshots, "DeleteSnapshot")?;
        let accepted = accept("DeleteSnapshot", wire)?;
        self.operate(accepted, |request: DeleteSnapshot| async move {
            snapshots.delete(request).await?;
            Ok(csi::DeleteSnapshotResponse {})
        })
        .await
    }

    pub(super) async fn list_snapshots(
        &self,
        wire: csi::ListSnapshotsRequest,
    ) -> Result<csi::ListSnapshotsResponse, Status> {
        use csi::list_snapshots_response::Entry;
        let list = offered(&self.parts.snapshot_list, "ListSnapshots")?;
        let page = Page::new(wire.max_entries, &wire.starting_token)?;
        let filter = snapshot_filter(wire.snapshot_id, wire.source_volume_id)?;
        let snapshots = list.list(filter, page.after(), page.ask()).await?;
        let (snapshots, next_token) = page.cut(snapshots, |snapshot| &snapshot.id)?;
        let entry = |snapshot| Entry { snapshot: Some(csi::Snapshot::from(snapshot)) };
        let entries = snapshots.into_iter().map(entry).collect();
        Ok(csi::ListSnapshotsResponse { entries, next_token })
    }

    pub(super) async fn get_snapshot(
        &self,
        wire: csi::GetSnapshotRequest,
    ) -> Result<csi::GetSnapshotResponse, Status> {
        let lookup = offered(&self.parts.snapshot_lookup, "GetSnapshot")?;
        let snapshot = lookup.get(snapshot_id(wire.snapshot_id)?).await?;
        Ok(csi::GetSnapshotResponse { snapshot: Some(snapshot.into()) })
    }
}
