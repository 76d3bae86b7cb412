//! `wharf csi` with Kubernetes' mock driver, in Go.

use std::process::Command;

use serde_json::Value;
use wharf_testkit::{peers, process::Process};

use crate::support::{Bench, PATIENCE, WHARF, exists};

#[tokio::test]
async fn a_volumes_life_on_the_go_mock_driver() {
    let Some(mock) = peers::binary("mock-csi-driver") else { return };
    let bench = Bench::new();
    let socket = bench.path("csi.sock");
    let mut command = Command::new(mock);
    command.arg("--endpoint").arg(&socket);
    command.args(["--driver-name", "go.example.com", "--node-id", "go-node"]);
    let mut driver = Process::start("driver", &command, bench.folder.path()).unwrap();
    driver.ready(PATIENCE, "the driver's socket", || exists(&socket)).await.unwrap();

    let run = |line: &str| {
        let endpoint = format!("unix://{}", socket.display());
        let mut command = Command::new(WHARF);
        command.arg("csi").args(line.split(' ')).args(["-o", "json", "--endpoint", &endpoint]);
        let output = command.output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{line}: {output:?}");
        serde_json::from_slice::<Value>(&output.stdout).unwrap()
    };
    let info = run("info");
    assert_eq!(
        (&info["name"], &info["node"]["node_id"]),
        (&"go.example.com".into(), &"go-node".into())
    );
    let caps = run("caps");
    assert!(
        caps["controller"].as_array().unwrap().contains(&"CREATE_DELETE_VOLUME".into()),
        "{caps}"
    );
    let made = run("create night --size 1Gi --fs ext4");
    let id = made["volume"]["volume_id"].as_str().unwrap().to_owned();
    let listed = run("ls");
    let ids: Vec<_> = listed["entries"]
        .as_array()
        .unwrap()
        .iter()
        .map(|entry| &entry["volume"]["volume_id"])
        .collect();
    assert!(ids.contains(&&Value::from(id.as_str())), "{listed}");
    // For publishing, the mock goes by its driver name.
    run(&format!("publish {id} --node go.example.com"));
    run(&format!("unpublish {id} --node go.example.com"));
    let snapshot = run(&format!("snap create dusk --volume {id}"));
    let snapshot = snapshot["snapshot"]["snapshot_id"].as_str().unwrap().to_owned();
    run(&format!("snap ls --volume {id}"));
    run(&format!("snap rm {snapshot}"));
    run(&format!("rm {id}"));
    let left = run("ls");
    assert!(!left.to_string().contains(&format!("\"volume_id\":\"{id}\"")), "{left}");
}
