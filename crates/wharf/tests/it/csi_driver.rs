//! A CSI driver that answers every call with non-empty fields, and records the requests.

use std::{
    future::Future,
    path::PathBuf,
    pin::Pin,
    sync::{Arc, Mutex},
    time::Duration,
};

use prost_reflect::prost::Message;
use tempfile::TempDir;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use wharf_proto::csi::{
    self,
    controller_server::{Controller, ControllerServer},
    group_controller_server::{GroupController, GroupControllerServer},
    identity_server::{Identity, IdentityServer},
    node_server::{Node, NodeServer},
};
use wharf_uds::{ListenOptions, Listener, Routes};

/// One request as it came.
#[derive(Clone)]
pub(crate) struct Asked {
    pub(crate) rpc: &'static str,
    /// The request's Debug, which leaves secrets out.
    pub(crate) request: String,
    pub(crate) bytes: Vec<u8>,
}

/// Serves all four services in a folder of its own until it is dropped.
pub(crate) struct Recorder {
    pub(crate) folder: TempDir,
    answers: Answers,
    _serving: JoinSet<()>,
}

impl Recorder {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let listener =
            Listener::bind(&folder.path().join("csi.sock"), &ListenOptions::default()).unwrap();
        let answers = Answers::default();
        let routes = Routes::new(IdentityServer::new(answers.clone()))
            .add_service(ControllerServer::new(answers.clone()))
            .add_service(GroupControllerServer::new(answers.clone()))
            .add_service(NodeServer::new(answers.clone()));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            listener.serve(routes, Duration::ZERO, CancellationToken::new()).await.unwrap();
        });
        Self { folder, answers, _serving: serving }
    }

    pub(crate) fn socket(&self) -> PathBuf {
        self.folder.path().join("csi.sock")
    }

    /// The requests of one RPC.
    pub(crate) fn asked(&self, rpc: &str) -> Vec<Asked> {
        let asked = self.answers.asked.lock().unwrap();
        asked.iter().filter(|asked| asked.rpc == rpc).cloned().collect()
    }
}

#[derive(Clone, Default)]
struct Answers {
    asked: Arc<Mutex<Vec<Asked>>>,
}

/// RPCs by method and request, which carries the RPC's name, with their answers.
macro_rules! rpcs {
    ($($method:ident: $request:ident -> $response:ident = $answer:expr,)*) => {$(
        // What the async_trait attribute would write: it does not look into macros.
        fn $method<'a, 'f>(
            &'a self,
            request: Request<csi::$request>,
        ) -> Pin<Box<dyn Future<Output = Result<Response<csi::$response>, Status>> + Send + 'f>>
        where
            'a: 'f,
            Self: 'f,
        {
            let request = request.into_inner();
            self.asked.lock().unwrap().push(Asked {
                rpc: stringify!($request).trim_end_matches("Request"),
                request: format!("{request:?}"),
                bytes: request.encode_to_vec(),
            });
            let answer: fn(csi::$request) -> csi::$response = $answer;
            Box::pin(async move { Ok(Response::new(answer(request))) })
        }
    )*};
}

