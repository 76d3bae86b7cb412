//! Secrets for calls of a driver: read for each call, and never kept or printed.

use std::collections::BTreeMap;

use base64::{Engine, prelude::BASE64_STANDARD};
use http::Request;
use kube::Client;
use serde::Deserialize;
use wharf_cluster::{ApiFailure, SecretReference, bounded};

/// Why a secret cannot be used. The text names it without its content.
#[derive(Debug, thiserror::Error)]
#[error("failed to load secret {:?}: {reason}", format!("{namespace}/{name}"))]
pub(crate) struct SecretFailure {
    namespace: String,
    name: String,
    reason: Reason,
}

#[derive(Debug, thiserror::Error)]
enum Reason {
    #[error(transparent)]
    Api(ApiFailure),
    #[error("the value of key {0:?} is no text, and CSI has secrets that are texts only")]
    Binary(String),
    #[error("its reference is no name of an object")]
    Reference,
}

/// The keys and values of a secret; empty without a reference.
pub(crate) async fn read(
    client: &Client,
    reference: Option<&SecretReference>,
) -> Result<BTreeMap<String, String>, SecretFailure> {
    let Some(reference) = reference else { return Ok(BTreeMap::new()) };
    read_values(client, reference).await.map_err(|reason| SecretFailure {
        namespace: reference.namespace.clone(),
        name: reference.name.clone(),
        reason,
    })
}

/// No `Debug`: it contains secrets.
#[derive(Deserialize)]
struct Secret {
    #[serde(default)]
    data: BTreeMap<String, String>,
}

async fn read_values(
    client: &Client,
    SecretReference { name, namespace }: &SecretReference,
) -> Result<BTreeMap<String, String>, Reason> {
    let path = format!("/api/v1/namespaces/{namespace}/secrets/{name}");
    let request = Request::get(path).body(Vec::new()).map_err(|_| Reason::Reference)?;
    let secret: Secret = bounded("Secret", client.request(request)).await.map_err(Reason::Api)?;
    secret
        .data
        .into_iter()
        .map(|(key, value)| {
            let value =
                BASE64_STANDARD.decode(value).ok().and_then(|it| String::from_utf8(it).ok());
            match value {
                Some(value) => Ok((key, value)),
                None => Err(Reason::Binary(key)),
            }
        })
        .collect()
}
