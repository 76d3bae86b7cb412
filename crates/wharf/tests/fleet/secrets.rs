//! Secrets reach the driver in the calls that need them, and nothing else: neither the log at its
//! highest level nor errors.

use serde_json::{Value, json};

use crate::{
    ledger::PASSWORD,
    life::Life,
    program::{Kind, Make, Program},
    sidecar::{Order, Sidecar},
    site::Site,
};

/// What every password begins with, as it is and as the API writes it.
const WORDS: [&str; 2] = ["hush-hush", "aHVzaC1odXNo"];
/// Secrets by what their keys in classes begin with, and the calls that they are for.
const USES: [(&str, &[&str]); 5] = [
    ("provisioner", &["CreateVolume", "DeleteVolume"]),
    ("controller-publish", &["ControllerPublishVolume", "ControllerUnpublishVolume"]),
    ("controller-expand", &["ControllerExpandVolume"]),
    ("controller-modify", &["ControllerModifyVolume"]),
    ("snapshotter", &["CreateSnapshot", "DeleteSnapshot"]),
];
/// What people are told of a call that was refused.
const TOLD: [&str; 6] = [
    "ProvisioningFailed",
    "SnapshotCreationFailed",
    "VolumeResizeFailed",
    "VolumeModifyFailed",
    "SnapshotDeleteError",
    "VolumeFailedDelete",
];
const LISTS: [&str; 7] = [
    "/api/v1/events",
    "/api/v1/persistentvolumeclaims",
    "/api/v1/persistentvolumes",
    "/apis/storage.k8s.io/v1/storageclasses",
    "/apis/storage.k8s.io/v1/volumeattachments",
    "/apis/snapshot.storage.k8s.io/v1/volumesnapshots",
    "/apis/snapshot.storage.k8s.io/v1/volumesnapshotcontents",
];

/// What each call is refused with once.
fn refusal(site: &Site) -> String {
    format!("{} knows you not", site.name)
}

fn password(of: &str) -> String {
    format!("{}-{of}", WORDS[0])
}

/// Secrets, and classes that name them.
pub(crate) async fn declare(site: &Site) {
    for (of, _) in USES {
        let secret =
            json!({ "metadata": { "name": of }, "stringData": { PASSWORD: password(of) } });
        let path = format!("/api/v1/namespaces/{}/secrets", site.name);
        site.api.create(&path, "Secret", secret).await;
    }
    let name_all = |class: &mut Value, of: &[(&str, &[&str])]| {
        for (of, _) in of {
            let key = format!("csi.storage.k8s.io/{of}-secret");
            class["parameters"][format!("{key}-name")] = json!(of);
            class["parameters"][format!("{key}-namespace")] = json!(site.name);
        }
    };
    site.remake_classes(|it| name_all(it, &USES[..4]), |it| name_all(it, &USES[4..])).await;
}

/// What is told and written in a life whose calls are all refused once.
async fn live(site: &Site, fleet: Vec<Sidecar>) -> String {
    for rpc in USES.iter().flat_map(|(_, rpcs)| rpcs.iter()) {
        site.ledger.refuse(rpc, &refusal(site));
    }
    let life = Life::begin(site, "data").await;
    life.attach().await;
    life.snapshot().await;
    life.expand().await;
    life.modify().await;
    let mut text = lists(site).await;
    life.detach().await;
    life.delete_snapshot().await;
    life.end().await;
    let is_told = |events: &Value, reason: &str| {
        // The message or the one who tells it names the driver.
        let own = |it: &Value| it["reason"] == reason && it.to_string().contains(&site.name);
        events["items"].as_array().unwrap().iter().any(own)
    };
    site.api.wait(LISTS[0], |events| TOLD.iter().all(|reason| is_told(events, reason))).await;
    text += &lists(site).await;
    for mut sidecar in fleet {
        sidecar.stop().await;
    }
    site.ledger.assert_clean();
    text
}

async fn lists(site: &Site) -> String {
    let mut text = String::new();
    for path in LISTS {
        text += &site.api.get(path).await.unwrap().to_string();
    }
    text
}

/// What all processes have said, the API server's account of the requests among it.
fn logs(site: &Site) -> String {
    let files = std::fs::read_dir(site.order(Program::Combined, None).folder).unwrap();
    let files = files.map(|file| file.unwrap().path());
    let logs = files.filter(|path| path.extension().is_some_and(|it| it == "log"));
    let all = logs.chain([site.cluster.audit_log()]);
    all.map(|path| std::fs::read_to_string(path).unwrap()).collect()
}

async fn keep(site: &Site, fleet: Vec<Sidecar>) {
    let objects = live(site, fleet).await;
    for (of, rpcs) in USES {
        for rpc in rpcs {
            assert_eq!(site.ledger.passwords(rpc), [password(of)], "{rpc}");
        }
    }
    let (logs, refusal) = (logs(site), refusal(site));
    for (_, rpcs) in USES {
        for rpc in rpcs {
            let method = format!("/csi.v1.Controller/{rpc}");
            for text in ["GRPC call", "GRPC response"] {
                let is_told = |line: &str| line.contains(text) && line.contains(&method);
                assert!(logs.lines().any(is_told), "{text} of {rpc} is not in the log");
            }
        }
    }
    assert!(logs.contains(&refusal) && objects.contains(&refusal), "nothing is told of errors");
    for text in [objects, logs] {
        for word in WORDS {
            let found = text.find(word).map(|at| &text[at.saturating_sub(200)..at]);
            assert_eq!(found, None, "a password is told after that");
        }
    }
}

#[tokio::test]
async fn each_sidecar_keeps_secrets_whatever_it_logs() {
    let Some(site) = Site::with_snapshots("secrets-each").await else { return };
    declare(&site).await;
    let start = |kind| {
        let order = site.order(Program::One(kind, Make::Ours), None);
        Order { more: &["-v=10"], ..order }.start().unwrap()
    };
    let fleet = Kind::ALL.map(start).into();
    keep(&site, fleet).await;
}

#[tokio::test]
async fn one_process_keeps_secrets_whatever_it_logs() {
    let Some(site) = Site::with_snapshots("secrets-joint").await else { return };
    declare(&site).await;
    let more: &[&str] = &["-v=10", "--logging-format=json"];
    let combined = Order { more, ..site.order(Program::Combined, None) }.start().unwrap();
    keep(&site, vec![combined]).await;
}
