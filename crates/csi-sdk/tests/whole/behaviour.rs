//! Behavior that the SDK adds to a driver.

use std::time::Duration;

use prometheus_client::registry::Registry;
use tonic::Code;
use wharf_csi_sdk::{DriverMetrics, Plugin, Readiness, Services};
use wharf_proto::csi::{
    CapacityRange, ControllerExpandVolumeRequest, CreateSnapshotRequest, CreateVolumeRequest,
    DeleteVolumeRequest, GetPluginCapabilitiesRequest, NodePublishVolumeRequest, ProbeRequest,
    Topology, TopologyRequirement, VolumeCapability, VolumeContentSource,
    controller_client::ControllerClient,
    identity_client::IdentityClient,
    node_client::NodeClient,
    volume_capability::{AccessMode, AccessType, MountVolume, access_mode::Mode},
    volume_content_source,
};

use crate::{driver::Memory, serving::Serving};

const MIB: i64 = 1 << 20;
const PATIENCE: Duration = Duration::from_secs(20);

fn mounted(mode: Mode) -> VolumeCapability {
    VolumeCapability {
        access_type: Some(AccessType::Mount(MountVolume::default())),
        access_mode: Some(AccessMode { mode: mode.into() }),
    }
}

fn volume(name: &str) -> CreateVolumeRequest {
    CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes: MIB, limit_bytes: 0 }),
        volume_capabilities: vec![mounted(Mode::SingleNodeWriter)],
        ..Default::default()
    }
}

/// A requirement for the place of this node.
fn at(node: &str) -> Option<TopologyRequirement> {
    let key = "topology.whole.example.com/node".to_owned();
    let place = Topology { segments: [(key, node.to_owned())].into() };
    Some(TopologyRequirement { requisite: vec![place], preferred: Vec::new() })
}

