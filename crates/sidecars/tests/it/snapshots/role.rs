//! What upstream's manifests allow a snapshotter and the snapshot controller to do: a verb too many is refused.

use serde_json::{Value, json};
use wharf_testkit::cluster::Cluster;

/// The users that have the roles.
pub(crate) const SNAPSHOTTER: &str = "snapshotter";
pub(crate) const SNAPSHOT_CONTROLLER: &str = "snapshot-controller";

const READ: &[&str] = &["get", "list", "watch"];
const EVENTS: &[&str] = &["list", "watch", "create", "update", "patch"];

/// Grants both roles.
pub(super) async fn grant(cluster: &Cluster) {
    let group = "snapshot.storage.k8s.io";
    let snapshotter = [
        rule("", "secrets", &["get", "list"]),
        rule("", "events", EVENTS),
        rule(group, "volumesnapshotclasses", READ),
        rule(group, "volumesnapshotcontents", &["get", "list", "watch", "update", "patch"]),
        rule(group, "volumesnapshotcontents/status", &["update", "patch"]),
    ];
    apply(cluster, SNAPSHOTTER, &snapshotter).await;
    let all = &["create", "get", "list", "watch", "update", "patch", "delete"];
    let controller = [
        rule("", "persistentvolumes", READ),
        rule("", "persistentvolumeclaims", &["get", "list", "watch", "update"]),
        rule("", "nodes", READ),
        rule("", "events", EVENTS),
        rule(group, "volumesnapshots", all),
        rule(group, "volumesnapshots/status", &["update", "patch"]),
        rule(group, "volumesnapshotcontents", all),
        rule(group, "volumesnapshotcontents/status", &["patch"]),
        rule(group, "volumesnapshotclasses", READ),
    ];
    apply(cluster, SNAPSHOT_CONTROLLER, &controller).await;
}

async fn apply(cluster: &Cluster, name: &str, rules: &[Value]) {
    let group = "rbac.authorization.k8s.io";
    let version = format!("{group}/v1");
    let metadata = json!({ "name": name });
    let role = json!({ "apiVersion": version, "kind": "ClusterRole", "metadata": metadata, "rules": rules });
    let binding = json!({
        "apiVersion": version,
        "kind": "ClusterRoleBinding",
        "metadata": metadata,
        "roleRef": { "apiGroup": group, "kind": "ClusterRole", "name": name },
        "subjects": [{ "apiGroup": group, "kind": "User", "name": name }],
    });
    cluster.apply(&role).await.unwrap();
    cluster.apply(&binding).await.unwrap();
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> Value {
    json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs })
}
