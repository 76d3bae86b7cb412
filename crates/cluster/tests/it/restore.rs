//! An etcd that is restored from a backup while its objects are watched.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use http::Request;
use kube::Client;
use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;
use wharf_cluster::{Kind, Node, Store, Watch};
use wharf_testkit::cluster::{Cluster, Versions};

const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_watch_goes_back_with_an_etcd_that_is_restored() {
    go_back(Versions::New).await;
}

#[tokio::test]
async fn a_watch_goes_back_with_an_etcd_whose_versions_do() {
    go_back(Versions::Again).await;
}

async fn go_back(versions: Versions) {
    let Some(mut cluster) = Cluster::builder().start().await.unwrap() else { return };
    cluster.apply_all(&[node("changed", "before"), node("deleted", "before")]).await.unwrap();
    let client = wharf_cluster::connect(Some(cluster.kubeconfig())).await.unwrap();
    let store = Store::<Node>::new(|_| true);
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(Watch::new(client.clone(), Arc::clone(&store)).run(stop.clone()));
    shows(&store, &[("changed", "before"), ("deleted", "before")]).await;

    let backup = cluster.folder().join("backup.db");
    cluster.back_up(&backup).await.unwrap();
    // Versions that the servers do not reach by themselves when they start.
    for number in 0..300 {
        count(&client, "changed", number).await;
    }
    cluster.apply_all(&[node("changed", "after"), node("made", "after")]).await.unwrap();
    assert!(cluster.kubectl(&["delete", "node", "deleted"]).await.unwrap().status.success());
    shows(&store, &[("changed", "after"), ("made", "after")]).await;

    cluster.restore(&backup, versions).await.unwrap();
    shows(&store, &[("changed", "before"), ("deleted", "before")]).await;
    // The watch continues from there.
    cluster.apply(&node("changed", "again")).await.unwrap();
    shows(&store, &[("changed", "again"), ("deleted", "before")]).await;

    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
    cluster.stop().await.unwrap();
}

/// A node with a label that contains the time of the write.
fn node(name: &str, written: &str) -> Value {
    let metadata = json!({ "name": name, "labels": { "written": written } });
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata })
}

async fn count(client: &Client, name: &str, number: u32) {
    let patch = json!({ "metadata": { "labels": { "count": number.to_string() } } });
    let request = Request::patch(format!("/api/v1/nodes/{name}"))
        .header("content-type", "application/merge-patch+json");
    let request = request.body(patch.to_string().into_bytes()).unwrap();
    client.request::<Value>(request).await.unwrap();
}

/// Waits until the store has exactly these nodes.
async fn shows(store: &Arc<Store<Node>>, wanted: &[(&str, &str)]) {
    let wanted: BTreeMap<_, _> =
        wanted.iter().map(|&(name, written)| (name.to_owned(), written.to_owned())).collect();
    let changed = Arc::new(Notify::new());
    let told = Arc::clone(&changed);
    let _changes = store.subscribe(move |_| told.notify_one());
    let shown = async {
        while held(store) != wanted {
            changed.notified().await;
        }
    };
    let shown = timeout(DEADLINE, shown).await;
    assert!(shown.is_ok(), "{:?} are held, not {wanted:?}", held(store));
}

fn held(store: &Store<Node>) -> BTreeMap<String, String> {
    let written = |node: &Node| node.meta().labels.get("written").unwrap().to_owned();
    store.all().iter().map(|node| (node.meta().name.clone(), written(node))).collect()
}
