//! The CustomResourceDefinitions of snapshots: installs them and checks that the API serves them.

use std::time::Duration;

use http::Request;
use kube::Client;
use serde::{Deserialize, de::IgnoredAny};
use serde_json::Value;
use tokio::time::{Instant, sleep, sleep_until};
use wharf_cluster::{
    ApiFailure, Kind, VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent, bounded,
};

/// The API version that the controllers use.
const VERSION: &str = "v1";

const COLLECTION: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";

/// The pause between two reads of a CRD that the API server is accepting.
const LOOK: Duration = Duration::from_millis(100);

/// A CustomResourceDefinition.
#[derive(Clone, Copy, Debug)]
pub struct Crd {
    /// The name of the CustomResourceDefinition.
    pub name: &'static str,
    /// The whole object, as a YAML document.
    pub yaml: &'static str,
}

/// The CRDs of snapshots.
pub const SNAPSHOT_CRDS: [Crd; 3] = [
    Crd {
        name: "volumesnapshotclasses.snapshot.storage.k8s.io",
        yaml: include_str!("crds/volumesnapshotclasses.yaml"),
    },
    Crd {
        name: "volumesnapshotcontents.snapshot.storage.k8s.io",
        yaml: include_str!("crds/volumesnapshotcontents.yaml"),
    },
    Crd {
        name: "volumesnapshots.snapshot.storage.k8s.io",
        yaml: include_str!("crds/volumesnapshots.yaml"),
    },
];

/// The outcome for a CRD.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Installed {
    /// It was missing and was created.
    Created,
    /// One of this name existed and was not changed.
    Kept,
}

/// Why kinds are not served.
#[derive(Debug, thiserror::Error)]
pub enum CrdError {
    /// The CRD could not be created or read.
    #[error(transparent)]
    Api(#[from] ApiFailure),
    /// The existing CRD does not serve the version.
    #[error(
        "CustomResourceDefinition {0} is there and does not serve {VERSION}: it was left as it is; upgrade it by hand"
    )]
    Version(&'static str),
    /// The API server has not established it.
    #[error(
        "CustomResourceDefinition {name}: not established after {patience:?}; see its conditions"
    )]
    Established {
        /// Its name.
        name: &'static str,
        /// How long was waited.
        patience: Duration,
    },
    /// The API does not serve a kind.
    #[error(
        "{kind} of snapshot.storage.k8s.io/{VERSION} is not served after {patience:?}: install the \
         CustomResourceDefinitions with `wharf crds install`"
    )]
    NotServed {
        /// The kind.
        kind: &'static str,
        /// How long was waited.
        patience: Duration,
    },
}

impl Crd {
    /// The object to send to the API.
    pub fn document(&self) -> Value {
        serde_saphyr::from_str(self.yaml).expect("the declarations are tested to be documents")
    }
}

/// Creates missing CRDs, keeps existing ones, and waits until the API server has established all of
/// them.
pub async fn install(
    client: &Client,
    patience: Duration,
) -> Result<Vec<(&'static str, Installed)>, CrdError> {
    let mut done = Vec::new();
    for crd in &SNAPSHOT_CRDS {
        done.push((crd.name, create(client, crd).await?));
    }
    let deadline = Instant::now() + patience;
    for crd in &SNAPSHOT_CRDS {
        while !is_established(client, crd).await? {
            if Instant::now() >= deadline {
                return Err(CrdError::Established { name: crd.name, patience });
            }
            sleep(LOOK).await;
        }
    }
    Ok(done)
}

/// Waits until the API serves all kinds of snapshots.
pub async fn wait_until_served(client: &Client, patience: Duration) -> Result<(), CrdError> {
    let deadline = Instant::now() + patience;
    let mut pause = LOOK;
    loop {
        let Err((kind, failure)) = are_served(client).await else { return Ok(()) };
        let next = Instant::now() + pause;
        if next > deadline {
            return Err(match failure {
                ApiFailure::NotFound { .. } => CrdError::NotServed { kind, patience },
                failure => failure.into(),
            });
        }
        tracing::warn!(kind, error = %failure, "waiting for snapshot CRDs");
        sleep_until(next).await;
        pause = pause.mul_f64(1.5);
    }
}

async fn create(client: &Client, crd: &Crd) -> Result<Installed, CrdError> {
    let body = crd.document().to_string().into_bytes();
    let request = Request::post(COLLECTION).header("content-type", "application/json");
    let request = request.body(body).expect("constants make a request");
    let what = format!("CustomResourceDefinition {}", crd.name);
    match bounded(&what, client.request::<IgnoredAny>(request)).await {
        Ok(_) => Ok(Installed::Created),
        Err(ApiFailure::Conflict { .. }) => Ok(Installed::Kept),
        Err(failure) => Err(failure.into()),
    }
}

/// The fields of a CRD that are read.
#[derive(Deserialize)]
struct Declared {
    spec: DeclaredSpec,
    #[serde(default)]
    status: DeclaredStatus,
}

#[derive(Deserialize)]
struct DeclaredSpec {
    versions: Vec<DeclaredVersion>,
}

#[derive(Deserialize)]
struct DeclaredVersion {
    name: String,
    served: bool,
}

#[derive(Default, Deserialize)]
struct DeclaredStatus {
    /// The API server sends null before it has checked the names.
    conditions: Option<Vec<Condition>>,
}

#[derive(Deserialize)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
}

async fn is_established(client: &Client, crd: &Crd) -> Result<bool, CrdError> {
    let request = Request::get(format!("{COLLECTION}/{}", crd.name)).body(Vec::new());
    let request = request.expect("names of declarations are parts of URLs");
    let what = format!("CustomResourceDefinition {}", crd.name);
    let found: Declared = bounded(&what, client.request(request)).await?;
    if !found.spec.versions.iter().any(|it| it.name == VERSION && it.served) {
        return Err(CrdError::Version(crd.name));
    }
    let conditions = found.status.conditions.unwrap_or_default();
    Ok(conditions.iter().any(|it| it.kind == "Established" && it.status == "True"))
}

async fn are_served(client: &Client) -> Result<(), (&'static str, ApiFailure)> {
    is_served::<VolumeSnapshot>(client).await?;
    is_served::<VolumeSnapshotClass>(client).await?;
    is_served::<VolumeSnapshotContent>(client).await
}

async fn is_served<K: Kind>(client: &Client) -> Result<(), (&'static str, ApiFailure)> {
    let request = Request::get(format!("{}/{}?limit=1", K::GROUP, K::RESOURCE)).body(Vec::new());
    let request = request.expect("kinds are parts of URLs");
    let listed = bounded(K::KIND, client.request::<IgnoredAny>(request)).await;
    listed.map(drop).map_err(|failure| (K::KIND, failure))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn declarations_are_documents_under_their_names() {
        for crd in &SNAPSHOT_CRDS {
            let document = crd.document();
            assert_eq!(document["metadata"]["name"], crd.name);
            let versions = document["spec"]["versions"].as_array().unwrap();
            assert_eq!(versions.len(), 1);
            assert_eq!(versions[0]["name"], VERSION);
        }
    }
}