#[tokio::test]
async fn a_name_gives_one_volume_for_one_request() {
    let serving = Serving::all(&Memory::new().plugin().build().unwrap());
    let mut client = ControllerClient::new(serving.channel("csi.sock"));
    let first = client.create_volume(volume("a")).await.unwrap().into_inner().volume.unwrap();

    let wider = CapacityRange { required_bytes: 1, limit_bytes: 2 * MIB };
    for same in [
        volume("a"),
        CreateVolumeRequest { capacity_range: Some(wider), ..volume("a") },
        CreateVolumeRequest { capacity_range: None, ..volume("a") },
        CreateVolumeRequest { accessibility_requirements: at("node-1"), ..volume("a") },
        CreateVolumeRequest { secrets: [("a".into(), "b".into())].into(), ..volume("a") },
    ] {
        let found = client.create_volume(same).await.unwrap().into_inner().volume.unwrap();
        assert_eq!(found, first);
    }

    let larger = CapacityRange { required_bytes: 2 * MIB, limit_bytes: 0 };
    let source = volume_content_source::VolumeSource { volume_id: first.volume_id.clone() };
    let source = volume_content_source::Type::Volume(source);
    let source = VolumeContentSource { r#type: Some(source) };
    for (other, part) in [
        (CreateVolumeRequest { capacity_range: Some(larger), ..volume("a") }, "capacity range"),
        (
            CreateVolumeRequest {
                volume_capabilities: vec![mounted(Mode::MultiNodeMultiWriter)],
                ..volume("a")
            },
            "volume capabilities",
        ),
        (
            CreateVolumeRequest { parameters: [("a".into(), "b".into())].into(), ..volume("a") },
            "the parameters",
        ),
        (
            CreateVolumeRequest {
                mutable_parameters: [("tier".into(), "fast".into())].into(),
                ..volume("a")
            },
            "mutable parameters",
        ),
        (CreateVolumeRequest { volume_content_source: Some(source), ..volume("a") }, "source"),
        (CreateVolumeRequest { accessibility_requirements: at("x"), ..volume("a") }, "accessib"),
    ] {
        let refused = client.create_volume(other).await.unwrap_err();
        assert_eq!(refused.code(), Code::AlreadyExists, "{part}");
        assert!(refused.message().contains(part), "{part}: {}", refused.message());
        assert!(refused.message().contains(&first.volume_id), "{}", refused.message());
    }
    serving.end().await;
}

#[tokio::test]
async fn what_was_begun_goes_on_without_its_caller() {
    let memory = Memory::new();
    let serving = Serving::all(&memory.plugin().build().unwrap());
    let mut client = ControllerClient::new(serving.channel("csi.sock"));
    let made = client.create_volume(volume("a")).await.unwrap().into_inner().volume.unwrap();
    let volume_id = made.volume_id;
    let held = memory.deletes.forget_permits(usize::MAX);

    let delete = DeleteVolumeRequest { volume_id: volume_id.clone(), ..Default::default() };
    let impatient = wharf_uds::timed(delete.clone(), Duration::from_millis(50));
    let given_up = client.delete_volume(impatient).await.unwrap_err();
    assert_eq!(given_up.code(), Code::DeadlineExceeded);
    let expand = ControllerExpandVolumeRequest {
        volume_id: volume_id.clone(),
        capacity_range: Some(CapacityRange { required_bytes: 2 * MIB, limit_bytes: 0 }),
        ..Default::default()
    };
    let refused = client.controller_expand_volume(expand).await.unwrap_err();
    assert_eq!(refused.code(), Code::Aborted);
    assert!(refused.message().contains("DeleteVolume"), "{}", refused.message());

    // Stop the driver while the operation runs.
    let (mut joins, stopping) = (client.clone(), serving.stop.clone());
    let joined = joins.delete_volume(delete);
    let release = async {
        stopping.cancel();
        memory.deletes.add_permits(held);
    };
    let (joined, ()) = tokio::join!(joined, release);
    assert!(joined.is_ok() || joined.unwrap_err().code() == Code::Unavailable);
    serving.end().await;
    assert!(memory.state().volumes.is_empty());
}

#[tokio::test]
async fn a_panic_is_the_failure_of_one_call() {
    let serving = Serving::all(&Memory::new().plugin().build().unwrap());
    let mut client = ControllerClient::new(serving.channel("csi.sock"));
    for _ in 0..2 {
        let bug = DeleteVolumeRequest { volume_id: "panic".to_owned(), ..Default::default() };
        let failed = client.delete_volume(bug).await.unwrap_err();
        assert_eq!(failed.code(), Code::Internal);
        assert!(!failed.message().contains("bug"), "{}", failed.message());
    }
    client.create_volume(volume("a")).await.unwrap();
    serving.end().await;
}

#[tokio::test]
async fn what_is_not_handed_in_is_not_there() {
    let memory = Memory::new();
    let plugin = Plugin::builder("part.csi.example.com", "1.0.0")
        .volumes(memory.clone())
        .volume_list(memory.clone())
        .node(memory.clone())
        .build()
        .unwrap();
    let serving = Serving::all(&plugin);
    let mut client = ControllerClient::new(serving.channel("csi.sock"));
    let capabilities =
        client.controller_get_capabilities(wharf_proto::csi::ControllerGetCapabilitiesRequest {});
    // CREATE_DELETE_VOLUME, CLONE_VOLUME, LIST_VOLUMES and VOLUME_CONDITION. Without Attachments no
    // volume is published to a node, so LIST_VOLUMES_PUBLISHED_NODES is missing although the driver
    // declares it.
    assert_eq!(capabilities.await.unwrap().into_inner().capabilities.len(), 4);
    let snapshot = client.create_snapshot(CreateSnapshotRequest::default()).await.unwrap_err();
    assert_eq!(snapshot.code(), Code::Unimplemented);
    assert_eq!(snapshot.message(), "this driver does not offer CreateSnapshot");

    for (refused, field) in [
        (
            CreateVolumeRequest {
                volume_capabilities: vec![mounted(Mode::SingleNodeMultiWriter)],
                ..volume("a")
            },
            "volume_capabilities[0].access_mode.mode",
        ),
        (
            CreateVolumeRequest {
                mutable_parameters: [("tier".into(), "fast".into())].into(),
                ..volume("a")
            },
            "mutable_parameters",
        ),
    ] {
        let refused = client.create_volume(refused).await.unwrap_err();
        assert_eq!(refused.code(), Code::InvalidArgument);
        assert!(refused.message().starts_with(field), "{}", refused.message());
    }
    serving.end().await;
}

#[tokio::test]
async fn every_socket_tells_the_same_of_the_plugin() {
    let sockets = [("node.sock", Services::Node), ("controller.sock", Services::Controller)];
    let serving = Serving::start(&Memory::new().plugin().build().unwrap(), &sockets);
    let mut told = Vec::new();
    for (name, _) in sockets {
        let mut client = IdentityClient::new(serving.channel(name));
        let request = GetPluginCapabilitiesRequest {};
        told.push(client.get_plugin_capabilities(request).await.unwrap().into_inner());
    }
    assert_eq!(told[0], told[1]);
    // Four services and the expansion mode.
    assert_eq!(told[0].capabilities.len(), 5);
    let mut misled = NodeClient::new(serving.channel("controller.sock"));
    let info = misled.node_get_info(wharf_proto::csi::NodeGetInfoRequest {}).await.unwrap_err();
    assert_eq!(info.code(), Code::Unimplemented);
    serving.end().await;
}

#[tokio::test]
async fn a_probe_tells_readiness() {
    let readiness = Readiness::starting();
    let plugin = Memory::new().plugin().readiness(readiness.clone()).build().unwrap();
    let serving = Serving::all(&plugin);
    let mut client = IdentityClient::new(serving.channel("csi.sock"));
    let probe = client.probe(ProbeRequest {}).await.unwrap().into_inner();
    assert_eq!(probe.ready, Some(false));
    readiness.set_ready();
    let probe = client.probe(ProbeRequest {}).await.unwrap().into_inner();
    assert_eq!(probe.ready, Some(true));
    readiness.set_failing("the pool is gone");
    let failed = client.probe(ProbeRequest {}).await.unwrap_err();
    assert_eq!((failed.code(), failed.message()), (Code::FailedPrecondition, "the pool is gone"));
    tokio::time::timeout(PATIENCE, serving.end()).await.unwrap();
}

#[tokio::test]
async fn calls_are_counted() {
    let mut registry = Registry::default();
    let metrics = DriverMetrics::register(&mut registry);
    let serving = Serving::all(&Memory::new().plugin().metrics(metrics).build().unwrap());
    let mut client = ControllerClient::new(serving.channel("csi.sock"));
    client.create_volume(volume("a")).await.unwrap();
    client.create_volume(volume("")).await.unwrap_err();
    let mut text = String::new();
    prometheus_client::encoding::text::encode(&mut text, &registry).unwrap();
    for code in ["OK", "InvalidArgument"] {
        let line = format!(
            "csi_driver_operations_seconds_count{{method=\"/csi.v1.Controller/CreateVolume\",\
             grpc_status_code=\"{code}\"}} 1"
        );
        assert!(text.lines().any(|found| found == line), "no {line} in\n{text}");
    }
    serving.end().await;
}

#[tokio::test]
async fn only_a_volume_of_a_pod_is_published_unstaged() {
    let serving = Serving::all(&Memory::new().plugin().build().unwrap());
    let mut client = NodeClient::new(serving.channel("csi.sock"));
    let unstaged = NodePublishVolumeRequest {
        volume_id: "v".to_owned(),
        target_path: "/no/such/target".to_owned(),
        volume_capability: Some(mounted(Mode::SingleNodeWriter)),
        ..Default::default()
    };
    let refused = client.node_publish_volume(unstaged.clone()).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition);
    assert!(refused.message().starts_with("staging_target_path"), "{}", refused.message());
    let ephemeral = [("csi.storage.k8s.io/ephemeral".to_owned(), "true".to_owned())];
    let ephemeral = NodePublishVolumeRequest { volume_context: ephemeral.into(), ..unstaged };
    // The request passes the SDK; the driver does not know the volume.
    let absent = client.node_publish_volume(ephemeral).await.unwrap_err();
    assert_eq!(absent.code(), Code::NotFound);
    serving.end().await;
}
