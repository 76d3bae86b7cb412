//! `wharf status` and `wharf why` on storage objects of a real API.

use std::{
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use serde_json::{Value, json};
use wharf_testkit::cluster::Cluster;

use crate::support::{WHARF, wharf};

async fn cluster_with_claim(name: &str, class: &str) -> Option<&'static Cluster> {
    let cluster = Cluster::shared().await.unwrap()?;
    let claim = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": { "name": name, "namespace": "default" },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": class,
            "resources": { "requests": { "storage": "1Gi" } },
        },
    });
    cluster.apply(&claim).await.unwrap();
    Some(cluster)
}

fn output(cluster: &Cluster, args: &[&str]) -> (bool, String, String) {
    let kubeconfig = cluster.kubeconfig().display().to_string();
    let output = wharf(&[args, &["--kubeconfig", &kubeconfig]].concat());
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.success(), text(output.stdout), text(output.stderr))
}

#[tokio::test]
async fn a_claim_tells_what_it_waits_for() {
    let Some(cluster) = cluster_with_claim("stuck", "no-such-class").await else { return };
    let (ok, told, error) = output(cluster, &["why", "pvc/stuck"]);
    assert!(ok, "{error}");
    assert_eq!(
        told,
        "claim default/stuck: Pending\n  waits for  StorageClass no-such-class does not exist\n  who acts   a person\n"
    );
    let (ok, _, error) = output(cluster, &["why", "pvc/other"]);
    assert!(
        !ok && error.contains("no PersistentVolumeClaim other in namespace default"),
        "{error}"
    );
}

#[tokio::test]
async fn the_status_shows_what_waits() {
    let Some(cluster) = cluster_with_claim("listed", "another-class").await else { return };
    let (ok, told, error) = output(cluster, &["status", "-n", "default", "-o", "json"]);
    assert!(ok, "{error}");
    let findings: Vec<Value> = serde_json::from_str(&told).unwrap();
    let own = findings.iter().find(|it| it["kind"] == "claim" && it["name"] == "listed").unwrap();
    assert_eq!(own["waitsFor"], "StorageClass another-class does not exist");
    assert_eq!((&own["who"], &own["stage"]), (&json!("a person"), &json!("Pending")));
    let (ok, table, error) = output(cluster, &["status", "-n", "default"]);
    assert!(ok, "{error}");
    assert!(table.lines().any(|line| line.starts_with("claim default/listed")), "{table}");
}

#[tokio::test]
async fn a_volumes_last_error_is_told_in_any_namespace() {
    let Some(cluster) = Cluster::shared().await.unwrap() else { return };
    let name = "told-anywhere";
    let volume = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": { "name": name, "finalizers": ["external-provisioner.volume.kubernetes.io/finalizer"] },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": { "storage": "1Gi" },
            "csi": { "driver": "told.example.com", "volumeHandle": "v" },
        },
    });
    cluster.apply(&volume).await.unwrap();
    let uid = cluster.get(&["pv", name]).await.unwrap().unwrap()["metadata"]["uid"].clone();
    let event = json!({
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": { "name": name, "namespace": "default" },
        "type": "Warning",
        "reason": "VolumeFailedDelete",
        "message": "still in use",
        "involvedObject": { "kind": "PersistentVolume", "name": name, "uid": uid },
    });
    cluster.apply(&event).await.unwrap();
    cluster.kubectl(&["delete", "pv", name, "--wait=false"]).await.unwrap();
    let (ok, told, error) = output(cluster, &["status", "-n", "kube-system", "-o", "json"]);
    let freed = r#"{"metadata":{"finalizers":null}}"#;
    cluster.kubectl(&["patch", "pv", name, "--patch", freed]).await.unwrap();
    assert!(ok, "{error}");
    let findings: Vec<Value> = serde_json::from_str(&told).unwrap();
    let own = findings.iter().find(|it| it["name"] == name).unwrap();
    assert_eq!(own["lastError"], "VolumeFailedDelete: still in use");
}

