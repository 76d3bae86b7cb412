//! Laws of required fields.

use std::future::Future;

use tonic::{Code, Response, Status};
use wharf_proto::{
    csi,
    csi::{group_controller_client::GroupControllerClient, node_client::NodeClient},
};

use super::{Breach, Subject, describe, is_missing};

const LAW: &str = "a missing field is INVALID_ARGUMENT";
const VOLUME: &str = "law-no-such-volume";
const PATH: &str = "/law/no/such/path";

/// For each field, calls an RPC without it.
macro_rules! without {
    ($call:expr, $request:expr, $($field:literal: $($part:ident).+,)+) => {{
        let complete = $request;
        $(
            let mut request = complete.clone();
            request.$($part).+ = Default::default();
            refused($field, $call(request)).await?;
        )+
    }};
}

impl Subject {
    /// Every RPC of the driver refuses a request that lacks a required field, and names the field.
    pub async fn requires_required_fields(&self) -> Result<(), Breach> {
        self.require_in_volumes().await?;
        self.require_in_snapshots().await?;
        self.require_on_node().await
    }

    async fn require_in_volumes(&self) -> Result<(), Breach> {
        let client = || self.controllers();
        let (volume_id, node_id) = (VOLUME.to_owned(), "law-no-such-node".to_owned());
        let volume_capability = Some(self.capability.clone());
        let capacity_range = self.volume("", self.size).capacity_range;
        without!(
            async |request| client().create_volume(request).await,
            self.volume("law-field", self.size),
            "name": name, "volume_capabilities": volume_capabilities,
        );
        without!(
            async |request| client().delete_volume(request).await,
            csi::DeleteVolumeRequest { volume_id: volume_id.clone(), ..Default::default() },
            "volume_id": volume_id,
        );
        without!(
            async |request| client().controller_publish_volume(request).await,
            csi::ControllerPublishVolumeRequest {
                volume_id: volume_id.clone(),
                node_id,
                volume_capability,
                ..Default::default()
            },
            "volume_id": volume_id, "node_id": node_id, "volume_capability": volume_capability,
        );
        without!(
            async |request| client().controller_unpublish_volume(request).await,
            csi::ControllerUnpublishVolumeRequest { volume_id: volume_id.clone(), ..Default::default() },
            "volume_id": volume_id,
        );
        without!(
            async |request| client().validate_volume_capabilities(request).await,
            csi::ValidateVolumeCapabilitiesRequest {
                volume_id: volume_id.clone(),
                volume_capabilities: vec![self.capability.clone()],
                ..Default::default()
            },
            "volume_id": volume_id, "volume_capabilities": volume_capabilities,
        );
        without!(
            async |request| client().controller_expand_volume(request).await,
            csi::ControllerExpandVolumeRequest {
                volume_id: volume_id.clone(),
                capacity_range,
                ..Default::default()
            },
            "volume_id": volume_id, "capacity_range": capacity_range,
        );
        without!(
            async |request| client().controller_modify_volume(request).await,
            csi::ControllerModifyVolumeRequest { volume_id: volume_id.clone(), ..Default::default() },
            "volume_id": volume_id,
        );
        without!(
            async |request| client().controller_get_volume(request).await,
            csi::ControllerGetVolumeRequest { volume_id: volume_id.clone() },
            "volume_id": volume_id,
        );
        without!(
            async |request| client().controller_get_volume_health(request).await,
            csi::ControllerGetVolumeHealthRequest { volume_id, ..Default::default() },
            "volume_id": volume_id,
        );
        Ok(())
    }

