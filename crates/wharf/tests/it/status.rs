//! What people are told about storage objects of a real API.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

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
    // A variable's list counts before the home folder, and the machine itself needs no proxy of the environment.
    let list = format!("{}:/nonexistent", cluster.kubeconfig().display());
    let (ok, said) = run(&[], &[("KUBECONFIG", &list), ("HTTPS_PROXY", "http://127.0.0.1:1")]);
    assert!(ok && said.contains("default/found"), "{said}");
    let (ok, said) = run(&["--context", "no-such"], &[]);
    assert!(!ok && said.contains("no-such"), "{said}");
}