/// Carries one connection after the other to where CONNECT asks for, and counts them.
fn proxy() -> (String, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let (url, count) = (format!("http://{}", listener.local_addr().unwrap()), Arc::default());
    let carried = Arc::clone(&count);
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut request) = (client.unwrap(), Vec::new());
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            let request = String::from_utf8(request).unwrap();
            let server = TcpStream::connect(request.split(' ').nth(1).unwrap()).unwrap();
            assert!(request.starts_with("CONNECT "), "{request}");
            client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
            AtomicUsize::fetch_add(&carried, 1, Ordering::SeqCst);
            for (mut from, mut to) in
                [(client.try_clone().unwrap(), server.try_clone().unwrap()), (server, client)]
            {
                std::thread::spawn(move || drop(std::io::copy(&mut from, &mut to)));
            }
        }
    });
    (url, count)
}

#[tokio::test]
async fn the_cluster_is_found_and_reached_as_kubectl_does() {
    let Some(cluster) = cluster_with_claim("found", "no-class").await else { return };
    let home = tempfile::tempdir().unwrap();
    let own: Value =
        serde_json::from_str(&std::fs::read_to_string(cluster.kubeconfig()).unwrap()).unwrap();
    let (url, carried) = proxy();
    // Two contexts: the current one leads nowhere, the other through a proxy.
    let mut config = own.clone();
    let mut through = own["clusters"][0].clone();
    through["name"] = json!("through");
    through["cluster"]["proxy-url"] = json!(url);
    let mut nowhere = own["clusters"][0].clone();
    nowhere["name"] = json!("nowhere");
    nowhere["cluster"]["server"] = json!("https://127.0.0.1:1");
    config["clusters"] = json!([through, nowhere]);
    let user = own["users"][0]["name"].clone();
    let context =
        |name: &str| json!({ "name": name, "context": { "cluster": name, "user": user } });
    config["contexts"] = json!([context("through"), context("nowhere")]);
    config["current-context"] = json!("nowhere");
    std::fs::create_dir(home.path().join(".kube")).unwrap();
    std::fs::write(home.path().join(".kube/config"), config.to_string()).unwrap();

    let run = |args: &[&str], variables: &[(&str, &str)]| {
        let mut command = std::process::Command::new(WHARF);
        command.args(["status", "--all"]).args(args).env_remove("KUBECONFIG");
        command.env("HOME", home.path()).envs(variables.iter().copied());
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.success(), text(output.stdout) + &text(output.stderr))
    };
    let (ok, said) = run(&[], &[]);
    assert!(!ok && said.contains("Connection refused"), "{said}");
    let (ok, said) = run(&["--context", "through"], &[]);
    assert!(ok && said.contains("default/found"), "{said}");
    assert!(carried.load(Ordering::SeqCst) > 0, "nothing went through the proxy");
    // A variable's list counts before the home folder, and the machine itself needs no proxy of the
    // environment.
    let list = format!("{}:/nonexistent", cluster.kubeconfig().display());
    let (ok, said) = run(&[], &[("KUBECONFIG", &list), ("HTTPS_PROXY", "http://127.0.0.1:1")]);
    assert!(ok && said.contains("default/found"), "{said}");
    let (ok, said) = run(&["--context", "no-such"], &[]);
    assert!(!ok && said.contains("no-such"), "{said}");
}

/// Creates an object, gives it a status, and gives its UID.
async fn made(cluster: &Cluster, object: Value, status: Value) -> String {
    cluster.apply(&object).await.unwrap();
    let name = object["metadata"]["name"].as_str().unwrap();
    let kind = object["kind"].as_str().unwrap();
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or("default");
    let of = ["-n", namespace, kind, name];
    if !status.is_null() {
        let patch = json!({ "status": status }).to_string();
        let arguments = ["--subresource=status", "--type=merge", "--patch", &patch];
        let patched = cluster.kubectl(&[&["patch"][..], &of, &arguments].concat()).await.unwrap();
        assert!(patched.status.success(), "{patched:?}");
    }
    let found = cluster.get(&of).await.unwrap().unwrap();
    found["metadata"]["uid"].as_str().unwrap().to_owned()
}

