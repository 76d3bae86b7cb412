//! An etcd that goes back to a backup while its objects are watched.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::{sync::Notify, task::JoinSet, time::timeout};
use tokio_util::sync::CancellationToken;
use wharf_cluster::{Kind, Node, Store, Watch};
use wharf_testkit::cluster::Cluster;

const DEADLINE: Duration = Duration::from_secs(60);

#[tokio::test]
async fn a_watch_goes_back_with_an_etcd_that_is_restored() {
    let Some(mut cluster) = Cluster::builder().start().await.unwrap() else { return };
    cluster.apply_all(&[node("changed", "before"), node("deleted", "before")]).await.unwrap();
    let client = wharf_cluster::connect(Some(cluster.kubeconfig())).await.unwrap();
    let store = Store::<Node>::new(|_| true);
    let (stop, mut tasks) = (CancellationToken::new(), JoinSet::new());
    tasks.spawn(Watch::new(client, Arc::clone(&store)).run(stop.clone()));
    shows(&store, &[("changed", "before"), ("deleted", "before")]).await;

    let backup = cluster.folder().join("backup.db");
    cluster.back_up(&backup).await.unwrap();
    cluster.apply_all(&[node("changed", "after"), node("made", "after")]).await.unwrap();
    assert!(cluster.kubectl(&["delete", "node", "deleted"]).await.unwrap().status.success());
    shows(&store, &[("changed", "after"), ("made", "after")]).await;

    cluster.restore(&backup).await.unwrap();
    shows(&store, &[("changed", "before"), ("deleted", "before")]).await;
    // And it goes on from there.
    cluster.apply(&node("changed", "again")).await.unwrap();
    shows(&store, &[("changed", "again"), ("deleted", "before")]).await;

    stop.cancel();
    tasks.join_next().await.unwrap().unwrap();
    cluster.stop().await.unwrap();
}

/// A node with a label that says when it was written.
fn node(name: &str, written: &str) -> Value {
    let metadata = json!({ "name": name, "labels": { "written": written } });
    json!({ "apiVersion": "v1", "kind": "Node", "metadata": metadata })
}

/// Waits until the store holds these nodes, and no other.
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