    async fn require_in_snapshots(&self) -> Result<(), Breach> {
        let client = || self.controllers();
        let groups = || GroupControllerClient::new(self.controller.clone());
        let name = "law-field".to_owned();
        let group_snapshot_id = "law-no-such-group".to_owned();
        let snapshot_id = "law-no-such-snapshot".to_owned();
        without!(
            async |request| client().create_snapshot(request).await,
            csi::CreateSnapshotRequest {
                name: name.clone(),
                source_volume_id: VOLUME.to_owned(),
                ..Default::default()
            },
            "name": name, "source_volume_id": source_volume_id,
        );
        without!(
            async |request| client().delete_snapshot(request).await,
            csi::DeleteSnapshotRequest { snapshot_id: snapshot_id.clone(), ..Default::default() },
            "snapshot_id": snapshot_id,
        );
        without!(
            async |request| client().get_snapshot(request).await,
            csi::GetSnapshotRequest { snapshot_id, ..Default::default() },
            "snapshot_id": snapshot_id,
        );
        without!(
            async |request| groups().create_volume_group_snapshot(request).await,
            csi::CreateVolumeGroupSnapshotRequest {
                name,
                source_volume_ids: vec![VOLUME.to_owned()],
                ..Default::default()
            },
            "name": name, "source_volume_ids": source_volume_ids,
        );
        without!(
            async |request| groups().delete_volume_group_snapshot(request).await,
            csi::DeleteVolumeGroupSnapshotRequest {
                group_snapshot_id: group_snapshot_id.clone(),
                ..Default::default()
            },
            "group_snapshot_id": group_snapshot_id,
        );
        without!(
            async |request| groups().get_volume_group_snapshot(request).await,
            csi::GetVolumeGroupSnapshotRequest { group_snapshot_id, ..Default::default() },
            "group_snapshot_id": group_snapshot_id,
        );
        Ok(())
    }

    async fn require_on_node(&self) -> Result<(), Breach> {
        let client = || NodeClient::new(self.node.clone());
        let (volume_id, path) = (VOLUME.to_owned(), PATH.to_owned());
        let volume_capability = Some(self.capability.clone());
        without!(
            async |request| client().node_stage_volume(request).await,
            csi::NodeStageVolumeRequest {
                volume_id: volume_id.clone(),
                staging_target_path: path.clone(),
                volume_capability: volume_capability.clone(),
                ..Default::default()
            },
            "volume_id": volume_id, "staging_target_path": staging_target_path,
            "volume_capability": volume_capability,
        );
        without!(
            async |request| client().node_unstage_volume(request).await,
            csi::NodeUnstageVolumeRequest {
                volume_id: volume_id.clone(),
                staging_target_path: path.clone(),
            },
            "volume_id": volume_id, "staging_target_path": staging_target_path,
        );
        without!(
            async |request| client().node_publish_volume(request).await,
            csi::NodePublishVolumeRequest {
                volume_id: volume_id.clone(),
                staging_target_path: path.clone(),
                target_path: path.clone(),
                volume_capability,
                ..Default::default()
            },
            "volume_id": volume_id, "target_path": target_path,
            "volume_capability": volume_capability,
        );
        without!(
            async |request| client().node_unpublish_volume(request).await,
            csi::NodeUnpublishVolumeRequest { volume_id: volume_id.clone(), target_path: path.clone() },
            "volume_id": volume_id, "target_path": target_path,
        );
        without!(
            async |request| client().node_get_volume_stats(request).await,
            csi::NodeGetVolumeStatsRequest {
                volume_id: volume_id.clone(),
                volume_path: path.clone(),
                ..Default::default()
            },
            "volume_id": volume_id, "volume_path": volume_path,
        );
        without!(
            async |request| client().node_expand_volume(request).await,
            csi::NodeExpandVolumeRequest {
                volume_id: volume_id.clone(),
                volume_path: path,
                ..Default::default()
            },
            "volume_id": volume_id, "volume_path": volume_path,
        );
        without!(
            async |request| client().node_get_volume_health(request).await,
            csi::NodeGetVolumeHealthRequest { volume_id, ..Default::default() },
            "volume_id": volume_id,
        );
        Ok(())
    }
}

async fn refused<R>(
    field: &str,
    call: impl Future<Output = Result<Response<R>, Status>>,
) -> Result<(), Breach> {
    let rpc = std::any::type_name::<R>();
    let rpc = rpc.rsplit("::").next().unwrap_or(rpc).trim_end_matches("Response");
    match call.await {
        Err(status) if is_missing(&status) => Ok(()),
        Err(status) if status.code() == Code::InvalidArgument => {
            match status.message().contains(field) {
                true => Ok(()),
                false => {
                    let text = status.message();
                    Err(Breach::new(
                        LAW,
                        format!("{rpc} without {field}: {text:?} does not name it"),
                    ))
                }
            }
        }
        Err(status) => {
            Err(Breach::new(LAW, format!("{rpc} without {field}: {}", describe(&status))))
        }
        Ok(_) => Err(Breach::new(LAW, format!("{rpc} without {field} is answered"))),
    }
}
