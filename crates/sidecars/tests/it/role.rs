//! What upstream's manifests allow an attacher to do: a verb too many is refused.

use serde_json::{Value, json};
use tokio::sync::OnceCell;
use wharf_testkit::cluster::Cluster;

/// The user that has the role.
pub(crate) const ATTACHER: &str = "attacher";

/// Grants the role, once.
pub(crate) async fn grant(cluster: &Cluster) {
    static GRANTED: OnceCell<()> = OnceCell::const_new();
    GRANTED.get_or_init(|| apply(cluster)).await;
}

async fn apply(cluster: &Cluster) {
    let storage = "storage.k8s.io";
    let rules = [
        rule("", "persistentvolumes", &["get", "list", "watch", "patch"]),
        rule("", "secrets", &["get", "list"]),
        rule(storage, "csinodes", &["get", "list", "watch"]),
        rule(storage, "volumeattachments", &["get", "list", "watch", "patch"]),
        rule(storage, "volumeattachments/status", &["patch"]),
    ];
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    let metadata = json!({ "name": ATTACHER });
    let role = json!({ "apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": rules });
    let binding = json!({
        "apiVersion": version,
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": ATTACHER },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": ATTACHER }],
    });
    cluster.apply(&role).await.unwrap();
    cluster.apply(&binding).await.unwrap();
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs })
}
