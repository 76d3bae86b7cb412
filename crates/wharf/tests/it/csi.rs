//! `wharf csi`, command by command: the calls to the driver, and the output.

use std::{
    path::Path,
    process::{Command, Output},
};

use serde_json::{Value, json};
use wharf_testkit::csi_driver::{Answer, DriverScript, ScriptedDriver, Transport};

use crate::{csi_driver::Recorder, support::WHARF};

fn csi(socket: &Path, args: &[&str]) -> Output {
    let mut command = Command::new(WHARF);
    command.arg("csi").args(args).env("CSI_ENDPOINT", socket).output().unwrap()
}

/// What a command prints for people.
fn table(socket: &Path, args: &[&str]) -> String {
    let output = csi(socket, args);
    assert_eq!(output.status.code(), Some(0), "{args:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// What it prints for programs.
fn document(socket: &Path, args: &[&str]) -> Value {
    let text = table(socket, &[args, &["-o", "json"]].concat());
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{args:?}: {error} in\n{text}"))
}

/// The exit code and the last word of a command that fails.
fn failure(socket: &Path, args: &[&str]) -> (i32, String) {
    let output = csi(socket, args);
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn every_command_makes_its_call() {
    let driver = Recorder::start();
    // The command, the RPC that it makes, a part of the request, and a part of what people see.
    let commands: &[(&str, &str, &str, &str)] = &[
        ("info", "GetPluginInfo", "", "recorder.example.com"),
        ("info", "Probe", "", "ready"),
        ("info", "NodeGetInfo", "", "node.accessible_topology.segments  zone=here"),
        ("caps", "GetPluginCapabilities", "", "GROUP_CONTROLLER_SERVICE"),
        ("caps", "ControllerGetCapabilities", "", "\n                  99\n"),
        ("caps", "GroupControllerGetCapabilities", "", "CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT"),
        ("caps", "NodeGetCapabilities", "", "GET_STORAGE_HEALTH"),
        (
            "capacity --param a=b --topology zone=here",
            "GetCapacity",
            "{\"zone\": \"here\"}",
            "5368709120 (5Gi)",
        ),
        (
            "create data --size 1Gi --limit 2Gi",
            "CreateVolume",
            "required_bytes: 1073741824, limit_bytes: 2147483648",
            "1073741824 (1Gi)",
        ),
        (
            "create data --size 1 --fs xfs --mount-flag noatime",
            "CreateVolume",
            "fs_type: \"xfs\"",
            "data",
        ),
        (
            "create data --size 1 --block --mode multi-node-multi-writer",
            "CreateVolume",
            "mode: MultiNodeMultiWriter",
            "data",
        ),
        (
            "create data --size 1 --param a=b --mutable c=d",
            "CreateVolume",
            "mutable_parameters: {\"c\": \"d\"}",
            "data",
        ),
        (
            "create data --size 1 --from-snapshot s-9",
            "CreateVolume",
            "snapshot_id: \"s-9\"",
            "data",
        ),
        ("create data --size 1 --from-volume v-9", "CreateVolume", "volume_id: \"v-9\"", "data"),
        (
            "create data --size 1 --topology zone=here",
            "CreateVolume",
            "requisite: [Topology { segments: {\"zone\"",
            "data",
        ),
        ("ls", "ListVolumes", "starting_token: \"2\"", "volume-2  1Gi   node-1, node-2"),
        ("get volume-1", "ControllerGetVolume", "volume-1", "volume-1"),
        ("rm volume-1", "DeleteVolume", "volume-1", "Volume volume-1 is deleted."),
        (
            "validate volume-1 --fs ext4 --context a=b",
            "ValidateVolumeCapabilities",
            "volume_context: {\"a\": \"b\"}",
            "supports this",
        ),
        (
            "publish volume-1 --node node-1 --readonly",
            "ControllerPublishVolume",
            "readonly: true",
            "publish_context  device=vdb",
        ),
        (
            "unpublish volume-1",
            "ControllerUnpublishVolume",
            "node_id: \"\"",
            "detached from all nodes",
        ),
        (
            "unpublish volume-1 --node node-1",
            "ControllerUnpublishVolume",
            "node_id: \"node-1\"",
            "detached from node-1",
        ),
        (
            "stage volume-1 --path /staging --context a=b --publish-context c=d",
            "NodeStageVolume",
            "publish_context: {\"c\": \"d\"}",
            "staged at /staging",
        ),
        ("unstage volume-1 --path /staging", "NodeUnstageVolume", "/staging", "no longer staged"),
        (
            "mount volume-1 --target /t --staging /staging --readonly",
            "NodePublishVolume",
            "staging_target_path: \"/staging\", target_path: \"/t\"",
            "is at /t",
        ),
        (
            "umount volume-1 --target /t",
            "NodeUnpublishVolume",
            "target_path: \"/t\"",
            "no longer at /t",
        ),
        (
            "stats volume-1 --path /t",
            "NodeGetVolumeStats",
            "volume_path: \"/t\"",
            "BYTES  100    40    60",
        ),
        (
            "expand volume-1 --size 2Gi",
            "ControllerExpandVolume",
            "required_bytes: 2147483648",
            "wharf csi grow volume-1 --path PATH",
        ),
        (
            "grow volume-1 --path /t --size 2Gi",
            "NodeExpandVolume",
            "required_bytes: 2147483648",
            "2147483648 (2Gi)",
        ),
        (
            "modify volume-1 --mutable wiops=5",
            "ControllerModifyVolume",
            "{\"wiops\": \"5\"}",
            "is modified",
        ),
        (
            "snap create s --volume volume-1 --param a=b",
            "CreateSnapshot",
            "source_volume_id: \"volume-1\"",
            "67108864 (64Mi)",
        ),
        (
            "snap ls --volume volume-1",
            "ListSnapshots",
            "source_volume_id: \"volume-1\"",
            "s-1  volume-1  64Mi",
        ),
        ("snap get s-1", "GetSnapshot", "s-1", "ready_to_use"),
        ("snap rm s-1", "DeleteSnapshot", "s-1", "Snapshot s-1 is deleted."),
        (
            "group create g --volume a --volume b",
            "CreateVolumeGroupSnapshot",
            "[\"a\", \"b\"]",
            "snapshots[1].snapshot_id",
        ),
        ("group get g --snapshot s-1", "GetVolumeGroupSnapshot", "[\"s-1\"]", "group_snapshot_id"),
        (
            "group rm g --snapshot s-1",
            "DeleteVolumeGroupSnapshot",
            "[\"s-1\"]",
            "Group snapshot g is deleted.",
        ),
        ("health", "ControllerListVolumeHealth", "", "DEGRADED  SlowDisk"),
        ("health", "NodeGetStorageHealth", "", "volume-1"),
        ("health volume-3", "ControllerGetVolumeHealth", "volume-3", "it is \\u{1b}[31mslow"),
        (
            "health volume-3 --path /t",
            "NodeGetVolumeHealth",
            "volume_publish_path: \"/t\"",
            "volume-3",
        ),
    ];
    for (command, rpc, request, shown) in commands {
        let args: Vec<&str> = command.split(' ').collect();
        let text = table(&driver.socket(), &args);
        assert!(text.contains(shown), "{command}: {shown:?} is not in\n{text}");
        let asked = driver.asked(rpc);
        let last = asked.last().unwrap_or_else(|| panic!("{command}: {rpc} was not called"));
        assert!(
            last.request.contains(request),
            "{command}: {request:?} is not in {}",
            last.request
        );
        assert!(document(&driver.socket(), &args).is_object(), "{command}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn documents_have_the_field_names_of_csi() {
    let driver = Recorder::start();
    let socket = driver.socket();
    let info = document(&socket, &["info"]);
    assert_eq!(info["name"], "recorder.example.com");
    assert_eq!(info["ready"], true);
    assert_eq!(info["node"]["max_volumes_per_node"], 7);
    let caps = document(&socket, &["caps"]);
    assert_eq!(caps["volume_expansion"], json!(["ONLINE"]));
    assert_eq!(caps["controller"].as_array().unwrap().last(), Some(&json!(99)));
    let capacity = document(&socket, &["capacity"]);
    assert_eq!(
        capacity,
        json!({ "available_capacity": 5_u64 << 30, "maximum_volume_size": 1 << 30 })
    );
    let volumes = document(&socket, &["ls"]);
    let ids: Vec<_> = volumes["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|it| &it["volume"]["volume_id"])
        .collect();
    assert_eq!(ids, ["volume-0", "volume-1", "volume-2"]);
    assert_eq!(volumes["next_token"], "");
    let page = document(&socket, &["ls", "--limit", "1", "--token", "1"]);
    assert_eq!(
        (&page["entries"][0]["volume"]["volume_id"], &page["next_token"]),
        (&json!("volume-1"), &json!("2"))
    );
    let stats = document(&socket, &["stats", "v", "--path", "/t"]);
    assert_eq!(
        stats["usage"][0],
        json!({ "unit": "BYTES", "total": 100, "used": 40, "available": 60 })
    );
    let health = document(&socket, &["health", "v"]);
    assert_eq!(health["findings"][0]["status"], "DEGRADED");
    assert_eq!(health["controller_get_volume_health"]["volume_health"]["volume_id"], "v");
    assert_eq!(document(&socket, &["rm", "v"]), json!({}));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn secrets_reach_the_driver_and_nobody_else() {
    let driver = Recorder::start();
    let file = driver.folder.path().join("secrets");
    std::fs::write(&file, "token=tuna-fish\n").unwrap();
    let file = file.to_str().unwrap();
    for output in ["table", "json"] {
        // The driver answers its secrets as the volume's context.
        let args = [
            "create",
            "v",
            "--size",
            "1",
            "-v",
            "-o",
            output,
            "--secret",
            "password=hunter2",
            "--secrets-file",
            file,
        ];
        let output = csi(&driver.socket(), &args);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let printed = String::from_utf8([output.stdout, output.stderr].concat()).unwrap();
        assert!(printed.contains("CreateVolume") && printed.contains("password"), "{printed}");
        for secret in ["hunter2", "tuna-fish"] {
            assert!(!printed.contains(secret), "{printed}");
            let sent = &driver.asked("CreateVolume").last().unwrap().bytes.clone();
            assert!(sent.windows(secret.len()).any(|bytes| bytes == secret.as_bytes()), "{secret}");
        }
    }
    let (code, text) = failure(&driver.socket(), &["rm", "v", "--secret", "hunter2"]);
    assert_eq!(code, 2);
    assert!(text.contains("--secret number 1") && !text.contains("hunter2"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_list_without_an_end_and_a_volume_that_does_not_fit_are_failures() {
    let driver = Recorder::start();
    let (code, text) = failure(&driver.socket(), &["ls", "--token", "forever"]);
    assert_eq!(code, 1);
    assert!(text.contains("next_token \"forever\" came twice"), "{text}");
    let output = csi(&driver.socket(), &["validate", "volume-2"]);
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.contains("does not support this: no such filesystem"), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_missing_capability_is_named_before_the_call() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("csi.sock");
    let driver = ScriptedDriver::serve(&socket, DriverScript::new("poor.example.com"));
    for (command, rpc, capability) in [
        ("create v --size 1", "CreateVolume", "controller capability CREATE_DELETE_VOLUME"),
        ("stage v --path /s", "NodeStageVolume", "node capability STAGE_UNSTAGE_VOLUME"),
        (
            "group get g",
            "GetVolumeGroupSnapshot",
            "group controller capability CREATE_DELETE_GET_VOLUME_GROUP_SNAPSHOT",
        ),
        ("validate v", "ValidateVolumeCapabilities", "plugin capability CONTROLLER_SERVICE"),
        ("snap get s", "GetSnapshot", "GET_SNAPSHOT. `wharf csi snap ls --id ID`"),
        ("mount v --target /t --staging /s", "NodePublishVolume", "STAGE_UNSTAGE_VOLUME"),
        (
            "mount v --target /t --mode single-node-single-writer",
            "NodePublishVolume",
            "SINGLE_NODE_MULTI_WRITER",
        ),
        ("health", "ControllerListVolumeHealth", "LIST_VOLUME_HEALTH"),
    ] {
        let args: Vec<&str> = command.split(' ').collect();
        let (code, text) = failure(&socket, &args);
        assert_eq!(code, 1, "{command}: {text}");
        assert!(text.contains(&format!("{rpc} was not called")), "{command}: {text}");
        assert!(text.contains(capability), "{command}: {text}");
        assert_eq!(driver.calls(rpc), 0, "{command}");
    }
    let (code, text) = failure(&socket, &["create", "v", "--size", "1", "--force"]);
    assert_eq!((code, driver.calls("CreateVolume")), (1, 1), "{text}");
    assert!(text.contains("CreateVolume failed with Unimplemented"), "{text}");
    // What needs no capability is called, and a driver without a node service is no broken one.
    let unimplemented = Answer::Error(tonic::Status::unimplemented("no node here"));
    driver.change(|script| *script = script.clone().with("NodeGetInfo", unimplemented));
    assert_eq!(document(&socket, &["info"])["node"], Value::Null);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_refusal_shows_code_and_message_and_no_secret() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("csi.sock");
    let busy = tonic::Status::failed_precondition("busy at\n/mnt; password hunter2 was right");
    let script =
        DriverScript::new("strict.example.com").with("NodeUnpublishVolume", Answer::Error(busy));
    let driver = ScriptedDriver::serve(&socket, script);
    let umount = ["umount", "v", "--target", "/t", "--secret", "password=hunter2"];
    let (code, text) = failure(&socket, &umount);
    assert_eq!(code, 1);
    let line = "NodeUnpublishVolume failed with FailedPrecondition: busy at\\n/mnt; password ***stripped***";
    assert!(text.contains(line) && !text.contains("hunter2"), "{text}");

    let full = Answer::Error(tonic::Status::resource_exhausted("the pool is full"));
    driver.change(|script| *script = script.clone().with("NodeUnpublishVolume", full.clone()));
    let (_, text) = failure(&socket, &umount);
    assert!(text.trim_end().ends_with("ResourceExhausted: the pool is full"), "{text}");

    driver.change(|script| *script = script.clone().with("NodeUnpublishVolume", Answer::Never));
    let (code, text) = failure(&socket, &[&umount[..], &["--timeout", "300ms"]].concat());
    assert_eq!(code, 1);
    assert!(
        text.contains("DeadlineExceeded") && text.contains("may still work on the call"),
        "{text}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_driver_that_cannot_be_reached_is_no_refusal() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("csi.sock");
    let (code, text) = failure(&socket, &["info"]);
    assert_eq!(code, 3);
    assert!(text.contains("not reachable") && text.contains("csi.sock"), "{text}");
    let script =
        DriverScript { transport: Transport::Mute, ..DriverScript::new("mute.example.com") };
    let driver = ScriptedDriver::serve(&socket, script);
    let (code, text) = failure(&socket, &["ls", "--timeout", "300ms"]);
    assert_eq!(code, 3, "{text}");
    assert!(text.contains("does not accept calls"), "{text}");
    // Once the call is on its way, nobody knows how far it got.
    driver.change(|script| script.transport = Transport::HangUp);
    let (code, text) = failure(&socket, &["umount", "v", "--target", "/t"]);
    assert_eq!(code, 1, "{text}");
    assert!(
        text.contains("was interrupted") && text.contains("may still work on the call"),
        "{text}"
    );
}

#[test]
fn mistakes_exit_with_2_and_name_the_flag() {
    for (args, expected) in [
        ("csi info", "--endpoint"),
        ("csi info --endpoint tcp://1.2.3.4:5", "--endpoint"),
        ("csi info --endpoint unix:relative.sock", "relative"),
        ("csi info --endpoint /x --timeout 0s", "--timeout"),
        ("csi info --endpoint /x --secrets-file /nonexistent/s", "--secrets-file /nonexistent/s"),
        ("csi create v --endpoint /x", "--size"),
        ("csi create v --size 1GiB --endpoint /x", "64Mi, 1Gi or 1G"),
        ("csi create v --size 1 --block --fs ext4 --endpoint /x", "--fs"),
        (
            "csi create v --size 1 --from-volume a --from-snapshot b --endpoint /x",
            "--from-snapshot",
        ),
        ("csi create v --size 1 --param a --endpoint /x", "KEY=VALUE"),
        ("csi create v --size 1 --mode any --endpoint /x", "single-node-writer"),
        ("csi modify v --endpoint /x", "--mutable"),
        ("csi ls --limit 0 --endpoint /x", "--limit"),
        ("csi health --path /t --endpoint /x", "--path"),
        ("csi frobnicate --endpoint /x", "frobnicate"),
    ] {
        let mut command = Command::new(WHARF);
        let output = command.args(args.split(' ')).env_remove("CSI_ENDPOINT").output().unwrap();
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args}: {text}");
        assert!(text.contains(expected), "{args}: {text}");
    }
}
