//! What people are told about storage objects of a real API.

use serde_json::{Value, json};
use wharf_testkit::cluster::Cluster;

use crate::support::wharf;

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
