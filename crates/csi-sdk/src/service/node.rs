//! The Node service.

use std::sync::Arc;

use tonic::Status;
use wharf_proto::{
    csi,
    csi::{
        node_server::Node,
        node_service_capability::{Rpc, Type},
        volume_usage::Unit,
    },
};

use super::{Core, accept, check_id, rpcs};
use crate::{
    error::Failure,
    parts::offered,
    request::{
        NodeExpandVolume, NodeGetVolumeStats, NodePublishVolume, NodeStageVolume,
        NodeUnpublishVolume, NodeUnstageVolume,
    },
    types::{Access, Capability, signed},
};

const MAX_NODE_ID: usize = 256;

pub(crate) struct NodeService(pub(crate) Arc<Core>);

impl Node for NodeService {
    rpcs! { "Node":
        node_get_info: NodeGetInfoRequest -> NodeGetInfoResponse,
        node_get_capabilities: NodeGetCapabilitiesRequest -> NodeGetCapabilitiesResponse,
        node_stage_volume: NodeStageVolumeRequest -> NodeStageVolumeResponse,
        node_unstage_volume: NodeUnstageVolumeRequest -> NodeUnstageVolumeResponse,
        node_publish_volume: NodePublishVolumeRequest -> NodePublishVolumeResponse,
        node_unpublish_volume: NodeUnpublishVolumeRequest -> NodeUnpublishVolumeResponse,
        node_expand_volume: NodeExpandVolumeRequest -> NodeExpandVolumeResponse,
        node_get_volume_stats: NodeGetVolumeStatsRequest -> NodeGetVolumeStatsResponse,
        node_get_volume_health: NodeGetVolumeHealthRequest -> NodeGetVolumeHealthResponse,
        node_get_storage_health: NodeGetStorageHealthRequest -> NodeGetStorageHealthResponse,
    }
}

impl Core {
    async fn node_get_info(
        &self,
        _: csi::NodeGetInfoRequest,
    ) -> Result<csi::NodeGetInfoResponse, Status> {
        let info = offered(&self.parts.node, "NodeGetInfo")?.info().await?;
        check_id("node ID", &info.id, MAX_NODE_ID)?;
        let accessible_topology = match (self.parts.topology, info.topology) {
            (false, _) => None,
            (true, Some(topology)) => Some(topology.into()),
            (true, None) => {
                return Err(Status::internal(
                    "the driver declares topology, but its NodeInfo has none",
                ));
            }
        };
        Ok(csi::NodeGetInfoResponse {
            node_id: info.id.into(),
            max_volumes_per_node: info.max_volumes.map(signed).unwrap_or_default(),
            accessible_topology,
        })
    }

    async fn node_get_capabilities(
        &self,
        _: csi::NodeGetCapabilitiesRequest,
    ) -> Result<csi::NodeGetCapabilitiesResponse, Status> {
        let capabilities = self.parts.node_capabilities().map(|capability| {
            let rpc = Type::Rpc(Rpc { r#type: capability.into() });
            csi::NodeServiceCapability { r#type: Some(rpc) }
        });
        Ok(csi::NodeGetCapabilitiesResponse { capabilities: capabilities.collect() })
    }

    async fn node_stage_volume(
        &self,
        wire: csi::NodeStageVolumeRequest,
    ) -> Result<csi::NodeStageVolumeResponse, Status> {
        let staging = offered(&self.parts.staging, "NodeStageVolume")?;
        let accepted = accept::<_, NodeStageVolume>("NodeStageVolume", wire)?;
        self.check_use(&accepted.request.capability)?;
        self.operate(accepted, |request: NodeStageVolume| async move {
            staging.stage(request).await?;
            Ok(csi::NodeStageVolumeResponse {})
        })
        .await
    }

    async fn node_unstage_volume(
        &self,
        wire: csi::NodeUnstageVolumeRequest,
    ) -> Result<csi::NodeUnstageVolumeResponse, Status> {
        let staging = offered(&self.parts.staging, "NodeUnstageVolume")?;
        let accepted = accept("NodeUnstageVolume", wire)?;
        self.operate(accepted, |request: NodeUnstageVolume| async move {
            staging.unstage(request).await?;
            Ok(csi::NodeUnstageVolumeResponse {})
        })
        .await
    }

    async fn node_publish_volume(
        &self,
        wire: csi::NodePublishVolumeRequest,
    ) -> Result<csi::NodePublishVolumeResponse, Status> {
        let node = offered(&self.parts.node, "NodePublishVolume")?;
        let accepted = accept::<_, NodePublishVolume>("NodePublishVolume", wire)?;
        let request = &accepted.request;
        self.check_use(&request.capability)?;
        // The kubelet does not stage inline volumes.
        let stages = self.parts.staging.is_some() && !request.is_ephemeral();
        if stages && request.staging_path.is_none() {
            let text = "staging_target_path: expected the path at which the volume is staged";
            return Err(Status::failed_precondition(text));
        }
        self.operate(accepted, |request: NodePublishVolume| async move {
            node.publish(request).await?;
            Ok(csi::NodePublishVolumeResponse {})
        })
        .await
    }

    async fn node_unpublish_volume(
        &self,
        wire: csi::NodeUnpublishVolumeRequest,
    ) -> Result<csi::NodeUnpublishVolumeResponse, Status> {
        let node = offered(&self.parts.node, "NodeUnpublishVolume")?;
        let accepted = accept("NodeUnpublishVolume", wire)?;
        self.operate(accepted, |request: NodeUnpublishVolume| async move {
            node.unpublish(request).await?;
            Ok(csi::NodeUnpublishVolumeResponse {})
        })
        .await
    }

    async fn node_expand_volume(
        &self,
        wire: csi::NodeExpandVolumeRequest,
    ) -> Result<csi::NodeExpandVolumeResponse, Status> {
        let expansion = offered(&self.parts.node_expansion, "NodeExpandVolume")?;
        let accepted = accept("NodeExpandVolume", wire)?;
        self.operate(accepted, |request: NodeExpandVolume| async move {
            let capacity_bytes = signed(expansion.expand(request).await?);
            Ok(csi::NodeExpandVolumeResponse { capacity_bytes })
        })
        .await
    }

    async fn node_get_volume_stats(
        &self,
        wire: csi::NodeGetVolumeStatsRequest,
    ) -> Result<csi::NodeGetVolumeStatsResponse, Status> {
        let stats = offered(&self.parts.stats, "NodeGetVolumeStats")?;
        let accepted = accept::<_, NodeGetVolumeStats>("NodeGetVolumeStats", wire)?;
        let found = stats.stats(accepted.request).await?;
        let bytes = found.bytes.map(|usage| usage.into_wire(Unit::Bytes));
        let inodes = found.inodes.map(|usage| usage.into_wire(Unit::Inodes));
        let condition = found.condition.filter(|_| stats.shows_condition());
        Ok(csi::NodeGetVolumeStatsResponse {
            usage: bytes.into_iter().chain(inodes).collect(),
            volume_condition: condition.map(Into::into),
        })
    }

    /// Refuses uses of a volume that the plugin does not declare.
    fn check_use(&self, capability: &Capability) -> Result<(), Status> {
        self.check_mode("volume_capability", capability)?;
        let grouped = matches!(&capability.access, Access::Mount { group: Some(_), .. });
        if grouped && !self.parts.node.as_ref().is_some_and(|node| node.mount_group()) {
            let expected = "none: this driver does not offer VOLUME_MOUNT_GROUP";
            let field = "volume_capability.mount.volume_mount_group";
            return Err(Failure::invalid(field, expected).into());
        }
        Ok(())
    }
}
