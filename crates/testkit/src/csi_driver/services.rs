use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;
use tonic::{Request, Response, Status};
use wharf_proto::csi::{
    self,
    controller_server::{Controller, ControllerServer},
    identity_server::{Identity, IdentityServer},
    node_server::{Node, NodeServer},
};
use wharf_uds::Routes;

use super::DriverScript;

#[derive(Clone)]
pub(super) struct Services {
    pub(super) script: Arc<Mutex<DriverScript>>,
    pub(super) calls: Arc<watch::Sender<BTreeMap<&'static str, usize>>>,
}

impl Services {
    pub(super) fn routes(&self) -> Routes {
        Routes::new(IdentityServer::new(self.clone()))
            .add_service(NodeServer::new(self.clone()))
            .add_service(ControllerServer::new(self.clone()))
    }

    async fn answer<T>(
        &self,
        rpc: &'static str,
        message: Option<fn(&DriverScript) -> T>,
    ) -> Result<Response<T>, Status> {
        self.calls.send_modify(|calls| *calls.entry(rpc).or_default() += 1);
        let script = self.script.lock().unwrap_or_else(PoisonError::into_inner).clone();
        script.answers.get(rpc).cloned().unwrap_or_default().given().await?;
        match message {
            Some(message) => Ok(Response::new(message(&script))),
            None => Err(Status::unimplemented(format!("{rpc} is not in the script"))),
        }
    }
}

/// Defines RPCs by method and request: the RPC's name, and the answer of those that have one.
macro_rules! rpcs {
    ($($method:ident: $request:ident -> $response:ident $(= $answer:expr)?,)*) => {$(
        // Written out, since the async_trait attribute does not look into macros.
        fn $method<'a, 'f>(
            &'a self,
            _: Request<csi::$request>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<csi::$response>, Status>> + Send + 'f>>
        where
            'a: 'f,
            Self: 'f,
        {
            let answer: Option<fn(&DriverScript) -> csi::$response> = None $(.or(Some($answer)))?;
            Box::pin(self.answer(stringify!($request).trim_end_matches("Request"), answer))
        }
    )*};
}

impl Identity for Services {
    rpcs! {
        get_plugin_info: GetPluginInfoRequest -> GetPluginInfoResponse = |script| {
            csi::GetPluginInfoResponse {
                name: script.name.clone(),
                vendor_version: script.version.clone(),
                ..Default::default()
            }
        },
        get_plugin_capabilities: GetPluginCapabilitiesRequest -> GetPluginCapabilitiesResponse =
            |script| script.plugin_capabilities.clone(),
        probe: ProbeRequest -> ProbeResponse = |script| csi::ProbeResponse { ready: script.ready },
    }
}

impl Node for Services {
    rpcs! {
        node_get_info: NodeGetInfoRequest -> NodeGetInfoResponse = |script| script.node.clone(),
        node_get_capabilities: NodeGetCapabilitiesRequest -> NodeGetCapabilitiesResponse =
            |script| script.node_capabilities.clone(),
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

impl Controller for Services {
    rpcs! {
        controller_get_capabilities:
            ControllerGetCapabilitiesRequest -> ControllerGetCapabilitiesResponse =
            |script| script.controller_capabilities.clone(),
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
