//! The Controller service.

use std::sync::Arc;

use tonic::Status;
use wharf_proto::{
    csi,
    csi::{
        controller_server::Controller,
        controller_service_capability::{Rpc, Type},
    },
};

use super::{Core, rpcs};

pub(crate) struct ControllerService(pub(crate) Arc<Core>);

impl Controller for ControllerService {
    rpcs! { "Controller":
        controller_get_capabilities:
            ControllerGetCapabilitiesRequest -> ControllerGetCapabilitiesResponse,
        create_volume: CreateVolumeRequest -> CreateVolumeResponse,
        delete_volume: DeleteVolumeRequest -> DeleteVolumeResponse,
        controller_publish_volume:
            ControllerPublishVolumeRequest -> ControllerPublishVolumeResponse,
        controller_unpublish_volume:
            ControllerUnpublishVolumeRequest -> ControllerUnpublishVolumeResponse,
        controller_expand_volume: ControllerExpandVolumeRequest -> ControllerExpandVolumeResponse,
        controller_modify_volume: ControllerModifyVolumeRequest -> ControllerModifyVolumeResponse,
        validate_volume_capabilities:
            ValidateVolumeCapabilitiesRequest -> ValidateVolumeCapabilitiesResponse,
        list_volumes: ListVolumesRequest -> ListVolumesResponse,
        controller_get_volume: ControllerGetVolumeRequest -> ControllerGetVolumeResponse,
        controller_get_volume_health:
            ControllerGetVolumeHealthRequest -> ControllerGetVolumeHealthResponse,
        controller_list_volume_health:
            ControllerListVolumeHealthRequest -> ControllerListVolumeHealthResponse,
        get_capacity: GetCapacityRequest -> GetCapacityResponse,
        create_snapshot: CreateSnapshotRequest -> CreateSnapshotResponse,
        delete_snapshot: DeleteSnapshotRequest -> DeleteSnapshotResponse,
        list_snapshots: ListSnapshotsRequest -> ListSnapshotsResponse,
        get_snapshot: GetSnapshotRequest -> GetSnapshotResponse,
    }
}

impl Core {
    async fn controller_get_capabilities(
        &self,
        _: csi::ControllerGetCapabilitiesRequest,
    ) -> Result<csi::ControllerGetCapabilitiesResponse, Status> {
        let capabilities = self.parts.controller_capabilities().map(|capability| {
            let rpc = Type::Rpc(Rpc { r#type: capability.into() });
            csi::ControllerServiceCapability { r#type: Some(rpc) }
        });
        Ok(csi::ControllerGetCapabilitiesResponse { capabilities: capabilities.collect() })
    }
}
