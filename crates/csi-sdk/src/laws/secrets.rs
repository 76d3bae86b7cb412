//! Laws of secrets.

use wharf_proto::{
    csi,
    csi::{
        group_controller_client::GroupControllerClient,
        node_client::NodeClient,
        volume_capability::{AccessType, MountVolume},
    },
};

use super::{Breach, Subject};
use crate::types::Parameters;

/// Value that [`Subject::plant_secrets`] puts into every field that must not be printed.
pub const PLANTED_SECRET: &str = "law-planted-secret-hunter2";

const LAW: &str = "a secret is in no log and no error";
const VOLUME: &str = "law-secret-volume";
const PATH: &str = "/law/no/such/path";

impl Subject {
    /// Calls every RPC that takes secrets, mount flags or tokens with [`PLANTED_SECRET`] in them.
    /// No error may contain it. The caller then checks the driver's log with
    /// [`Subject::check_log`].
    pub async fn plant_secrets(&self) -> Result<(), Breach> {
        let secrets = || Parameters::from([("password".to_owned(), PLANTED_SECRET.to_owned())]);
        let context = Parameters::from([(
            wharf_facts::context::SERVICE_ACCOUNT_TOKENS.to_owned(),
            PLANTED_SECRET.to_owned(),
        )]);
        let volume_capability = csi::VolumeCapability {
            access_type: Some(AccessType::Mount(MountVolume {
                mount_flags: vec![PLANTED_SECRET.to_owned()],
                ..Default::default()
            })),
            ..self.capability.clone()
        };
        let volume_id = VOLUME.to_owned();
        let mut controller = self.controllers();
        let mut group = GroupControllerClient::new(self.controller.clone());
        let mut node = NodeClient::new(self.node.clone());

        macro_rules! call {
            ($client:ident.$rpc:ident($request:ident { $($field:ident: $value:expr),* $(,)? })) => {{
                let mut request = csi::$request::default();
                $(request.$field = $value;)*
                check_answer($client.$rpc(request).await)?
            }};
        }
        let volume_capabilities = vec![volume_capability.clone()];
        let created = csi::CreateVolumeRequest {
            secrets: secrets(),
            volume_capabilities: volume_capabilities.clone(),
            ..self.volume("law-secret", self.size)
        };
        let created = check_answer(controller.create_volume(created).await)?;
        if let Some(volume) = created.and_then(|created| created.volume) {
            let volume_id = volume.volume_id;
            call!(
                controller.delete_volume(DeleteVolumeRequest {
                    volume_id: volume_id,
                    secrets: secrets()
                })
            );
        }
        call!(controller.delete_volume(DeleteVolumeRequest { secrets: secrets() }));
        call!(controller.controller_publish_volume(ControllerPublishVolumeRequest {
            volume_id: volume_id.clone(),
            node_id: "law-node".to_owned(),
            secrets: secrets(),
            volume_capability: Some(volume_capability.clone()),
            volume_context: context.clone(),
        }));
        call!(controller.controller_unpublish_volume(ControllerUnpublishVolumeRequest {
            volume_id: volume_id.clone(),
            secrets: secrets(),
        }));
        call!(controller.validate_volume_capabilities(ValidateVolumeCapabilitiesRequest {
            volume_id: volume_id.clone(),
            secrets: secrets(),
            volume_capabilities: volume_capabilities,
            volume_context: context.clone(),
        }));
        call!(controller.controller_expand_volume(ControllerExpandVolumeRequest {
            volume_id: volume_id.clone(),
            secrets: secrets(),
            capacity_range: self.volume("", self.size).capacity_range,
            volume_capability: Some(volume_capability.clone()),
        }));
        call!(controller.controller_modify_volume(ControllerModifyVolumeRequest {
            volume_id: volume_id.clone(),
            secrets: secrets(),
        }));
        call!(controller.controller_get_volume_health(ControllerGetVolumeHealthRequest {
            volume_id: volume_id.clone(),
            secrets: secrets(),
        }));
        call!(controller.controller_list_volume_health(ControllerListVolumeHealthRequest {
            secrets: secrets(),
        }));
        call!(controller.create_snapshot(CreateSnapshotRequest {
            name: "law-secret".to_owned(),
            source_volume_id: volume_id.clone(),
            secrets: secrets(),
        }));
        call!(controller.delete_snapshot(DeleteSnapshotRequest {
            snapshot_id: volume_id.clone(),
            secrets: secrets(),
        }));
        call!(controller.list_snapshots(ListSnapshotsRequest { secrets: secrets() }));
        call!(controller.get_snapshot(GetSnapshotRequest {
            snapshot_id: volume_id.clone(),
            secrets: secrets(),
        }));
        call!(group.create_volume_group_snapshot(CreateVolumeGroupSnapshotRequest {
            name: "law-secret".to_owned(),
            source_volume_ids: vec![volume_id.clone()],
            secrets: secrets(),
        }));
        call!(group.delete_volume_group_snapshot(DeleteVolumeGroupSnapshotRequest {
            group_snapshot_id: volume_id.clone(),
            secrets: secrets(),
        }));
        call!(group.get_volume_group_snapshot(GetVolumeGroupSnapshotRequest {
            group_snapshot_id: volume_id.clone(),
            secrets: secrets(),
        }));
        call!(node.node_stage_volume(NodeStageVolumeRequest {
            volume_id: volume_id.clone(),
            staging_target_path: PATH.to_owned(),
            secrets: secrets(),
            volume_capability: Some(volume_capability.clone()),
            volume_context: context.clone(),
        }));
        call!(node.node_publish_volume(NodePublishVolumeRequest {
            volume_id: volume_id.clone(),
            staging_target_path: PATH.to_owned(),
            target_path: PATH.to_owned(),
            secrets: secrets(),
            volume_context: context,
            volume_capability: Some(volume_capability.clone()),
        }));
        call!(node.node_expand_volume(NodeExpandVolumeRequest {
            volume_id: volume_id,
            volume_path: PATH.to_owned(),
            secrets: secrets(),
            volume_capability: Some(volume_capability),
        }));
        call!(node.node_get_storage_health(NodeGetStorageHealthRequest { secrets: secrets() }));
        Ok(())
    }

    /// Checks that a log does not contain the secret that [`plant_secrets`](Subject::plant_secrets)
    /// planted.
    pub fn check_log(log: &str) -> Result<(), Breach> {
        match log.lines().find(|line| line.contains(PLANTED_SECRET)) {
            None => Ok(()),
            Some(line) => Err(Breach::new(LAW, format!("found in the log: {line}"))),
        }
    }
}

/// Returns the answer, or `None` for an error. An error that contains the planted secret is a
/// breach.
fn check_answer<R>(answer: Result<tonic::Response<R>, tonic::Status>) -> Result<Option<R>, Breach> {
    match answer {
        Ok(answer) => Ok(Some(answer.into_inner())),
        Err(status) if status.message().contains(PLANTED_SECRET) => {
            Err(Breach::new(LAW, format!("found in an error: {}", status.message())))
        }
        Err(_) => Ok(None),
    }
}
