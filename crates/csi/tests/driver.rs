//! Tests of the client against a scripted driver.

#![allow(clippy::unwrap_used, reason = "helpers of tests, too, fail by panicking")]

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use tempfile::TempDir;
use tokio::task::JoinSet;
use tonic::{Code, Status};
use wharf_csi::{Driver, DriverOptions, ErrorClass, NodeInfo, class};
use wharf_proto::csi::{
    ControllerGetCapabilitiesResponse, ControllerServiceCapability, GetPluginCapabilitiesResponse,
    NodeGetCapabilitiesResponse, NodeGetInfoResponse, NodeServiceCapability, PluginCapability,
    Topology, controller_service_capability, node_service_capability, plugin_capability,
};
use wharf_testkit::csi_driver::{Answer, DriverScript, ScriptedDriver, Transport};
use wharf_uds::LinkState;

const DEADLINE: Duration = Duration::from_secs(10);
const NAME: &str = "csi.example.com";

struct Fixture {
    _folder: TempDir,
    socket: PathBuf,
}

impl Fixture {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("csi.sock");
        Self { _folder: folder, socket }
    }

    fn serve(&self, script: DriverScript) -> ScriptedDriver {
        ScriptedDriver::serve(&self.socket, script)
    }

    fn driver(&self, options: DriverOptions) -> Driver {
        Driver::new(&self.socket, options)
    }
}

#[tokio::test]
async fn a_driver_tells_who_it_is_and_where_it_stands() {
    let fixture = Fixture::new();
    let segments = [("zone.example.com".to_owned(), "here".to_owned())].into();
    let mut script = DriverScript::new(NAME);
    script.node = NodeGetInfoResponse {
        node_id: "id-1".to_owned(),
        max_volumes_per_node: 7,
        accessible_topology: Some(Topology { segments }),
    };
    let served = fixture.serve(script);
    let driver = fixture.driver(DriverOptions::default());
    assert_eq!(driver.plugin_info().await.unwrap().name, NAME);
    let topology = [("zone.example.com".to_owned(), "here".to_owned())].into();
    let expected = NodeInfo { node_id: "id-1".to_owned(), max_volumes: 7, topology };
    assert_eq!(driver.node_info().await.unwrap(), expected);
    served.change(|script| script.node = NodeGetInfoResponse::default());
    assert_eq!(driver.node_info().await.unwrap(), NodeInfo::default(), "node facts are not kept");
}

#[tokio::test]
async fn a_driver_that_does_not_say_is_ready() {
    let fixture = Fixture::new();
    let served = fixture.serve(DriverScript::new(NAME));
    let driver = fixture.driver(DriverOptions::default());
    for (said, ready) in [(None, true), (Some(true), true), (Some(false), false)] {
        served.change(|script| script.ready = said);
        assert_eq!(driver.probe().await.unwrap(), ready, "{said:?}");
    }
}

/// A driver with one capability of each service.
fn able() -> DriverScript {
    let mut script = DriverScript::new(NAME);
    let service = |number| PluginCapability {
        r#type: Some(plugin_capability::Type::Service(plugin_capability::Service {
            r#type: number,
        })),
    };
    let controller_service = plugin_capability::service::Type::ControllerService;
    script.plugin_capabilities =
        GetPluginCapabilitiesResponse { capabilities: vec![service(controller_service.into())] };
    let attach = controller_service_capability::rpc::Type::PublishUnpublishVolume;
    script.controller_capabilities = ControllerGetCapabilitiesResponse {
        capabilities: vec![ControllerServiceCapability {
            r#type: Some(controller_service_capability::Type::Rpc(
                controller_service_capability::Rpc { r#type: attach.into() },
            )),
        }],
    };
    let rpc = |number| NodeServiceCapability {
        r#type: Some(node_service_capability::Type::Rpc(node_service_capability::Rpc {
            r#type: number,
        })),
    };
    let stage = node_service_capability::rpc::Type::StageUnstageVolume;
    script.node_capabilities =
        NodeGetCapabilitiesResponse { capabilities: vec![rpc(stage.into())] };
    script
}

#[tokio::test]
async fn capabilities_are_asked_once_per_connection() {
    let fixture = Fixture::new();
    let served = fixture.serve(able());
    let driver = fixture.driver(DriverOptions { hold: true, ..DriverOptions::default() });
    driver.connected(DEADLINE).await.unwrap();
    let stage = node_service_capability::rpc::Type::StageUnstageVolume;
    let attach = controller_service_capability::rpc::Type::PublishUnpublishVolume;
    for _again in 0..3 {
        assert!(driver.node_capabilities().await.unwrap().contains(&stage));
        assert!(driver.clone().capabilities().await.unwrap().controller.contains(&attach));
    }
    let rpcs = ["GetPluginCapabilities", "ControllerGetCapabilities", "NodeGetCapabilities"];
    assert_eq!(rpcs.map(|rpc| served.calls(rpc)), [1, 1, 1]);

    // The driver restarts as a version with fewer capabilities.
    let mut link = driver.link();
    let LinkState::Connected { generation: before } = *link.borrow_and_update() else { panic!() };
    served.kill().await;
    let served = fixture.serve(DriverScript::new(NAME));
    let returned = |state: &LinkState| matches!(state, LinkState::Connected { generation } if *generation > before);
    tokio::time::timeout(DEADLINE, link.wait_for(returned)).await.unwrap().unwrap();
    for _again in 0..2 {
        assert!(driver.node_capabilities().await.unwrap().is_empty());
        assert_eq!(driver.capabilities().await.unwrap(), wharf_csi::Capabilities::default());
    }
    assert_eq!(rpcs.map(|rpc| served.calls(rpc)), [1, 0, 1], "no controller, no question to it");
}