impl Identity for Answers {
    rpcs! {
        get_plugin_info: GetPluginInfoRequest -> GetPluginInfoResponse =
            |_| csi::GetPluginInfoResponse {
                name: "recorder.example.com".into(),
                vendor_version: "1.2.3".into(),
                ..Default::default()
            },
        probe: ProbeRequest -> ProbeResponse = |_| Default::default(),
        get_plugin_capabilities: GetPluginCapabilitiesRequest -> GetPluginCapabilitiesResponse = |_| {
            use csi::plugin_capability::{Service, Type, VolumeExpansion};
            let services = (1..=5).map(|number| Type::Service(Service { r#type: number }));
            let expansion = Type::VolumeExpansion(VolumeExpansion { r#type: 1 });
            let types = services.chain([expansion]);
            let capabilities = types.map(|it| csi::PluginCapability { r#type: Some(it) }).collect();
            csi::GetPluginCapabilitiesResponse { capabilities }
        },
    }
}

fn volume(id: &str) -> Option<csi::Volume> {
    Some(csi::Volume { volume_id: id.into(), capacity_bytes: 1 << 30, ..Default::default() })
}

fn snapshot(id: &str) -> csi::Snapshot {
    csi::Snapshot {
        snapshot_id: id.into(),
        source_volume_id: "volume-1".into(),
        size_bytes: 64 << 20,
        ready_to_use: true,
        ..Default::default()
    }
}

fn group(id: &str) -> Option<csi::VolumeGroupSnapshot> {
    let snapshots = vec![snapshot("s-1"), snapshot("s-2")];
    Some(csi::VolumeGroupSnapshot {
        group_snapshot_id: id.into(),
        snapshots,
        ready_to_use: true,
        ..Default::default()
    })
}

fn degraded(id: &str) -> csi::VolumeHealth {
    let entry = csi::volume_health::VolumeHealthEntry {
        status: csi::VolumeHealthErrorType::Degraded.into(),
        reason: "SlowDisk".into(),
        message: "it is \x1b[31mslow".into(),
    };
    csi::VolumeHealth { volume_id: id.into(), health_statuses: vec![entry] }
}

impl Controller for Answers {
    rpcs! {
        controller_get_capabilities:
            ControllerGetCapabilitiesRequest -> ControllerGetCapabilitiesResponse = |_| {
            use csi::controller_service_capability::{Rpc, Type};
            let types = (1..=17).chain([99]).map(|number| Type::Rpc(Rpc { r#type: number }));
            let capability = |it| csi::ControllerServiceCapability { r#type: Some(it) };
            csi::ControllerGetCapabilitiesResponse { capabilities: types.map(capability).collect() }
        },
        create_volume: CreateVolumeRequest -> CreateVolumeResponse = |request| {
            // A driver that is careless with what it was given.
            let mut volume = volume(&request.name).unwrap();
            volume.volume_context.extend(request.secrets);
            csi::CreateVolumeResponse { volume: Some(volume) }
        },
        delete_volume: DeleteVolumeRequest -> DeleteVolumeResponse = |_| Default::default(),
        controller_publish_volume:
            ControllerPublishVolumeRequest -> ControllerPublishVolumeResponse = |_| {
            let publish_context = [("device".to_owned(), "vdb".to_owned())].into();
            csi::ControllerPublishVolumeResponse { publish_context }
        },
        controller_unpublish_volume:
            ControllerUnpublishVolumeRequest -> ControllerUnpublishVolumeResponse =
            |_| Default::default(),
        controller_expand_volume: ControllerExpandVolumeRequest -> ControllerExpandVolumeResponse =
            |request| csi::ControllerExpandVolumeResponse {
                capacity_bytes: request.capacity_range.unwrap().required_bytes,
                node_expansion_required: true,
            },
        controller_modify_volume: ControllerModifyVolumeRequest -> ControllerModifyVolumeResponse =
            |_| Default::default(),
        validate_volume_capabilities:
            ValidateVolumeCapabilitiesRequest -> ValidateVolumeCapabilitiesResponse = |request| {
            let good = request.volume_id == "volume-1";
            csi::ValidateVolumeCapabilitiesResponse {
                confirmed: good.then(Default::default),
                message: if good { String::new() } else { "no such filesystem".into() },
            }
        },
        list_volumes: ListVolumesRequest -> ListVolumesResponse = |request| {
            // Three volumes, one a page; a token is the number of the page. "forever" has no end.
            let page: usize = request.starting_token.parse().unwrap_or_default();
            let next_token = match request.starting_token.as_str() {
                "forever" => "forever".to_owned(),
                _ if page < 2 => (page + 1).to_string(),
                _ => String::new(),
            };
            let volume = volume(&format!("volume-{page}"));
            let status = csi::list_volumes_response::VolumeStatus {
                published_node_ids: vec!["node-1".into(), "node-2".into()],
                volume_condition: None,
            };
            let entry = csi::list_volumes_response::Entry { volume, status: Some(status) };
            csi::ListVolumesResponse { entries: vec![entry], next_token }
        },
        controller_get_volume: ControllerGetVolumeRequest -> ControllerGetVolumeResponse =
            |request| csi::ControllerGetVolumeResponse {
                volume: volume(&request.volume_id),
                status: None,
            },
        controller_get_volume_health:
            ControllerGetVolumeHealthRequest -> ControllerGetVolumeHealthResponse = |request| {
            let volume_health = Some(degraded(&request.volume_id));
            csi::ControllerGetVolumeHealthResponse { volume_health }
        },
        controller_list_volume_health:
            ControllerListVolumeHealthRequest -> ControllerListVolumeHealthResponse = |_| {
            let entries = vec![degraded("volume-1")];
            csi::ControllerListVolumeHealthResponse { entries, next_token: String::new() }
        },
        get_capacity: GetCapacityRequest -> GetCapacityResponse =
            |_| csi::GetCapacityResponse {
                available_capacity: 5 << 30,
                maximum_volume_size: Some(1 << 30),
                minimum_volume_size: None,
            },
        create_snapshot: CreateSnapshotRequest -> CreateSnapshotResponse =
            |request| csi::CreateSnapshotResponse { snapshot: Some(snapshot(&request.name)) },
        delete_snapshot: DeleteSnapshotRequest -> DeleteSnapshotResponse = |_| Default::default(),
        list_snapshots: ListSnapshotsRequest -> ListSnapshotsResponse = |_| {
            let snapshot = Some(snapshot("s-1"));
            let entries = vec![csi::list_snapshots_response::Entry { snapshot }];
            csi::ListSnapshotsResponse { entries, next_token: String::new() }
        },
        get_snapshot: GetSnapshotRequest -> GetSnapshotResponse =
            |request| csi::GetSnapshotResponse { snapshot: Some(snapshot(&request.snapshot_id)) },
    }
}

impl GroupController for Answers {
    rpcs! {
        group_controller_get_capabilities:
            GroupControllerGetCapabilitiesRequest -> GroupControllerGetCapabilitiesResponse = |_| {
            use csi::group_controller_service_capability::{Rpc, Type};
            let it = Some(Type::Rpc(Rpc { r#type: 1 }));
            let capabilities = vec![csi::GroupControllerServiceCapability { r#type: it }];
            csi::GroupControllerGetCapabilitiesResponse { capabilities }
        },
        create_volume_group_snapshot:
            CreateVolumeGroupSnapshotRequest -> CreateVolumeGroupSnapshotResponse =
            |request| csi::CreateVolumeGroupSnapshotResponse { group_snapshot: group(&request.name) },
        delete_volume_group_snapshot:
            DeleteVolumeGroupSnapshotRequest -> DeleteVolumeGroupSnapshotResponse =
            |_| Default::default(),
        get_volume_group_snapshot: GetVolumeGroupSnapshotRequest -> GetVolumeGroupSnapshotResponse =
            |request| csi::GetVolumeGroupSnapshotResponse {
                group_snapshot: group(&request.group_snapshot_id),
            },
    }
}

impl Node for Answers {
    rpcs! {
        node_get_info: NodeGetInfoRequest -> NodeGetInfoResponse = |_| csi::NodeGetInfoResponse {
            node_id: "node-1".into(),
            max_volumes_per_node: 7,
            accessible_topology: Some(csi::Topology {
                segments: [("zone".to_owned(), "here".to_owned())].into(),
            }),
        },
        node_get_capabilities: NodeGetCapabilitiesRequest -> NodeGetCapabilitiesResponse = |_| {
            use csi::node_service_capability::{Rpc, Type};
            let types = (1..=8).map(|number| Type::Rpc(Rpc { r#type: number }));
            let capability = |it| csi::NodeServiceCapability { r#type: Some(it) };
            csi::NodeGetCapabilitiesResponse { capabilities: types.map(capability).collect() }
        },
        node_stage_volume: NodeStageVolumeRequest -> NodeStageVolumeResponse = |_| Default::default(),
        node_unstage_volume: NodeUnstageVolumeRequest -> NodeUnstageVolumeResponse =
            |_| Default::default(),
        node_publish_volume: NodePublishVolumeRequest -> NodePublishVolumeResponse =
            |_| Default::default(),
        node_unpublish_volume: NodeUnpublishVolumeRequest -> NodeUnpublishVolumeResponse =
            |_| Default::default(),
        node_expand_volume: NodeExpandVolumeRequest -> NodeExpandVolumeResponse =
            |_| csi::NodeExpandVolumeResponse { capacity_bytes: 2 << 30 },
        node_get_volume_stats: NodeGetVolumeStatsRequest -> NodeGetVolumeStatsResponse = |_| {
            let usage = vec![csi::VolumeUsage { available: 60, total: 100, used: 40, unit: 1 }];
            csi::NodeGetVolumeStatsResponse { usage, volume_condition: None }
        },
        node_get_volume_health: NodeGetVolumeHealthRequest -> NodeGetVolumeHealthResponse =
            |_| csi::NodeGetVolumeHealthResponse { volume_health: None },
        node_get_storage_health: NodeGetStorageHealthRequest -> NodeGetStorageHealthResponse =
            |_| Default::default(),
    }
}
