use std::future::Future;

use futures_util::{StreamExt, TryStreamExt, stream, stream::BoxStream};
use kube::{
    Client,
    api::{GetParams, PostParams, WatchParams},
    core::{Request, WatchEvent, request},
};
use serde_json::Value;

use super::Lease;
use crate::{ApiFailure, bounded};

/// States of a Lease from a watch; `None` when it was deleted. The stream ends when the API server
/// ends it.
pub type LeaseVersions = BoxStream<'static, Result<Option<Lease>, ApiFailure>>;

/// An election's requests about its one Lease.
pub trait LeaseApi: Send + Sync {
    /// The Lease, if it exists.
    fn read(&self) -> impl Future<Output = Result<Option<Lease>, ApiFailure>> + Send;

    /// Creates the Lease; a conflict if it exists by now.
    fn create(&self, lease: &Lease) -> impl Future<Output = Result<Lease, ApiFailure>> + Send;

    /// Writes the Lease over the version that it was read at; a conflict if there is a later one.
    fn replace(&self, lease: &Lease) -> impl Future<Output = Result<Lease, ApiFailure>> + Send;

    /// Watches the Lease from a version on.
    fn versions(&self, since: &str) -> LeaseVersions;
}

/// A Lease in a real Kubernetes API.
pub struct KubeLease {
    client: Client,
    requests: Request,
    name: String,
    what: String,
}

impl KubeLease {
    /// The Lease of this name, whether it exists or not.
    pub fn new(client: Client, namespace: &str, name: &str) -> Self {
        let leases = format!("/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases");
        Self {
            client,
            requests: Request::new(leases),
            name: name.to_owned(),
            what: format!("Lease {namespace}/{name}"),
        }
    }

    async fn ask(&self, request: Built) -> Result<Lease, ApiFailure> {
        let request = self.built(request)?;
        bounded(&self.what, self.client.request::<Value>(request)).await.map(Lease)
    }

    fn built(&self, request: Built) -> Result<http::Request<Vec<u8>>, ApiFailure> {
        request.map_err(|error| self.invalid(&error))
    }

    fn invalid(&self, error: &dyn std::error::Error) -> ApiFailure {
        ApiFailure::Invalid { what: self.what.clone(), message: error.to_string() }
    }

    fn bytes(&self, lease: &Lease) -> Result<Vec<u8>, ApiFailure> {
        serde_json::to_vec(&lease.0).map_err(|error| self.invalid(&error))
    }
}

type Built = Result<http::Request<Vec<u8>>, request::Error>;

impl LeaseApi for KubeLease {
    async fn read(&self) -> Result<Option<Lease>, ApiFailure> {
        match self.ask(self.requests.get(&self.name, &GetParams::default())).await {
            Ok(lease) => Ok(Some(lease)),
            Err(ApiFailure::NotFound { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    async fn create(&self, lease: &Lease) -> Result<Lease, ApiFailure> {
        self.ask(self.requests.create(&PostParams::default(), self.bytes(lease)?)).await
    }

    async fn replace(&self, lease: &Lease) -> Result<Lease, ApiFailure> {
        let body = self.bytes(lease)?;
        self.ask(self.requests.replace(&self.name, &PostParams::default(), body)).await
    }

    fn versions(&self, since: &str) -> LeaseVersions {
        let only_this = WatchParams::default().fields(&format!("metadata.name={}", self.name));
        let request = self.built(self.requests.watch(&only_this, since));
        let (client, what) = (self.client.clone(), self.what.clone());
        stream::once(async move {
            let events = bounded(&what, client.request_events::<Value>(request?)).await?;
            Ok(events.filter_map(move |event| {
                let version = match event {
                    Ok(WatchEvent::Added(lease) | WatchEvent::Modified(lease)) => {
                        Some(Ok(Some(Lease(lease))))
                    }
                    Ok(WatchEvent::Deleted(_)) => Some(Ok(None)),
                    Ok(WatchEvent::Bookmark(_)) => None,
                    Ok(WatchEvent::Error(status)) => {
                        Some(Err(ApiFailure::of(&what, &kube::Error::Api(status))))
                    }
                    Err(error) => Some(Err(ApiFailure::of(&what, &error))),
                };
                std::future::ready(version)
            }))
        })
        .try_flatten()
        .boxed()
    }
}
