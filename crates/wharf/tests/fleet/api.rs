//! An administrator's access to the API.

use std::{path::Path, time::Duration};

use http::Request;
use kube::Client;
use serde_json::{Value, json};
use wharf_testkit::process::wait_for;

/// How long whatever a test waits for may take.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(crate) struct Api(Client);

impl Api {
    pub(crate) async fn new(kubeconfig: &Path) -> Self {
        Self(wharf_cluster::connect(Some(kubeconfig)).await.unwrap())
    }

    /// Creates an object in the collection at `path`.
    pub(crate) async fn create(&self, path: &str, kind: &str, mut object: Value) -> Value {
        object["kind"] = json!(kind);
        object["apiVersion"] = json!(match path.strip_prefix("/apis/") {
            Some(path) => path.splitn(3, '/').take(2).collect::<Vec<_>>().join("/"),
            None => "v1".to_owned(),
        });
        self.send(Request::post(path), &object).await.unwrap()
    }

    /// A merge patch.
    pub(crate) async fn patch(&self, path: &str, patch: &Value) {
        let request = Request::patch(path).header("content-type", "application/merge-patch+json");
        self.send(request, patch).await.unwrap();
    }

    pub(crate) async fn delete(&self, path: &str) {
        let request = Request::delete(path).body(Vec::new()).unwrap();
        self.0.request::<Value>(request).await.unwrap();
    }

    pub(crate) async fn get(&self, path: &str) -> Option<Value> {
        let request = Request::get(path).body(Vec::new()).unwrap();
        match self.0.request(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => None,
            found => Some(found.unwrap()),
        }
    }

    /// Waits until the object at `path` is as `wanted`, and gives it.
    pub(crate) async fn wait(&self, path: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let what = format!("{path} to be as wanted");
        let seen = async || self.get(path).await.filter(|object| wanted(object));
        match wait_for(PATIENCE, &what, &seen).await {
            Ok(object) => object,
            Err(error) => panic!("{error}; it is {:#}", self.get(path).await.unwrap_or_default()),
        }
    }

    pub(crate) async fn gone(&self, path: &str) {
        let gone = async || self.get(path).await.is_none().then_some(());
        if let Err(error) = wait_for(PATIENCE, &format!("{path} to go"), gone).await {
            panic!("{error}; it is {:#}", self.get(path).await.unwrap_or_default());
        }
    }

    /// Takes `finalizer` from an object that is being deleted.
    pub(crate) async fn unprotect(&self, path: &str, finalizer: &str) {
        self.wait(path, |object| object["metadata"]["deletionTimestamp"].is_string()).await;
        while let Some(mut object) = self.get(path).await {
            let Some(finalizers) = object["metadata"]["finalizers"].as_array_mut() else { return };
            let before = finalizers.len();
            finalizers.retain(|it| it != finalizer);
            if finalizers.len() == before {
                return;
            }
            match self.send(Request::put(path), &object).await {
                Err(kube::Error::Api(status)) if [404, 409].contains(&status.code) => {}
                written => drop(written.unwrap()),
            }
        }
    }

    async fn send(
        &self,
        request: http::request::Builder,
        object: &Value,
    ) -> Result<Value, kube::Error> {
        self.0.request(request.body(object.to_string().into_bytes()).unwrap()).await
    }
}
