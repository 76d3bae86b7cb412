//! Asks whether the API has VolumeAttributesClasses: Kubernetes does since 1.34.

use http::Request;
use kube::Client;
use serde::Deserialize;
use wharf_cluster::{ApiFailure, Kind, VolumeAttributesClass, bounded};

/// Whether the API has VolumeAttributesClasses. Assumes so if the API does not answer.
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
            tracing::warn!(%error, "assuming VolumeAttributesClass v1: API does not answer");
            true
        }
    }
}
