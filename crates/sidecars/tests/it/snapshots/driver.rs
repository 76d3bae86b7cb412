//! A scripted driver without real snapshots.

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
    list_snapshots_response::Entry,
};
use wharf_uds::Routes;

use crate::{
    journal::Journal,
    scripted::{self, Answers, others},
};

/// The answer to a call.
pub(crate) enum Answer {
    /// A snapshot that is not ready.
    NotReady,
    Error(Status),
    /// Success, but only once this is cancelled.
    When(CancellationToken),
}

/// Clones share the state.
#[derive(Clone)]
pub(crate) struct SnapshotDriver(Arc<Inner>);

struct Inner {
    journal: Journal,
    capabilities: Vec<rpc::Type>,
    answers: Answers<Answer>,
    /// The request of each snapshot, by its name.
    taken: Mutex<BTreeMap<String, csi::CreateSnapshotRequest>>,
    /// The parameters of each CreateSnapshot, answered or not.
    asked: Mutex<Vec<BTreeMap<String, String>>>,
    /// Handles of snapshots that existed before.
    there: Mutex<Vec<String>>,
    last_list: Mutex<Option<csi::ListSnapshotsRequest>>,
    last_delete: Mutex<Option<csi::DeleteSnapshotRequest>>,
}

impl SnapshotDriver {
    pub(crate) fn new(journal: Journal, capabilities: &[rpc::Type]) -> Self {
        Self(Arc::new(Inner {
            journal,
            capabilities: capabilities.to_vec(),
            answers: Answers::default(),
            taken: Mutex::default(),
            asked: Mutex::default(),
            there: Mutex::default(),
            last_list: Mutex::default(),
            last_delete: Mutex::default(),
        }))
    }

    /// Answers the next calls about snapshots like this, in order; later ones succeed.
    pub(crate) fn answer(&self, answer: Answer) {
        self.answer_about("", answer);
    }

    /// Answers the next call that contains `part` like this.
    pub(crate) fn answer_about(&self, part: &str, answer: Answer) {
        self.0.answers.push(part, answer);
    }

    /// Adds a snapshot without a call.
    pub(crate) fn has(&self, handle: &str) {
        self.0.there.lock().unwrap().push(handle.to_owned());
    }

    pub(crate) fn taken(&self) -> Vec<csi::CreateSnapshotRequest> {
        self.0.taken.lock().unwrap().values().cloned().collect()
    }

    pub(crate) fn asked(&self) -> Vec<BTreeMap<String, String>> {
        self.0.asked.lock().unwrap().clone()
    }

    pub(crate) fn last_list(&self) -> csi::ListSnapshotsRequest {
        self.0.last_list.lock().unwrap().clone().unwrap()
    }

    pub(crate) fn last_delete(&self) -> csi::DeleteSnapshotRequest {
        self.0.last_delete.lock().unwrap().clone().unwrap()
    }

    pub(crate) async fn serve(self, socket: &Path, stop: CancellationToken) {
        let routes =
            Routes::new(IdentityServer::new(self.clone())).add_service(ControllerServer::new(self));
        scripted::serve(routes, socket, stop).await;
    }

    /// Whether the answer contains a ready snapshot.
    async fn called(&self, line: String) -> Result<bool, Status> {
        let answer = self.0.answers.take(&line);
        if let Some(Answer::Error(status)) = answer {
            self.0.journal.note(format!("{line} -> {:?}", status.code()));
            return Err(status);
        }
        self.0.journal.note(line);
        if let Some(Answer::When(told)) = &answer {
            told.cancelled().await;
        }
        Ok(!matches!(answer, Some(Answer::NotReady)))
    }
}

#[tonic::async_trait]
impl Identity for SnapshotDriver {
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
impl Controller for SnapshotDriver {
    async fn controller_get_capabilities(
        &self,
        _: Request<csi::ControllerGetCapabilitiesRequest>,
    ) -> Result<Response<csi::ControllerGetCapabilitiesResponse>, Status> {
        scripted::capabilities(&self.0.capabilities)
    }

    async fn create_snapshot(
        &self,
        request: Request<csi::CreateSnapshotRequest>,
    ) -> Result<Response<csi::CreateSnapshotResponse>, Status> {
        let request = request.into_inner();
        let (name, volume) = (request.name.clone(), request.source_volume_id.clone());
        self.0.asked.lock().unwrap().push(request.parameters.clone());
        self.0.taken.lock().unwrap().insert(name.clone(), request);
        let ready = match self.called(format!("CreateSnapshot {name} {volume}")).await {
            Ok(ready) => ready,
            Err(status) => {
                self.0.taken.lock().unwrap().remove(&name);
                return Err(status);
            }
        };
        Ok(Response::new(csi::CreateSnapshotResponse {
            snapshot: Some(snapshot(format!("{volume}-snap"), ready)),
        }))
    }

    async fn delete_snapshot(
        &self,
        request: Request<csi::DeleteSnapshotRequest>,
    ) -> Result<Response<csi::DeleteSnapshotResponse>, Status> {
        let request = request.into_inner();
        let line = format!("DeleteSnapshot {}", request.snapshot_id);
        *self.0.last_delete.lock().unwrap() = Some(request);
        self.called(line).await?;
        Ok(Response::new(csi::DeleteSnapshotResponse {}))
    }

    async fn list_snapshots(
        &self,
        request: Request<csi::ListSnapshotsRequest>,
    ) -> Result<Response<csi::ListSnapshotsResponse>, Status> {
        let request = request.into_inner();
        let handle = request.snapshot_id.clone();
        *self.0.last_list.lock().unwrap() = Some(request);
        let ready = self.called(format!("ListSnapshots {handle}")).await?;
        let there = self.0.there.lock().unwrap().contains(&handle);
        let entry = Entry { snapshot: Some(snapshot(handle, ready)) };
        let entries = if there { vec![entry] } else { Vec::new() };
        Ok(Response::new(csi::ListSnapshotsResponse { entries, next_token: String::new() }))
    }

    others! {
        create_volume: CreateVolumeRequest -> CreateVolumeResponse,
        delete_volume: DeleteVolumeRequest -> DeleteVolumeResponse,
        controller_publish_volume:
            ControllerPublishVolumeRequest -> ControllerPublishVolumeResponse,
        controller_unpublish_volume:
            ControllerUnpublishVolumeRequest -> ControllerUnpublishVolumeResponse,
        list_volumes: ListVolumesRequest -> ListVolumesResponse,
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
        get_snapshot: GetSnapshotRequest -> GetSnapshotResponse,
    }
}

/// A snapshot of 5 bytes, taken a second after 1970.
fn snapshot(snapshot_id: String, ready_to_use: bool) -> csi::Snapshot {
    csi::Snapshot {
        snapshot_id,
        size_bytes: 5,
        creation_time: Some("1970-01-01T00:00:01Z".parse().unwrap()),
        ready_to_use,
        ..csi::Snapshot::default()
    }
}
