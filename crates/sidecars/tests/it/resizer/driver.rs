//! A scripted driver without real volumes.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex},
};

use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use wharf_proto::csi::{
    self,
    controller_server::{Controller, ControllerServer},
    controller_service_capability::rpc,
    identity_server::{Identity, IdentityServer},
    node_server::{Node, NodeServer},
    node_service_capability::{self as node_capability, rpc as node_rpc},
};
use wharf_uds::Routes;

use crate::{
    journal::Journal,
    scripted::{self, Answer, Answers, others},
};

/// Clones share the state.
#[derive(Clone)]
pub(crate) struct Driver(Arc<Inner>);

struct Inner {
    journal: Journal,
    capabilities: DriverCapabilities,
    answers: Answers<Answer>,
    expanded: Mutex<Option<csi::ControllerExpandVolumeRequest>>,
    modified: Mutex<Option<csi::ControllerModifyVolumeRequest>>,
}

/// The driver's capabilities.
#[derive(Clone, Default)]
pub(crate) struct DriverCapabilities {
    pub(crate) controller: Vec<rpc::Type>,
    pub(crate) node: Vec<node_rpc::Type>,
    /// Whether the node has to expand the filesystem after the controller.
    pub(crate) on_node: bool,
    pub(crate) topology: BTreeMap<String, String>,
}

impl Driver {
    pub(crate) fn new(journal: Journal, capabilities: DriverCapabilities) -> Self {
        Self(Arc::new(Inner {
            journal,
            capabilities,
            answers: Answers::default(),
            expanded: Mutex::default(),
            modified: Mutex::default(),
        }))
    }

    /// Answers the next expansions and modifications like this, in order; later ones succeed.
    pub(crate) fn answer(&self, answer: Answer) {
        self.answer_about("", answer);
    }

    /// Answers the next call that contains `part` like this.
    pub(crate) fn answer_about(&self, part: &str, answer: Answer) {
        self.0.answers.push(part, answer);
    }

    pub(crate) fn expanded(&self) -> csi::ControllerExpandVolumeRequest {
        self.0.expanded.lock().unwrap().clone().unwrap()
    }

    pub(crate) fn modified(&self) -> csi::ControllerModifyVolumeRequest {
        self.0.modified.lock().unwrap().clone().unwrap()
    }

    pub(crate) async fn serve(self, socket: &Path, stop: CancellationToken) {
        let routes = Routes::new(IdentityServer::new(self.clone()))
            .add_service(NodeServer::new(self.clone()))
            .add_service(ControllerServer::new(self));
        scripted::serve(routes, socket, stop).await;
    }

    async fn called(&self, line: String) -> Result<(), Status> {
        Answer::play(&self.0.answers, &self.0.journal, line).await
    }
}

#[tonic::async_trait]
impl Identity for Driver {
    async fn get_plugin_capabilities(
        &self,
        _: Request<csi::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<csi::GetPluginCapabilitiesResponse>, Status> {
        scripted::services(&[])
    }

    others! {
        get_plugin_info: GetPluginInfoRequest -> GetPluginInfoResponse,
        probe: ProbeRequest -> ProbeResponse,
    }
}

#[tonic::async_trait]
impl Node for Driver {
    async fn node_get_capabilities(
        &self,
        _: Request<csi::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<csi::NodeGetCapabilitiesResponse>, Status> {
        let capability = |&rpc: &node_rpc::Type| csi::NodeServiceCapability {
            r#type: Some(node_capability::Type::Rpc(node_capability::Rpc { r#type: rpc.into() })),
        };
        let capabilities = self.0.capabilities.node.iter().map(capability).collect();
        Ok(Response::new(csi::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _: Request<csi::NodeGetInfoRequest>,
    ) -> Result<Response<csi::NodeGetInfoResponse>, Status> {
        let segments = self.0.capabilities.topology.clone();
        Ok(Response::new(csi::NodeGetInfoResponse {
            node_id: "node".to_owned(),
            accessible_topology: Some(csi::Topology { segments }),
            ..csi::NodeGetInfoResponse::default()
        }))
    }

    others! {
        node_stage_volume: NodeStageVolumeRequest -> NodeStageVolumeResponse,
        node_unstage_volume: NodeUnstageVolumeRequest -> NodeUnstageVolumeResponse,
        node_publish_volume: NodePublishVolumeRequest -> NodePublishVolumeResponse,
        node_unpublish_volume: NodeUnpublishVolumeRequest -> NodeUnpublishVolumeResponse,
        node_get_volume_stats: NodeGetVolumeStatsRequest -> NodeGetVolumeStatsResponse,
        node_expand_volume: NodeExpandVolumeRequest -> NodeExpandVolumeResponse,
        node_get_volume_health: NodeGetVolumeHealthRequest -> NodeGetVolumeHealthResponse,
        node_get_storage_health: NodeGetStorageHealthRequest -> NodeGetStorageHealthResponse,
    }
}

#[tonic::async_trait]
impl Controller for Driver {
    async fn controller_get_capabilities(
        &self,
        _: Request<csi::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<csi::ControllerGetCapabilitiesResponse>, Status> {
        scripted::capabilities(&self.0.capabilities.controller)
    }

    async fn controller_expand_volume(
        &self,
        request: Request<csi::ControllerExpandVolumeRequest>,
    ) -> Result<Response<csi::ControllerExpandVolumeResponse>, Status> {
        let request = request.into_inner();
        let capacity_bytes = request.capacity_range.unwrap().required_bytes;
        let volume = request.volume_id.clone();
        *self.0.expanded.lock().unwrap() = Some(request);
        self.called(format!("ControllerExpandVolume {volume} {capacity_bytes}")).await?;
        let node_expansion_required = self.0.capabilities.on_node;
        Ok(Response::new(csi::ControllerExpandVolumeResponse {
            capacity_bytes,
            node_expansion_required,
        }))
    }

    async fn controller_modify_volume(
        &self,
        request: Request<csi::ControllerModifyVolumeRequest>,
    ) -> Result<Response<csi::ControllerModifyVolumeResponse>, Status> {
        let request = request.into_inner();
        let parameters = request.mutable_parameters.iter();
        let parameters: Vec<String> =
            parameters.map(|(key, value)| format!("{key}={value}")).collect();
        let line = format!("ControllerModifyVolume {} {}", request.volume_id, parameters.join(","));
        *self.0.modified.lock().unwrap() = Some(request);
        self.called(line).await?;
        Ok(Response::new(csi::ControllerModifyVolumeResponse {}))
    }

    others! {
        create_volume: CreateVolumeRequest -> CreateVolumeResponse,
        delete_volume: DeleteVolumeRequest -> DeleteVolumeResponse,
        controller_publish_volume:
            ControllerPublishVolumeRequest -> ControllerPublishVolumeResponse,
        controller_unpublish_volume:
            ControllerUnpublishVolumeRequest -> ControllerUnpublishVolumeResponse,
        list_volumes: ListVolumesRequest -> ListVolumesResponse,
        validate_volume_capabilities:
            ValidateVolumeCapabilitiesRequest -> ValidateVolumeCapabilitiesResponse,
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
