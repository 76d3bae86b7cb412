//! The manifests of deploy/, for tests: controllers get exactly these roles.

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::peers;

/// The controllers with roles, each in a file of its name.
pub const CONTROLLERS: [&str; 5] =
    ["attacher", "provisioner", "resizer", "snapshotter", "snapshot-controller"];

/// Receiver of a role.
#[derive(Clone, Copy, Debug)]
pub enum Subject<'a> {
    /// A user, by name.
    User(&'a str),
    /// A service account.
    Account {
        /// Its namespace.
        namespace: &'a str,
        /// Its name.
        name: &'a str,
    },
}

/// The objects of a manifest, named by its path in deploy/.
pub fn manifest(path: &str) -> Result<Vec<Value>> {
    let file = peers::repository().join("deploy").join(path);
    let text = std::fs::read_to_string(&file).with_context(|| file.display().to_string())?;
    text.split("\n---\n").map(|text| Ok(serde_saphyr::from_str(text)?)).collect()
}

/// The roles of a controller that works in `namespace`, bound to `subjects` instead of its own
/// account.
pub fn roles(controller: &str, namespace: &str, subjects: &[Subject<'_>]) -> Result<Vec<Value>> {
    let mut objects = manifest(&format!("rbac/{controller}.yaml"))?;
    objects.retain(|object| object["kind"] != "ServiceAccount");
    for object in &mut objects {
        if object["metadata"]["namespace"].is_string() {
            object["metadata"]["namespace"] = json!(namespace);
        }
        if object["subjects"].is_array() {
            object["subjects"] = subjects.iter().map(|subject| subject.reference()).collect();
        }
    }
    Ok(objects)
}

impl Subject<'_> {
    /// The subject of a role binding.
    fn reference(self) -> Value {
        match self {
            Self::User(name) => {
                json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name })
            }
            Self::Account { namespace, name } => {
                json!({ "kind": "ServiceAccount", "name": name, "namespace": namespace })
            }
        }
    }
}
