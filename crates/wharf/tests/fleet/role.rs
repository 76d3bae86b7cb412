//! What the manifests of deploy/ allow the controllers to do: a verb too many is refused.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use wharf_testkit::cluster::Cluster;
use wharf_testkit::peers;

use crate::sidecar::{JOINT, Kind};

/// Grants each controller's user the roles of its file, and the joint user those of all files.
pub(crate) async fn grant(cluster: &Cluster) {
    for kind in Kind::ALL {
        for document in documents(kind.user()) {
            cluster.apply(&document).await.unwrap();
        }
    }
}

/// Writes the kubeconfig of an administrator who acts as `user`, with that user's rights.
pub(crate) fn kubeconfig(cluster: &Cluster, user: &str, folder: &Path) -> PathBuf {
    let text = std::fs::read_to_string(cluster.kubeconfig()).unwrap();
    let mut config: Value = serde_json::from_str(&text).unwrap();
    config["users"][0]["user"]["as"] = json!(user);
    let path = folder.join(format!("{user}.kubeconfig"));
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

/// A file's roles, for users of the namespace that the Leases are in.
fn documents(user: &str) -> Vec<Value> {
    let file = peers::repository().join(format!("deploy/rbac/{user}.yaml"));
    let text = std::fs::read_to_string(file).unwrap();
    let documents = text.split("\n---\n").map(|text| serde_saphyr::from_str(text).unwrap());
    let roles = documents.filter(|it: &Value| it["kind"] != "ServiceAccount");
    roles
        .map(|mut document| {
            if document["metadata"]["namespace"].is_string() {
                document["metadata"]["namespace"] = json!("default");
            }
            if document["subjects"].is_array() {
                let group = document["roleRef"]["apiGroup"].clone();
                let subject =
                    |user: &str| json!({ "apiGroup": group, "kind": "User", "name": user });
                document["subjects"] = json!([subject(user), subject(JOINT)]);
            }
            document
        })
        .collect()
}