fn object(kind: &str, version: &str, name: &str, namespace: Option<&str>, spec: &Value) -> Value {
    let metadata = match namespace {
        Some(namespace) => json!({ "name": name, "namespace": namespace }),
        None => json!({ "name": name }),
    };
    json!({ "apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec })
}

fn volume_of(source: &str, value: &Value) -> Value {
    json!({
        "accessModes": ["ReadWriteOnce"],
        "capacity": { "storage": "1Gi" },
        "persistentVolumeReclaimPolicy": "Delete",
        source: value,
    })
}

#[tokio::test]
async fn a_snapshot_and_its_content_tell_what_they_wait_for() {
    let Some(cluster) = cluster_with_claim("snapped", "no-class").await else { return };
    let (ok, _, error) = output(cluster, &["crds", "install"]);
    assert!(ok, "{error}");
    let version = "snapshot.storage.k8s.io/v1";
    let snapshot = json!({
        "source": { "persistentVolumeClaimName": "snapped" },
        "volumeSnapshotClassName": "none",
    });
    let snapshot = object("VolumeSnapshot", version, "taken", Some("default"), &snapshot);
    let uid = made(cluster, snapshot, Value::Null).await;
    let (ok, told, error) = output(cluster, &["why", "vs/taken"]);
    assert!(ok, "{error}");
    let missing = "waits for  VolumeSnapshotClass none does not exist\n  who acts   a person\n";
    let head =
        format!("snapshot default/taken: Pending\n  {missing}claim default/snapped: Pending\n");
    assert!(told.starts_with(&head), "{told}");

    let content = json!({
        "deletionPolicy": "Delete",
        "driver": "why.example.com",
        "source": { "volumeHandle": "h" },
        "volumeSnapshotRef": { "namespace": "default", "name": "taken", "uid": uid },
    });
    let content = object("VolumeSnapshotContent", version, "taken-content", None, &content);
    made(cluster, content, json!({ "readyToUse": false, "error": { "message": "no room" } })).await;
    let (ok, told, error) = output(cluster, &["why", "VolumeSnapshotContents/taken-content"]);
    assert!(ok, "{error}");
    let head = "content taken-content: Pending\n  waits for  driver why.example.com has to take it\n  \
                who acts   snapshotter\n  last error no room\nsnapshot default/taken: Pending\n";
    assert!(told.starts_with(head), "{told}");
}

#[tokio::test]
async fn an_attachment_tells_why_it_is_not_there() {
    let Some(cluster) = Cluster::shared().await.unwrap() else { return };
    let csi = json!({ "driver": "why.example.com", "volumeHandle": "v" });
    let volume = object("PersistentVolume", "v1", "why-va", None, &volume_of("csi", &csi));
    made(cluster, volume, json!({ "phase": "Bound" })).await;
    let spec = json!({
        "attacher": "why.example.com",
        "nodeName": "nowhere",
        "source": { "persistentVolumeName": "why-va" },
    });
    let attachment = object("VolumeAttachment", "storage.k8s.io/v1", "why-va", None, &spec);
    let failed = json!({ "attached": false, "attachError": { "message": "no such node" } });
    made(cluster, attachment, failed).await;
    let (ok, told, error) = output(cluster, &["why", "va/why-va"]);
    assert!(ok, "{error}");
    assert_eq!(
        told,
        "attachment why-va: Attaching\n  \
         waits for  driver why.example.com has not registered on node nowhere\n  who acts   registrar\n  \
         last error no such node\nvolume why-va: Bound\n"
    );
}

#[tokio::test]
async fn a_volume_tells_what_it_waits_for() {
    let Some(cluster) = Cluster::shared().await.unwrap() else { return };
    let csi = json!({ "driver": "why.example.com", "volumeHandle": "v" });
    let volume = object("PersistentVolume", "v1", "why-pv", None, &volume_of("csi", &csi));
    made(cluster, volume, json!({ "phase": "Released" })).await;
    let (ok, told, error) = output(cluster, &["why", "pv/why-pv"]);
    assert!(ok, "{error}");
    let waits = "waits for  driver why.example.com has to delete it\n  who acts   provisioner\n";
    assert_eq!(told, format!("volume why-pv: Released\n  {waits}"));

    let cinder = json!({ "volumeID": "v" });
    let volume =
        object("PersistentVolume", "v1", "why-in-tree", None, &volume_of("cinder", &cinder));
    made(cluster, volume, json!({ "phase": "Released" })).await;
    let (ok, told, error) = output(cluster, &["why", "PersistentVolume/why-in-tree"]);
    assert!(ok, "{error}");
    let wanted = "does not translate volumes of in-tree plugin kubernetes.io/cinder";
    assert!(told.contains(wanted) && told.ends_with("who acts   a person\n"), "{told}");
}

#[tokio::test]
async fn a_pod_tells_of_all_that_it_waits_for() {
    let Some(cluster) = cluster_with_claim("of-pod", "no-class-of-pod").await else { return };
    let claim =
        |name: &str| json!({ "name": name, "persistentVolumeClaim": { "claimName": name } });
    let spec = json!({
        "containers": [{ "name": "c", "image": "none" }],
        "volumes": [claim("of-pod"), claim("of-pod-gone")],
    });
    made(cluster, object("Pod", "v1", "why-pod", Some("default"), &spec), Value::Null).await;
    let (ok, told, error) = output(cluster, &["why", "pods/why-pod", "-n", "default"]);
    assert!(ok, "{error}");
    let missing = "StorageClass no-class-of-pod does not exist";
    assert_eq!(
        told,
        format!(
            "pod default/why-pod: Pending\n  waits for  claim default/of-pod is Pending: {missing}\n  who acts   a person\n\
             claim default/of-pod: Pending\n  waits for  {missing}\n  who acts   a person\n"
        )
    );
}

#[tokio::test]
async fn what_cannot_be_explained_is_an_error() {
    let Some(cluster) = Cluster::shared().await.unwrap() else { return };
    let (ok, _, error) = output(cluster, &["crds", "install"]);
    assert!(ok, "{error}");
    for (subject, wanted) in [
        ("va/none", "there is no VolumeAttachment none\n"),
        ("pv/none", "there is no PersistentVolume none\n"),
        ("vsc/none", "there is no VolumeSnapshotContent none\n"),
        ("vs/none", "there is no VolumeSnapshot none in namespace default\n"),
        ("pod/none", "there is no Pod none in namespace default\n"),
        ("node/none", "expected one of pvc/NAME, pv/NAME, vs/NAME, vsc/NAME, va/NAME, pod/NAME"),
    ] {
        let (ok, _, error) = output(cluster, &["why", subject]);
        assert!(!ok && error.contains(wanted), "{subject}: {error}");
    }
}

/// An API server without objects and without the kinds of snapshots.
fn bare_api() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for client in listener.incoming() {
            let (mut client, mut request) = (client.unwrap(), Vec::new());
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                client.read_exact(&mut byte).unwrap();
                request.push(byte[0]);
            }
            let request = String::from_utf8(request).unwrap();
            let path = request.split(' ').nth(1).unwrap();
            let (status, code) = match path.contains("snapshot.storage.k8s.io") {
                true => ("404 Not Found", 404),
                false => ("200 OK", 200),
            };
            let body = json!({ "code": code, "metadata": {}, "items": [] }).to_string();
            let head =
                format!("HTTP/1.1 {status}\r\nconnection: close\r\ncontent-length: {}", body.len());
            client.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).unwrap();
        }
    });
    url
}

#[test]
fn a_cluster_without_snapshots_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kubeconfig");
    let named = |key: &str, value: Value| json!([{ "name": "bare", key: value }]);
    let config = json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": named("cluster", json!({ "server": bare_api() })),
        "users": named("user", json!({})),
        "contexts": named("context", json!({ "cluster": "bare", "user": "bare" })),
        "current-context": "bare",
    });
    std::fs::write(&path, config.to_string()).unwrap();
    let why = |subject: &str| {
        let output = wharf(&["why", subject, "--kubeconfig", path.to_str().unwrap()]);
        assert!(!output.status.success());
        String::from_utf8(output.stderr).unwrap()
    };
    for (subject, kind) in [("vs/x", "VolumeSnapshot"), ("vsc/x", "VolumeSnapshotContent")] {
        let wanted = format!(
            "there is no {kind} x: this cluster lacks the snapshot CRDs. `wharf crds install` adds them"
        );
        let told = why(subject);
        assert!(told.contains(&wanted), "{told}");
    }
    let told = why("pvc/x");
    assert!(told.contains("there is no PersistentVolumeClaim x in namespace default"), "{told}");
}
