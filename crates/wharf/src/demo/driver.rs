//! The smallest CSI driver that can be registered: it has a name and knows its node.

use std::{path::PathBuf, pin::Pin, process::ExitCode, time::Duration};

use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use wharf_proto::csi::{
    GetPluginCapabilitiesRequest, GetPluginCapabilitiesResponse, GetPluginInfoRequest,
    GetPluginInfoResponse, NodeGetInfoResponse, ProbeRequest, ProbeResponse, Topology,
    identity_server::{Identity, IdentityServer},
    node_server::NodeServer,
};
use wharf_uds::{ListenOptions, Listener, Routes};

pub(super) const NAME: &str = "demo.csi.wharf.dev";

pub(super) async fn serve(socket: PathBuf, stop: CancellationToken) -> anyhow::Result<ExitCode> {
    let listener = Listener::bind(&socket, &ListenOptions::default())?;
    let routes = Routes::new(IdentityServer::new(Driver)).add_service(NodeServer::new(Driver));
    listener.serve(routes, Duration::from_secs(1), stop).await?;
    Ok(ExitCode::SUCCESS)
}

struct Driver;

#[tonic::async_trait]
impl Identity for Driver {
    async fn get_plugin_info(
        &self,
        _: Request<GetPluginInfoRequest>,
    ) -> Result<Response<GetPluginInfoResponse>, Status> {
        Ok(Response::new(GetPluginInfoResponse {
            name: NAME.to_owned(),
            vendor_version: env!("CARGO_PKG_VERSION").to_owned(),
            ..GetPluginInfoResponse::default()
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<GetPluginCapabilitiesRequest>,
    ) -> Result<Response<GetPluginCapabilitiesResponse>, Status> {
        Ok(Response::new(GetPluginCapabilitiesResponse::default()))
    }

    async fn probe(&self, _: Request<ProbeRequest>) -> Result<Response<ProbeResponse>, Status> {
        Ok(Response::new(ProbeResponse { ready: Some(true) }))
    }
}

/// Methods that answer UNIMPLEMENTED.
macro_rules! unimplemented_calls {
    ($($method:ident: $request:ident -> $response:ident),* $(,)?) => {$(
        // Without `async`: the attribute does not expand inside macros.
        fn $method<'a, 'f>(
            &'a self,
            _: Request<wharf_proto::csi::$request>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<wharf_proto::csi::$response>, Status>> + Send + 'f>>
        where
            'a: 'f,
            Self: 'f,
        {
            let text = concat!(stringify!($method), " is no part of the demo");
            Box::pin(std::future::ready(Err(Status::unimplemented(text))))
        }
    )*};
}

#[tonic::async_trait]
impl wharf_proto::csi::node_server::Node for Driver {
    async fn node_get_info(
        &self,
        _: Request<wharf_proto::csi::NodeGetInfoRequest>,
    ) -> Result<Response<NodeGetInfoResponse>, Status> {
        let zone = ("topology.demo.wharf.dev/zone".to_owned(), "here".to_owned());
        Ok(Response::new(NodeGetInfoResponse {
            node_id: "this-machine".to_owned(),
            max_volumes_per_node: 16,
            accessible_topology: Some(Topology { segments: [zone].into() }),
        }))
    }

    async fn node_get_capabilities(
        &self,
        _: Request<wharf_proto::csi::NodeGetCapabilitiesRequest>,
    ) -> Result<Response<wharf_proto::csi::NodeGetCapabilitiesResponse>, Status> {
        Ok(Response::new(wharf_proto::csi::NodeGetCapabilitiesResponse::default()))
    }

    unimplemented_calls! {
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
