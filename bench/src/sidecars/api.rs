//! The Kubernetes API, as used by the rest of a cluster.

use std::{
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use anyhow::{Context, Result, bail};
use futures_util::stream::{BoxStream, StreamExt};
use http::{
    Method, Request,
    header::{HeaderValue, USER_AGENT},
};
use kube::{
    Client, Config,
    config::{KubeConfigOptions, Kubeconfig},
    core::WatchEvent,
};
use serde_json::Value;
use tokio::task::JoinSet;

/// The bench's user agent, by which the audit log distinguishes its requests from those of the
/// sidecars.
pub(super) const AGENT: &str = "wharf-bench";

/// A client, the same as in our sidecars: several connections with HTTP/1.1.
#[derive(Clone)]
pub(super) struct Api(Client);

/// The body of a PATCH.
#[derive(Clone, Copy)]
pub(super) enum Patch {
    Json,
    Merge,
    Strategic,
}

/// An event of a watch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Happening {
    Added,
    Modified,
    Deleted,
}

impl Api {
    pub(super) async fn connect(kubeconfig: &Path) -> Result<Self> {
        let file = Kubeconfig::read_from(kubeconfig)?;
        let mut config =
            Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        config.headers.push((USER_AGENT, HeaderValue::from_static(AGENT)));
        Ok(Self(Client::try_from(config)?))
    }

    /// Creates an object and returns it.
    pub(super) async fn create(&self, path: &str, object: &Value) -> Result<Value> {
        Ok(serde_json::from_str(&self.post(path, object).await?)?)
    }

    /// Creates an object.
    pub(super) async fn post(&self, path: &str, object: &Value) -> Result<String> {
        self.call(Method::POST, path, "application/json", object.to_string()).await
    }

    pub(super) async fn put(&self, path: &str, object: &Value) -> Result<String> {
        self.call(Method::PUT, path, "application/json", object.to_string()).await
    }

    pub(super) async fn patch(&self, path: &str, kind: Patch, patch: &Value) -> Result<String> {
        let content = match kind {
            Patch::Json => "application/json-patch+json",
            Patch::Merge => "application/merge-patch+json",
            Patch::Strategic => "application/strategic-merge-patch+json",
        };
        self.call(Method::PATCH, path, content, patch.to_string()).await
    }

    pub(super) async fn delete(&self, path: &str) -> Result<String> {
        self.call(Method::DELETE, path, "application/json", String::new()).await
    }

    pub(super) async fn get(&self, path: &str) -> Result<Value> {
        let text = self.call(Method::GET, path, "application/json", String::new()).await?;
        Ok(serde_json::from_str(&text)?)
    }

    /// Watches the objects at `path` from now on.
    pub(super) async fn watch(&self, path: &str) -> Result<Watch> {
        let now = self.get(&format!("{path}?limit=1")).await?;
        let version =
            now["metadata"]["resourceVersion"].as_str().context("a list has a version")?;
        let (api, path) = (self.clone(), path.to_owned());
        let mut watch = Watch { api, path, version: version.to_owned(), events: None };
        watch.begin().await?;
        Ok(watch)
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        content: &str,
        body: String,
    ) -> Result<String> {
        let title = format!("{method} {path}");
        let request = Request::builder().method(method).uri(path).header("content-type", content);
        self.0.request_text(request.body(body.into_bytes())?).await.context(title)
    }
}

/// A watch that resumes when the API server ends it, as it does with slow readers.
pub(super) struct Watch {
    api: Api,
    path: String,
    version: String,
    events: Option<BoxStream<'static, kube::Result<WatchEvent<Value>>>>,
}

impl Watch {
    /// The next event.
    pub(super) async fn next(&mut self) -> Result<(Happening, Value)> {
        loop {
            let event = match &mut self.events {
                Some(events) => events.next().await,
                None => None,
            };
            let (happening, object) = match event {
                Some(Ok(WatchEvent::Added(object))) => (Happening::Added, object),
                Some(Ok(WatchEvent::Modified(object))) => (Happening::Modified, object),
                Some(Ok(WatchEvent::Deleted(object))) => (Happening::Deleted, object),
                Some(Ok(WatchEvent::Bookmark(_))) => continue,
                Some(Ok(WatchEvent::Error(status))) => bail!("{}: {status:?}", self.path),
                Some(Err(_)) | None => {
                    self.begin().await?;
                    continue;
                }
            };
            if let Some(version) = object["metadata"]["resourceVersion"].as_str() {
                version.clone_into(&mut self.version);
            }
            return Ok((happening, object));
        }
    }

    async fn begin(&mut self) -> Result<()> {
        let Self { api, path, version, events } = self;
        let request = Request::get(format!("{path}?watch=true&resourceVersion={version}"));
        *events = Some(api.0.request_events(request.body(Vec::new())?).await?.boxed());
        Ok(())
    }
}

/// Runs a function `count` times, with limited parallelism.
pub(super) async fn each<F>(
    count: usize,
    at_a_time: usize,
    work: impl Fn(usize) -> F + Send + Sync + 'static,
) -> Result<()>
where
    F: Future<Output = Result<()>> + Send,
{
    let (next, work) = (Arc::new(AtomicUsize::new(0)), Arc::new(work));
    let mut workers = JoinSet::new();
    for _ in 0..at_a_time.min(count) {
        let (next, work) = (next.clone(), work.clone());
        workers.spawn(async move {
            loop {
                let turn = next.fetch_add(1, Ordering::Relaxed);
                if turn >= count {
                    return anyhow::Ok(());
                }
                work(turn).await?;
            }
        });
    }
    while let Some(done) = workers.join_next().await {
        done.context("a worker")??;
    }
    Ok(())
}