#[tokio::test]
async fn those_who_ask_at_once_share_an_answer() {
    let fixture = Fixture::new();
    let served = fixture.serve(able());
    let driver = fixture.driver(DriverOptions { hold: true, ..DriverOptions::default() });
    driver.connected(DEADLINE).await.unwrap();
    let mut asking = JoinSet::new();
    for _each in 0..20 {
        let driver = driver.clone();
        asking
            .spawn(async move { tokio::join!(driver.capabilities(), driver.node_capabilities()) });
    }
    for (plugin, node) in asking.join_all().await {
        assert_eq!((plugin.unwrap().controller.len(), node.unwrap().len()), (1, 1));
    }
    let rpcs = ["GetPluginCapabilities", "ControllerGetCapabilities", "NodeGetCapabilities"];
    assert_eq!(rpcs.map(|rpc| served.calls(rpc)), [1, 1, 1]);
}

#[tokio::test]
async fn those_who_wait_for_one_that_hangs_are_not_held_up() {
    let fixture = Fixture::new();
    let served = fixture.serve(able().with("NodeGetCapabilities", Answer::Never));
    let driver = fixture.driver(DriverOptions { hold: true, ..DriverOptions::default() });
    driver.connected(DEADLINE).await.unwrap();
    let patient = driver.clone();
    let mut first = JoinSet::new();
    first.spawn(async move { patient.node_capabilities().await });
    while served.calls("NodeGetCapabilities") == 0 {
        tokio::task::yield_now().await;
    }
    let hasty = driver.clone().with_timeout(Duration::from_millis(50));
    assert_eq!(hasty.node_capabilities().await.unwrap_err().code(), Code::DeadlineExceeded);
    assert_eq!(served.calls("NodeGetCapabilities"), 1);

    // A caller that gives up frees the lock for the next one.
    served.change(|script| script.answers.clear());
    first.shutdown().await;
    let next = tokio::time::timeout(DEADLINE, driver.node_capabilities()).await;
    assert_eq!(next.unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn a_question_that_failed_is_asked_again() {
    let fixture = Fixture::new();
    let broken = Answer::Error(Status::internal("not now"));
    let served = fixture.serve(able().with("NodeGetCapabilities", broken));
    let driver = fixture.driver(DriverOptions::default());
    assert_eq!(driver.node_capabilities().await.unwrap_err().code(), Code::Internal);
    served.change(|script| script.answers.clear());
    assert_eq!(driver.node_capabilities().await.unwrap().len(), 1);
    assert_eq!(served.calls("NodeGetCapabilities"), 2);
}

#[tokio::test]
async fn a_call_ends_at_its_deadline() {
    let fixture = Fixture::new();
    let _served = fixture.serve(DriverScript::new(NAME).with("NodeGetInfo", Answer::Never));
    let timeout = Duration::from_millis(100);
    let driver = fixture.driver(DriverOptions { timeout, ..DriverOptions::default() });
    let began = Instant::now();
    let status = driver.node_info().await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert!(began.elapsed() >= timeout && began.elapsed() < DEADLINE, "{:?}", began.elapsed());
    assert_eq!(class(&status, true), ErrorClass::Uncertain);
    assert!(driver.probe().await.unwrap(), "the connection is not to blame");
}

#[tokio::test]
async fn errors_keep_code_and_text_and_tell_what_may_have_happened() {
    let fixture = Fixture::new();
    let driver = fixture.driver(DriverOptions::default());
    let absent = driver.node_info().await.unwrap_err();
    assert_eq!(absent.code(), Code::Unavailable);
    assert!(absent.message().contains(fixture.socket.to_str().unwrap()), "{}", absent.message());
    assert_eq!(class(&absent, false), ErrorClass::Transient);

    let refused = Answer::Error(Status::invalid_argument("volume_id: is missing"));
    let served = fixture.serve(DriverScript::new(NAME).with("NodeGetInfo", refused));
    let status = driver.node_info().await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::InvalidArgument, "volume_id: is missing"));
    assert_eq!(class(&status, true), ErrorClass::Final);
    served.stop().await;

    let mut script = DriverScript::new(NAME);
    script.transport = Transport::HangUp;
    let _served = fixture.serve(script);
    let driver = fixture.driver(DriverOptions::default());
    let status = driver.node_info().await.unwrap_err();
    assert_eq!(class(&status, true), ErrorClass::Uncertain, "{status:?}");
}

#[tokio::test]
async fn a_held_connection_is_the_drivers_liveness() {
    let fixture = Fixture::new();
    let driver = fixture.driver(DriverOptions { hold: true, ..DriverOptions::default() });
    let mut link = driver.link();
    let mut reaches = async |what: &str, wanted: fn(&LinkState) -> bool| {
        let reached = tokio::time::timeout(DEADLINE, link.wait_for(wanted)).await;
        reached.unwrap_or_else(|_| panic!("not {what} in time")).unwrap().clone()
    };
    reaches("down", |state| matches!(state, LinkState::Down { .. })).await;
    assert!(!driver.is_connected());
    let mut generations = Vec::new();
    for _life in 0..3 {
        let served = fixture.serve(DriverScript::new(NAME));
        let state =
            reaches("connected", |state| matches!(state, LinkState::Connected { .. })).await;
        let LinkState::Connected { generation } = state else { unreachable!() };
        generations.push(generation);
        assert_eq!(served.calls("Probe"), 0, "nobody is called to learn that");
        served.kill().await;
        reaches("down", |state| !matches!(state, LinkState::Connected { .. })).await;
    }
    assert_eq!(generations, [1, 2, 3]);
}
