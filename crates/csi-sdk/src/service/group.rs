//! The GroupController service.

use std::sync::Arc;

use tonic::Status;
use wharf_proto::{
    csi,
    csi::{
        group_controller_server::GroupController,
        group_controller_service_capability::{Rpc, Type, rpc},
    },
};

use super::{Core, accept, check_id, compare, rpcs};
use crate::{
    driver::GroupSnapshots,
    error::{Failure, GetVolumeGroupSnapshotError},
    parts::offered,
    request::{CreateVolumeGroupSnapshot, DeleteVolumeGroupSnapshot, GetVolumeGroupSnapshot},
};

const MAX_ID: usize = 128;

pub(crate) struct GroupControllerService(pub(crate) Arc<Core>);

impl GroupController for GroupControllerService {
    rpcs! { "GroupController":
        group_controller_get_capabilities:
            GroupControllerGetCapabilitiesRequest -> GroupControllerGetCapabilitiesResponse,
        create_volume_group_snapshot:
            CreateVolumeGroupSnapshotRequest -> CreateVolumeGroupSnapshotResponse,
        delete_volume_group_snapshot:
            DeleteVolumeGroupSnapshotRequest -> DeleteVolumeGroupSnapshotResponse,
        get_volume_group_snapshot:
            GetVolumeGroupSnapshotRequest -> GetVolumeGroupSnapshotResponse,
    }
}

impl Core {
    async fn group_controller_get_capabilities(
        &self,
        _: csi::GroupControllerGetCapabilitiesRequest,
    ) -> Result<csi::GroupControllerGetCapabilitiesResponse, Status> {
        offered(&self.parts.group_snapshots, "GroupControllerGetCapabilities")?;
        let whole = rpc::Type::CreateDeleteGetVolumeGroupSnapshot;
        let capability = csi::GroupControllerServiceCapability {
            r#type: Some(Type::Rpc(Rpc { r#type: whole.into() })),
        };
        Ok(csi::GroupControllerGetCapabilitiesResponse { capabilities: vec![capability] })
    }

    async fn create_volume_group_snapshot(
        &self,
        wire: csi::CreateVolumeGroupSnapshotRequest,
    ) -> Result<csi::CreateVolumeGroupSnapshotResponse, Status> {
        let groups = offered(&self.parts.group_snapshots, "CreateVolumeGroupSnapshot")?;
        let accepted = accept("CreateVolumeGroupSnapshot", wire)?;
        self.operate(accepted, |request: CreateVolumeGroupSnapshot| async move {
            let group = match groups.existing(&request.name).await? {
                Some(existing) => compare::group(existing, &request)?,
                None => groups.create(request).await?,
            };
            check_id("group snapshot ID", &group.id, MAX_ID)?;
            Ok(csi::CreateVolumeGroupSnapshotResponse { group_snapshot: Some(group.into()) })
        })
        .await
    }

    async fn delete_volume_group_snapshot(
        &self,
        wire: csi::DeleteVolumeGroupSnapshotRequest,
    ) -> Result<csi::DeleteVolumeGroupSnapshotResponse, Status> {
        let groups = offered(&self.parts.group_snapshots, "DeleteVolumeGroupSnapshot")?;
        let accepted = accept("DeleteVolumeGroupSnapshot", wire)?;
        self.operate(accepted, |request: DeleteVolumeGroupSnapshot| async move {
            if request.snapshots.is_empty() {
                refuse_without_members(groups.as_ref(), request).await?;
            } else {
                groups.delete(request).await?;
            }
            Ok(csi::DeleteVolumeGroupSnapshotResponse {})
        })
        .await
    }

    async fn get_volume_group_snapshot(
        &self,
        wire: csi::GetVolumeGroupSnapshotRequest,
    ) -> Result<csi::GetVolumeGroupSnapshotResponse, Status> {
        let groups = offered(&self.parts.group_snapshots, "GetVolumeGroupSnapshot")?;
        let accepted = accept::<_, GetVolumeGroupSnapshot>("GetVolumeGroupSnapshot", wire)?;
        let group = groups.get(accepted.request).await?;
        Ok(csi::GetVolumeGroupSnapshotResponse { group_snapshot: Some(group.into()) })
    }
}

/// Answers a DeleteVolumeGroupSnapshot without members: refused, unless the group does not exist.
///
/// The protocol requires the list, and the SDK locks the listed members. csi-sanity deletes a group
/// that does not exist without a list, and expects success.
async fn refuse_without_members(
    groups: &dyn GroupSnapshots,
    request: DeleteVolumeGroupSnapshot,
) -> Result<(), Status> {
    let DeleteVolumeGroupSnapshot { group, snapshots, secrets } = request;
    let found = match groups.get(GetVolumeGroupSnapshot { group, snapshots, secrets }).await {
        Err(GetVolumeGroupSnapshotError::NotFound(_)) => return Ok(()),
        found => found?,
    };
    let members: Vec<&str> = found.snapshots.iter().map(|member| member.id.as_str()).collect();
    let expected = format!("the IDs of all snapshots of the group: {}", members.join(", "));
    Err(Failure::invalid("snapshot_ids", expected).into())
}
