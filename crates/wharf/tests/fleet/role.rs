//! What the manifests of deploy/ allow the controllers to do: a verb too many is refused.

use serde_json::{Value, json};
use wharf_testkit::cluster::Cluster;
use wharf_testkit::deploy::{self, CONTROLLERS, Subject};

use crate::program::JOINT;

/// A user with the roles that a provisioner had in Go's manifests, at the release that is here.
pub(crate) const OLDER: &str = "older-provisioner";

/// Grants each controller's user the roles of its file, and the joint user those of all files.
pub(crate) async fn grant(cluster: &Cluster) {
    let mut roles = older();
    for user in CONTROLLERS {
        let subjects = [Subject::User(user), Subject::User(JOINT)];
        roles.extend(deploy::roles(user, "default", &subjects).unwrap());
    }
    cluster.apply_all(&roles).await.unwrap();
}

/// The roles of a provisioner, without what has been added since.
fn older() -> Vec<Value> {
    let mut roles = deploy::roles("provisioner", "default", &[Subject::User(OLDER)]).unwrap();
    for role in &mut roles {
        role["metadata"]["name"] = json!(OLDER);
        if let Some(named) = role.get_mut("roleRef") {
            named["name"] = json!(OLDER);
        }
        let Some(rules) = role.get_mut("rules").and_then(Value::as_array_mut) else { continue };
        rules.retain(|rule| rule["resources"] != json!(["volumeattributesclasses"]));
        for rule in rules {
            if rule["resources"] == json!(["volumesnapshots"]) {
                rule["verbs"] = json!(["get", "list"]);
            }
        }
    }
    roles
}
