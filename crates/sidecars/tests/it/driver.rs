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
    list_volumes_response::{Entry, VolumeStatus},
    node_server::{Node, NodeServer},
    plugin_capability::service,
};
use wharf_uds::Routes;

pub(crate) use crate::scripted::Answer;
use crate::{
    journal::Journal,
    provisioner::volumes::Volumes,
    scripted::{self, Answers, others},
};

/// Clones share the state.
#[derive(Clone)]
pub(crate) struct Driver(Arc<Inner>);

struct Inner {
    journal: Journal,
    capabilities: Vec<rpc::Type>,
    answers: Answers<Answer>,
    /// The request of each attached volume, by its handle and the node's ID.
    attached: Mutex<BTreeMap<(String, String), csi::ControllerPublishVolumeRequest>>,
    detached: Mutex<Vec<csi::ControllerUnpublishVolumeRequest>>,
    volumes: Volumes,
}

impl Driver {
    pub(crate) fn new(journal: Journal, capabilities: &[rpc::Type]) -> Self {
        Self(Arc::new(Inner {
            journal,
            capabilities: capabilities.to_vec(),
            answers: Answers::default(),
            attached: Mutex::default(),
            detached: Mutex::default(),
            volumes: Volumes::default(),
        }))
    }

    /// The volumes and snapshots of the driver.
    pub(crate) fn volumes(&self) -> &Volumes {
        &self.0.volumes
    }

    /// Answers the next changing calls like this, in order; later ones succeed.
    pub(crate) fn answer(&self, answer: Answer) {
        self.answer_about("", answer);
    }

    /// Answers the next call that contains `part` like this.
    pub(crate) fn answer_about(&self, part: &str, answer: Answer) {
        self.0.answers.push(part, answer);
    }

    pub(crate) fn attached(
        &self,
        volume: &str,
        node: &str,
    ) -> Option<csi::ControllerPublishVolumeRequest> {
        let key = (volume.to_owned(), node.to_owned());
        self.0.attached.lock().unwrap().get(&key).cloned()
    }

    /// Detaches a volume without a call.
    pub(crate) fn put(&self, volume: &str, node: &str) {
        let request = csi::ControllerPublishVolumeRequest::default();
        self.0.attached.lock().unwrap().insert((volume.to_owned(), node.to_owned()), request);
    }

    /// Attaches a volume without a call.
    pub(crate) fn detach_all(&self) {
        self.0.attached.lock().unwrap().clear();
    }

    pub(crate) fn last_detach(&self) -> csi::ControllerUnpublishVolumeRequest {
        self.0.detached.lock().unwrap().last().unwrap().clone()
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
        let places = [service::Type::VolumeAccessibilityConstraints];
        scripted::services(if self.0.volumes.place().is_some() { &places } else { &[] })
    }

    others! {
        get_plugin_info: GetPluginInfoRequest -> GetPluginInfoResponse,
        probe: ProbeRequest -> ProbeResponse,
    }
}

#[tonic::async_trait]
impl Controller for Driver {
    async fn controller_get_capabilities(
        &self,
        _: Request<csi::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<csi::ControllerGetCapabilitiesResponse>, Status> {
        scripted::capabilities(&self.0.capabilities)
    }

    async fn controller_publish_volume(
        &self,
        request: Request<csi::ControllerPublishVolumeRequest>,
    ) -> Result<Response<csi::ControllerPublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let (volume, node) = (request.volume_id.clone(), request.node_id.clone());
        self.called(format!("ControllerPublishVolume {volume} {node}")).await?;
        self.0.attached.lock().unwrap().insert((volume, node), request);
        let publish_context = BTreeMap::from([("device".to_owned(), "sda".to_owned())]);
        Ok(Response::new(csi::ControllerPublishVolumeResponse { publish_context }))
    }

    async fn controller_unpublish_volume(
        &self,
        request: Request<csi::ControllerUnpublishVolumeRequest>,
    ) -> Result<Response<csi::ControllerUnpublishVolumeResponse>, Status> {
        let request = request.into_inner();
        let (volume, node) = (request.volume_id.clone(), request.node_id.clone());
        self.called(format!("ControllerUnpublishVolume {volume} {node}")).await?;
        self.0.attached.lock().unwrap().remove(&(volume, node));
        self.0.detached.lock().unwrap().push(request);
        Ok(Response::new(csi::ControllerUnpublishVolumeResponse {}))
    }

