use std::time::Duration;

use http::Request;
use serde_json::{Value, json};
use tokio::time::sleep;
use wharf_cluster::{ApiFailure, bounded};

use super::Capacities;

/// Owner of the CSIStorageCapacity objects.
#[derive(Clone, Debug)]
pub struct OwnerOptions {
    /// The pod of this process.
    pub pod: String,
    /// The level of the owner above it: 0 for the pod itself, 1 for its StatefulSet or DaemonSet, 2
    /// for its Deployment.
    pub level: u32,
}

/// Why the owner is unknown.
#[derive(Debug, thiserror::Error)]
enum OwnerFailure {
    #[error("{title} has no controlling owner: --capacity-ownerref-level goes too far up")]
    None { title: String },
    #[error(transparent)]
    Api(#[from] ApiFailure),
}

impl Capacities {
    /// Retries until it is known: objects without their owner would stay for ever.
    pub(super) async fn find_owner(&self, pause: Duration) {
        let owner = match &self.options.owner {
            None => None,
            Some(options) => loop {
                match self.walk(options).await {
                    Ok(owner) => break Some(owner),
                    Err(error) => {
                        tracing::error!(pod = options.pod, %error, "not publishing capacity yet: owner of objects is unknown");
                        sleep(pause).await;
                    }
                }
            },
        };
        // Set once: each of these runs once.
        let _ = self.owner.set(owner);
    }

    /// Follows the owners up from the pod. The last step does not read the owner, and so needs no
    /// right to it.
    async fn walk(&self, options: &OwnerOptions) -> Result<Value, OwnerFailure> {
        let mut reference = json!({ "apiVersion": "v1", "kind": "Pod", "name": options.pod });
        if options.level == 0 {
            reference["uid"] = self.read(&reference).await?["metadata"]["uid"].clone();
        }
        for _ in 0..options.level {
            let object = self.read(&reference).await?;
            reference = controller(&object).ok_or_else(|| OwnerFailure::None {
                title: format!("{} {}", text(&reference, "kind"), text(&reference, "name")),
            })?;
        }
        reference["controller"] = json!(true);
        Ok(reference)
    }

    async fn read(&self, reference: &Value) -> Result<Value, ApiFailure> {
        let (kind, name) = (text(reference, "kind"), text(reference, "name"));
        let version = text(reference, "apiVersion");
        let group = match version.contains('/') {
            true => format!("/apis/{version}"),
            false => format!("/api/{version}"),
        };
        let (namespace, resource) = (&self.options.namespace, kind.to_lowercase());
        let path = format!("{group}/namespaces/{namespace}/{resource}s/{name}");
        let what = format!("{kind} {namespace}/{name}");
        let request = Request::get(path).body(Vec::new()).map_err(|error| ApiFailure::Invalid {
            what: what.clone(),
            message: error.to_string(),
        })?;
        bounded(&what, self.client.request(request)).await
    }
}

/// The owner that created an object, without fields of others.
fn controller(object: &Value) -> Option<Value> {
    let owners = object["metadata"]["ownerReferences"].as_array()?;
    let owner = owners.iter().find(|owner| owner["controller"] == true)?;
    let field = |name: &str| owner[name].clone();
    Some(json!({
        "apiVersion": field("apiVersion"), "kind": field("kind"), "name": field("name"), "uid": field("uid"),
    }))
}

fn text<'a>(reference: &'a Value, field: &str) -> &'a str {
    reference[field].as_str().unwrap_or_default()
}
