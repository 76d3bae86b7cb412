//! What the manifests of deploy/ allow the controllers to do: a verb too many is refused.

use std::path::Path;

use serde_json::{Value, json};
use tokio::sync::OnceCell;
use wharf_testkit::cluster::Cluster;

/// The users, each with the roles of the file of its name.
pub(crate) const ATTACHER: &str = "attacher";
pub(crate) const PROVISIONER: &str = "provisioner";
pub(crate) const RESIZER: &str = "resizer";
pub(crate) const SNAPSHOTTER: &str = "snapshotter";
pub(crate) const SNAPSHOT_CONTROLLER: &str = "snapshot-controller";

/// Grants the roles, once.
pub(crate) async fn grant(cluster: &Cluster) {
    static GRANTED: OnceCell<()> = OnceCell::const_new();
    let grant = || async {
        for user in [ATTACHER, PROVISIONER, RESIZER, SNAPSHOTTER, SNAPSHOT_CONTROLLER] {
            for document in documents(user) {
                cluster.apply(&document).await.unwrap();
            }
        }
    };
    GRANTED.get_or_init(grant).await;
}

/// A file's roles, for a user of the namespace that the tests are in.
fn documents(user: &str) -> Vec<Value> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/rbac");
    let text = std::fs::read_to_string(folder.join(format!("{user}.yaml"))).unwrap();
    let documents = text.split("\n---\n").map(|text| serde_saphyr::from_str(text).unwrap());
    let roles = documents.filter(|it: &Value| it["kind"] != "ServiceAccount");
    roles
        .map(|mut document| {
            if document["metadata"]["namespace"].is_string() {
                document["metadata"]["namespace"] = json!("default");
            }
            if document["subjects"].is_array() {
                let group = &document["roleRef"]["apiGroup"];
                let subject = json!({ "apiGroup": group, "kind": "User", "name": user });
                document["subjects"] = json!([subject]);
            }
            document
        })
        .collect()
}
