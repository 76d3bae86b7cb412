//! Finds the API version of a kind that may be missing, or be served in an earlier version.

use http::Request;
use kube::Client;
use serde::{Deserialize, de::IgnoredAny};

use crate::{ApiFailure, Kind, bounded, permissions::Optional};

/// Finds where the API serves a kind: the path of its group and version, such as
/// `/apis/groupsnapshot.storage.k8s.io/v1beta1`. The server's preferred version is tried first.
///
/// `None` if no version of the group has the kind, or if the account may not list it; this right is
/// optional.
///
/// # Errors
/// When the API does not answer.
pub async fn served_at<K: Kind>(client: &Client) -> Result<Option<String>, ApiFailure> {
    let Some((group, _)) = K::GROUP.rsplit_once('/') else { return Ok(None) };
    let versions = match get::<Versions>(client, K::KIND, group.to_owned()).await {
        Ok(versions) => versions,
        Err(ApiFailure::NotFound { .. }) => return Ok(None),
        Err(failure) => return Err(failure),
    };
    for version in versions.preferred_first() {
        let at = format!("{group}/{version}");
        match get::<IgnoredAny>(client, K::KIND, format!("{at}/{}?limit=1", K::RESOURCE)).await {
            Ok(_) => return Ok(Some(at)),
            Err(ApiFailure::NotFound { .. }) => {}
            Err(error @ ApiFailure::Forbidden { .. }) => {
                tracing::info!(kind = K::KIND, %error, "not watching this kind");
                return Ok(None);
            }
            Err(failure) => return Err(failure),
        }
    }
    Ok(None)
}

async fn get<T: serde::de::DeserializeOwned>(
    client: &Client,
    what: &str,
    uri: String,
) -> Result<T, ApiFailure> {
    let request = Request::get(uri).extension(Optional).body(Vec::new());
    let request = request.expect("groups, versions and kinds make a URL");
    bounded(what, client.request(request)).await
}

/// The versions of an API group.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Versions {
    preferred_version: Version,
    #[serde(default)]
    versions: Vec<Version>,
}

#[derive(Deserialize)]
struct Version {
    version: String,
}

impl Versions {
    fn preferred_first(self) -> impl Iterator<Item = String> {
        let preferred = self.preferred_version.version;
        let others: Vec<String> =
            self.versions.into_iter().map(|it| it.version).filter(|it| *it != preferred).collect();
        std::iter::once(preferred).chain(others)
    }
}

#[cfg(test)]
mod tests {
    use http::Response;
    use kube::client::Body;
    use serde_json::json;

    use super::*;
    use crate::VolumeGroupSnapshot;

    /// An API whose group has two versions; each answers lists with its code.
    fn api(group: u16, v1: u16, v1beta1: u16) -> Client {
        let service = tower::service_fn(move |request: Request<Body>| {
            let version = |name: &str| json!({ "version": name });
            let versions = json!({
                "preferredVersion": version("v1"),
                "versions": [version("v1beta1"), version("v1")],
            });
            let (code, body) = match request.uri().path() {
                "/apis/groupsnapshot.storage.k8s.io" => (group, versions),
                path if path.contains("/v1/volumegroupsnapshots") => (v1, json!({})),
                _ => (v1beta1, json!({})),
            };
            let status = json!({ "kind": "Status", "code": code, "message": "no" });
            let body = if code == 200 { body } else { status };
            let answer =
                Response::builder().status(code).body(Body::from(body.to_string().into_bytes()));
            async move { Ok::<_, std::convert::Infallible>(answer.unwrap()) }
        });
        Client::new(service, "default")
    }

    #[tokio::test]
    async fn a_kind_is_found_in_the_version_that_has_it() {
        let at = |version: &str| Some(format!("/apis/groupsnapshot.storage.k8s.io/{version}"));
        for (codes, wanted) in [
            ((200, 200, 200), at("v1")),
            ((200, 404, 200), at("v1beta1")),
            ((200, 404, 404), None),
            ((200, 403, 200), None),
            ((404, 200, 200), None),
        ] {
            let (group, v1, v1beta1) = codes;
            let found = served_at::<VolumeGroupSnapshot>(&api(group, v1, v1beta1)).await.unwrap();
            assert_eq!(found, wanted, "{codes:?}");
        }
        assert!(served_at::<VolumeGroupSnapshot>(&api(500, 200, 200)).await.is_err());
        assert!(served_at::<VolumeGroupSnapshot>(&api(200, 500, 200)).await.is_err());
    }
}
