//! Whether the API has classes of attributes: Kubernetes does since 1.34.

use http::Request;
use kube::Client;
use serde::Deserialize;
use wharf_cluster::{ApiFailure, Kind, VolumeAttributesClass, bounded};

/// Whether the API knows about classes of attributes. An API that does not say is believed to.
pub(crate) async fn is_served(client: &Client) -> bool {
    #[derive(Deserialize)]
    struct Resources {
        #[serde(default)]
        resources: Vec<Resource>,
    }
    #[derive(Deserialize)]
    struct Resource {
        kind: String,
    }
    let request =
        Request::get(VolumeAttributesClass::GROUP).body(Vec::new()).expect("groups make a URL");
    match bounded("resources", client.request::<Resources>(request)).await {
        Ok(found) => found.resources.iter().any(|it| it.kind == VolumeAttributesClass::KIND),
        Err(ApiFailure::NotFound { .. }) => false,
        Err(error) => {
            tracing::warn!(%error, "the API does not say whether it has VolumeAttributesClass v1");
            true
        }
    }
}
