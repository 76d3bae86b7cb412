//! What upstream's manifests allow a resizer to do: a verb too many is refused.

use serde_json::{Value, json};
use tokio::sync::OnceCell;
use wharf_testkit::cluster::Cluster;

/// The user that has the role.
pub(crate) const RESIZER: &str = "resizer";

/// Grants the role, once.
pub(crate) async fn grant(cluster: &Cluster) {
    static GRANTED: OnceCell<()> = OnceCell::const_new();
    GRANTED.get_or_init(|| apply(cluster)).await;
}

async fn apply(cluster: &Cluster) {
    let read = &["get", "list", "watch"];
    let rules = [
        rule("", "persistentvolumes", &["get", "list", "watch", "patch"]),
        rule("", "persistentvolumeclaims", read),
        rule("", "persistentvolumeclaims/status", &["patch"]),
        rule("", "pods", read),
        rule("", "secrets", read),
        rule("", "events", &["list", "watch", "create", "update", "patch"]),
        rule("storage.k8s.io", "volumeattributesclasses", read),
    ];
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    let metadata = json!({ "name": RESIZER });
    let role = json!({ "apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": rules });
    let binding = json!({
        "apiVersion": version,
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": RESIZER },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": RESIZER }],
    });
    cluster.apply(&role).await.unwrap();
    cluster.apply(&binding).await.unwrap();
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs })
}
