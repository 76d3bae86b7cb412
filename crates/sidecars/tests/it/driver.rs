//! A driver that attaches nothing, as well or as badly as it is told.

use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use wharf_proto::csi::{
    self,
    controller_server::{Controller, ControllerServer},
    controller_service_capability::{self as controller_capability, rpc},
    identity_server::{Identity, IdentityServer},
    list_volumes_response::{Entry, VolumeStatus},
    plugin_capability::{self, service},
};
use wharf_uds::{ListenOptions, Listener, Routes};

use crate::journal::Journal;

/// How the next call is answered.
pub(crate) enum Answer {
    When(CancellationToken),
    Error(Status),
    Never,
}

/// Clones share everything.
#[derive(Clone)]
pub(crate) struct Driver(Arc<Inner>);

struct Inner {
    journal: Journal,
    capabilities: Vec<rpc::Type>,
    answers: Mutex<VecDeque<Answer>>,
    /// What each volume was attached with, by its handle and the node's id.
    attached: Mutex<BTreeMap<(String, String), csi::ControllerPublishVolumeRequest>>,
    detached: Mutex<Vec<csi::ControllerUnpublishVolumeRequest>>,
}

impl Driver {
    pub(crate) fn new(journal: Journal, capabilities: &[rpc::Type]) -> Self {
        Self(Arc::new(Inner {
            journal,
            capabilities: capabilities.to_vec(),
            answers: Mutex::default(),
            attached: Mutex::default(),
            detached: Mutex::default(),
        }))
    }

    /// Calls that attach or detach are answered so, in this order; after that as they should.
    pub(crate) fn answer(&self, answer: Answer) {
        self.0.answers.lock().unwrap().push_back(answer);
    }

    pub(crate) fn attached(
        &self,
        volume: &str,
        node: &str,
    ) -> Option<csi::ControllerPublishVolumeRequest> {
        let key = (volume.to_owned(), node.to_owned());
        self.0.attached.lock().unwrap().get(&key).cloned()
    }

    /// Behind everyone's back.
    pub(crate) fn detach_all(&self) {
        self.0.attached.lock().unwrap().clear();
    }

    pub(crate) fn last_detach(&self) -> csi::ControllerUnpublishVolumeRequest {
        self.0.detached.lock().unwrap().last().unwrap().clone()
    }

    pub(crate) async fn serve(self, socket: &Path, stop: CancellationToken) {
        let routes =
            Routes::new(IdentityServer::new(self.clone())).add_service(ControllerServer::new(self));
        let listener = Listener::bind(socket, &ListenOptions::default()).unwrap();
        listener.serve(routes, Duration::ZERO, stop).await.unwrap();
    }

    async fn called(&self, line: String) -> Result<(), Status> {
        let answer = self.0.answers.lock().unwrap().pop_front();
        match answer {
            None => self.0.journal.note(line),
            Some(Answer::When(told)) => {
                self.0.journal.note(line);
                told.cancelled().await;
            }
            Some(Answer::Error(status)) => {
                self.0.journal.note(format!("{line} -> {:?}", status.code()));
                return Err(status);
            }
            Some(Answer::Never) => {
                self.0.journal.note(format!("{line} -> never"));
                std::future::pending::<()>().await;
            }
        }
        Ok(())
    }
}

/// RPCs that are not part of these tests.
macro_rules! others {
    ($($method:ident: $request:ident -> $response:ident,)*) => {$(
        // What the async_trait attribute would write: it does not look into macros.
        fn $method<'a, 'f>(
            &'a self,
            _: Request<csi::$request>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<csi::$response>, Status>> + Send + 'f>>
        where
            'a: 'f,
            Self: 'f,
        {
            Box::pin(async { Err(Status::unimplemented(stringify!($method))) })
        }
    )*};
}

#[tonic::async_trait]
impl Identity for Driver {
    async fn get_plugin_capabilities(
        &self,
        _: Request<csi::GetPluginCapabilitiesRequest>,
    ) -> Result<Response<csi::GetPluginCapabilitiesResponse>, Status> {
        let controller = csi::PluginCapability {
            r#type: Some(plugin_capability::Type::Service(plugin_capability::Service {
                r#type: service::Type::ControllerService.into(),
            })),
        };
        let capabilities = vec![controller];
        Ok(Response::new(csi::GetPluginCapabilitiesResponse { capabilities }))
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
        let capability = |&rpc: &rpc::Type| csi::ControllerServiceCapability {
            r#type: Some(controller_capability::Type::Rpc(controller_capability::Rpc {
                r#type: rpc.into(),
            })),
        };
        let capabilities = self.0.capabilities.iter().map(capability).collect();
        Ok(Response::new(csi::ControllerGetCapabilitiesResponse { capabilities }))
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
        let mut nodes = BTreeMap::<String, Vec<String>>::new();
        for (volume, node) in self.0.attached.lock().unwrap().keys() {
            nodes.entry(volume.clone()).or_default().push(node.clone());
        }
        let page: usize = request.into_inner().starting_token.parse().unwrap_or_default();
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

    others! {
        create_volume: CreateVolumeRequest -> CreateVolumeResponse,
        delete_volume: DeleteVolumeRequest -> DeleteVolumeResponse,
        controller_expand_volume: ControllerExpandVolumeRequest -> ControllerExpandVolumeResponse,
        controller_modify_volume: ControllerModifyVolumeRequest -> ControllerModifyVolumeResponse,
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
