//! What upstream's manifests allow the controllers to do: a verb too many is refused.

use serde_json::{Value, json};
use tokio::sync::OnceCell;
use wharf_testkit::cluster::Cluster;

/// The users, each with the role of its name.
pub(crate) const ATTACHER: &str = "attacher";
pub(crate) const PROVISIONER: &str = "provisioner";

/// Grants the roles, once.
pub(crate) async fn grant(cluster: &Cluster) {
    static GRANTED: OnceCell<()> = OnceCell::const_new();
    let grant = || async {
        apply(cluster, ATTACHER, &attacher()).await;
        apply(cluster, PROVISIONER, &provisioner()).await;
    };
    GRANTED.get_or_init(grant).await;
}

fn attacher() -> Vec<Value> {
    vec![
        rule("", "persistentvolumes", &["get", "list", "watch", "patch"]),
        rule("", "secrets", &["get", "list"]),
        rule(STORAGE, "csinodes", READ),
        rule(STORAGE, "volumeattachments", &["get", "list", "watch", "patch"]),
        rule(STORAGE, "volumeattachments/status", &["patch"]),
    ]
}

fn provisioner() -> Vec<Value> {
    let volumes = &["get", "list", "watch", "create", "patch", "delete"];
    let capacities = &["get", "list", "watch", "create", "update", "patch", "delete"];
    vec![
        rule("", "persistentvolumes", volumes),
        rule("", "persistentvolumeclaims", &["get", "list", "watch", "update"]),
        rule("", "pods", &["get"]),
        rule("apps", "replicasets", &["get"]),
        rule("", "nodes", READ),
        rule("", "secrets", &["get", "list"]),
        rule("", "events", &["list", "watch", "create", "update", "patch"]),
        rule(STORAGE, "storageclasses", READ),
        rule(STORAGE, "csinodes", READ),
        rule(STORAGE, "volumeattachments", READ),
        rule(STORAGE, "volumeattributesclasses", &["get"]),
        rule(STORAGE, "csistoragecapacities", capacities),
        rule(SNAPSHOT, "volumesnapshots", &["get", "list", "watch", "update"]),
        rule(SNAPSHOT, "volumesnapshotcontents", &["get", "list"]),
    ]
}

const STORAGE: &str = "storage.k8s.io";
const SNAPSHOT: &str = "snapshot.storage.k8s.io";
const READ: &[&str] = &["get", "list", "watch"];

async fn apply(cluster: &Cluster, user: &str, rules: &[Value]) {
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    let metadata = json!({ "name": user });
    let role = json!({ "apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": rules });
    let binding = json!({
        "apiVersion": version,
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": user },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": user }],
    });
    cluster.apply(&role).await.unwrap();
    cluster.apply(&binding).await.unwrap();
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs })
}