    /// One volume per page.
    async fn list_volumes(
        &self,
        request: Request<csi::ListVolumesRequest>,
    ) -> Result<Response<csi::ListVolumesResponse>, Status> {
        let request = request.into_inner();
        self.0.volumes.listed(request.max_entries)?;
        let mut nodes = BTreeMap::<String, Vec<String>>::new();
        for (volume, node) in self.0.attached.lock().unwrap().keys() {
            nodes.entry(volume.clone()).or_default().push(node.clone());
        }
        for volume in self.0.volumes.made() {
            nodes.entry(volume).or_default();
        }
        let page: usize = request.starting_token.parse().unwrap_or_default();
        let more = page + 1 < nodes.len();
        let entries =
            nodes.into_iter().skip(page).take(1).map(|(volume_id, published_node_ids)| {
                let volume = csi::Volume { volume_id, ..csi::Volume::default() };
                let status = VolumeStatus { published_node_ids, ..VolumeStatus::default() };
                Entry { volume: Some(volume), status: Some(status) }
            });
        Ok(Response::new(csi::ListVolumesResponse {
            entries: entries.collect(),
            next_token: if more { (page + 1).to_string() } else { String::new() },
        }))
    }

    async fn create_volume(
        &self,
        request: Request<csi::CreateVolumeRequest>,
    ) -> Result<Response<csi::CreateVolumeResponse>, Status> {
        let request = request.into_inner();
        self.0.volumes.asked(&request);
        self.called(format!("CreateVolume {}", request.name)).await?;
        let volume = Some(self.0.volumes.make(request));
        Ok(Response::new(csi::CreateVolumeResponse { volume }))
    }

    async fn delete_volume(
        &self,
        request: Request<csi::DeleteVolumeRequest>,
    ) -> Result<Response<csi::DeleteVolumeResponse>, Status> {
        let request = request.into_inner();
        self.called(format!("DeleteVolume {}", request.volume_id)).await?;
        self.0.volumes.delete(request);
        Ok(Response::new(csi::DeleteVolumeResponse {}))
    }

    async fn get_capacity(
        &self,
        request: Request<csi::GetCapacityRequest>,
    ) -> Result<Response<csi::GetCapacityResponse>, Status> {
        self.0.volumes.capacity(request.into_inner()).map(Response::new)
    }

    others! {
        controller_expand_volume: ControllerExpandVolumeRequest -> ControllerExpandVolumeResponse,
        controller_modify_volume: ControllerModifyVolumeRequest -> ControllerModifyVolumeResponse,
        validate_volume_capabilities:
            ValidateVolumeCapabilitiesRequest -> ValidateVolumeCapabilitiesResponse,
        controller_get_volume: ControllerGetVolumeRequest -> ControllerGetVolumeResponse,
        controller_get_volume_health:
            ControllerGetVolumeHealthRequest -> ControllerGetVolumeHealthResponse,
        controller_list_volume_health:
            ControllerListVolumeHealthRequest -> ControllerListVolumeHealthResponse,
        create_snapshot: CreateSnapshotRequest -> CreateSnapshotResponse,
        delete_snapshot: DeleteSnapshotRequest -> DeleteSnapshotResponse,
        list_snapshots: ListSnapshotsRequest -> ListSnapshotsResponse,
        get_snapshot: GetSnapshotRequest -> GetSnapshotResponse,
    }
}

#[tonic::async_trait]
impl Node for Driver {
    async fn node_get_info(
        &self,
        _: Request<csi::NodeGetInfoRequest>,
    ) -> Result<Response<csi::NodeGetInfoResponse>, Status> {
        let accessible_topology = self.0.volumes.place();
        Ok(Response::new(csi::NodeGetInfoResponse {
            node_id: "id".to_owned(),
            accessible_topology,
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
        node_get_capabilities: NodeGetCapabilitiesRequest -> NodeGetCapabilitiesResponse,
        node_get_volume_health: NodeGetVolumeHealthRequest -> NodeGetVolumeHealthResponse,
        node_get_storage_health: NodeGetStorageHealthRequest -> NodeGetStorageHealthResponse,
    }
}
