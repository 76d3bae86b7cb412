//! Writes that keep concurrent changes of other writers.
//!
//! A patch is planned from the object as last seen and holds only for that state: it carries the
//! resource version, or tests the fields that it changes. After a conflict the object is read and
//! the patch is planned again.

use std::sync::Arc;

use http::{Method, Request, header};
use kube::Client;
use serde_json::{Value, json};

use crate::{ApiFailure, Kind, Meta, Store, bounded};

/// The most plans for one write, counting those after conflicts.
const ATTEMPTS: usize = 4;

/// A change of an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Patch {
    /// A merge patch: fields to set, or to remove where they are null.
    Merge(Value),
    /// A JSON patch: all of its steps are applied, or none.
    Json(Value),
    /// A strategic merge patch: as a merge patch, but lists of named entries are merged by name.
    Strategic(Value),
}

/// The part of an object that is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// All but the status.
    Main,
    /// The status.
    Status,
}

/// The objects of one kind in the API. Answers go into the store as well.
#[derive(Clone)]
pub struct Objects<K: Kind> {
    client: Client,
    store: Arc<Store<K>>,
}

impl Patch {
    /// Adds a finalizer and keeps those of others.
    pub fn add_finalizer(to: &Meta, finalizer: &str) -> Self {
        let path = "/metadata/finalizers";
        // Without the test two concurrent writers would add the finalizer twice.
        let (seen, place, value) = if to.finalizers.is_empty() {
            (Value::Null, path.to_owned(), json!([finalizer]))
        } else {
            (json!(to.finalizers), format!("{path}/-"), json!(finalizer))
        };
        Self::Json(json!([
            { "op": "test", "path": path, "value": seen },
            { "op": "add", "path": place, "value": value },
        ]))
    }

    /// Removes a finalizer and keeps those of others; `None` if it is missing.
    pub fn remove_finalizer(from: &Meta, finalizer: &str) -> Option<Self> {
        let place = from.finalizers.iter().position(|own| own == finalizer)?;
        let path = format!("/metadata/finalizers/{place}");
        Some(Self::Json(json!([
            { "op": "test", "path": path, "value": finalizer },
            { "op": "remove", "path": path },
        ])))
    }

    /// Sets these fields of the metadata if the object is still in the state of `of`.
    pub fn metadata(of: &Meta, fields: Value) -> Self {
        let mut metadata = json!({ "resourceVersion": of.resource_version });
        if let (Some(metadata), Value::Object(fields)) = (metadata.as_object_mut(), fields) {
            metadata.extend(fields);
        }
        Self::Merge(json!({ "metadata": metadata }))
    }

    /// Sets these fields of the status in any state of the object. An object that was deleted and
    /// created again under the same name is refused.
    pub fn status(of: &Meta, fields: &Value) -> Self {
        Self::Merge(json!({ "metadata": { "uid": of.uid }, "status": fields }))
    }
}

impl<K: Kind> Objects<K> {
    /// The objects of a kind, reached by `client`.
    pub fn new(client: Client, store: Arc<Store<K>>) -> Self {
        Self { client, store }
    }

    /// The store of the objects.
    pub fn store(&self) -> &Arc<Store<K>> {
        &self.store
    }

    /// Reads an object from the API.
    pub async fn get(&self, of: &Meta) -> Result<Arc<K>, ApiFailure> {
        let what = title::<K>(of);
        let request = request(Method::GET, path::<K>(of, Part::Main), None, Vec::new());
        let found: K = bounded(&what, self.client.request(request)).await?;
        Ok(self.observed(found))
    }

    /// Writes a patch. A JSON patch whose test fails is a conflict.
    pub async fn patch(&self, of: &Meta, part: Part, patch: &Patch) -> Result<Arc<K>, ApiFailure> {
        let what = title::<K>(of);
        let (content, body) = match patch {
            Patch::Merge(body) => ("application/merge-patch+json", body),
            Patch::Json(body) => ("application/json-patch+json", body),
            Patch::Strategic(body) => ("application/strategic-merge-patch+json", body),
        };
        let body = body.to_string().into_bytes();
        let request = request(Method::PATCH, path::<K>(of, part), Some(content), body);
        let answer = bounded(&what, self.client.request::<K>(request)).await;
        let written = answer.map_err(|failure| match (patch, failure) {
            (Patch::Json(_), ApiFailure::Invalid { what, message })
                if message.starts_with(TEST_FAILED) =>
            {
                ApiFailure::Conflict { what }
            }
            (_, failure) => failure,
        })?;
        Ok(self.observed(written))
    }

    /// Writes the patch that `plan` returns, beginning with the given state, until the API accepts
    /// it or `plan` returns none. Returns the object after the write.
    pub async fn edit(
        &self,
        of: &Arc<K>,
        part: Part,
        plan: impl Fn(&K) -> Option<Patch>,
    ) -> Result<Arc<K>, ApiFailure> {
        let mut current = Arc::clone(of);
        for _ in 0..ATTEMPTS {
            let Some(patch) = plan(&current) else { return Ok(current) };
            match self.patch(current.meta(), part, &patch).await {
                Err(ApiFailure::Conflict { .. }) => {}
                answer => return answer,
            }
            let fresh = self.get(current.meta()).await?;
            if fresh.meta().uid != current.meta().uid {
                return Err(ApiFailure::NotFound { what: current.title() });
            }
            current = fresh;
        }
        Err(ApiFailure::Conflict { what: current.title() })
    }

    /// Reads the object, lets `change` edit the document, and writes it back whole: for roles that
    /// grant update but not patch. Repeated after a conflict.
    pub async fn update(
        &self,
        of: &Meta,
        change: impl Fn(&mut Value),
    ) -> Result<Arc<K>, ApiFailure> {
        let what = title::<K>(of);
        let path = path::<K>(of, Part::Main);
        for _ in 0..ATTEMPTS {
            let read = request(Method::GET, path.clone(), None, Vec::new());
            let before: Value = bounded(&what, self.client.request(read)).await?;
            let mut after = before.clone();
            change(&mut after);
            let body = (after != before).then(|| after.to_string().into_bytes());
            let answer: Result<K, ApiFailure> = match body {
                None => serde_json::from_value(before).map_err(|error| ApiFailure::Overloaded {
                    what: what.clone(),
                    message: format!("the answer cannot be read: {error}"),
                }),
                Some(body) => {
                    let write = request(Method::PUT, path.clone(), Some("application/json"), body);
                    bounded(&what, self.client.request(write)).await
                }
            };
            match answer {
                Err(ApiFailure::Conflict { .. }) => {}
                answer => return answer.map(|written| self.observed(written)),
            }
        }
        Err(ApiFailure::Conflict { what })
    }

    /// Creates an object from a whole document. One that exists already is a conflict.
    pub async fn create(&self, object: &Value) -> Result<Arc<K>, ApiFailure> {
        let text = |field| object["metadata"][field].as_str().map(str::to_owned);
        let of = Meta {
            name: text("name").or(text("generateName")).unwrap_or_default(),
            namespace: text("namespace"),
            ..Meta::default()
        };
        let body = object.to_string().into_bytes();
        let path = collection::<K>(&of);
        let request = request(Method::POST, path, Some("application/json"), body);
        let made: K = bounded(&title::<K>(&of), self.client.request(request)).await?;
        Ok(self.observed(made))
    }

    /// Deletes the object with this UID, never a later one of the same name. Returns the object if
    /// finalizers keep it.
    pub async fn delete(&self, of: &Meta) -> Result<Option<Arc<K>>, ApiFailure> {
        let body = json!({ "preconditions": { "uid": of.uid } }).to_string().into_bytes();
        let path = path::<K>(of, Part::Main);
        let request = request(Method::DELETE, path, Some("application/json"), body);
        let answer: Value = bounded(&title::<K>(of), self.client.request(request)).await?;
        // For an object that is gone some servers return its last state, others a `Status`.
        let left: Option<K> = serde_json::from_value(answer).ok();
        let left = left.filter(|left| left.meta().uid == of.uid && left.meta().deleting);
        Ok(left.filter(|left| !left.meta().finalizers.is_empty()).map(|left| self.observed(left)))
    }

    fn observed(&self, object: K) -> Arc<K> {
        self.store.observe(object.clone());
        Arc::new(object)
    }
}

/// The API's text for a JSON patch that does not apply. It does not say why.
const TEST_FAILED: &str = "the server rejected our request due to an error in our request";

fn title<K: Kind>(of: &Meta) -> String {
    format!("{} {}", K::KIND, of.key())
}

fn collection<K: Kind>(of: &Meta) -> String {
    let namespace = match &of.namespace {
        Some(namespace) => format!("/namespaces/{namespace}"),
        None => String::new(),
    };
    format!("{}{namespace}/{}", K::GROUP, K::RESOURCE)
}

fn path<K: Kind>(of: &Meta, part: Part) -> String {
    let part = match part {
        Part::Main => "",
        Part::Status => "/status",
    };
    format!("{}/{}{part}", collection::<K>(of), of.name)
}

pub(crate) fn request(
    method: Method,
    path: String,
    content: Option<&str>,
    body: Vec<u8>,
) -> Request<Vec<u8>> {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(content) = content {
        request = request.header(header::CONTENT_TYPE, content);
    }
    request.body(body).expect("names of objects are parts of URLs")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{PersistentVolume, VolumeAttachment};

    fn meta(finalizers: &[&str]) -> Meta {
        Meta {
            name: "a".to_owned(),
            resource_version: "7".to_owned(),
            finalizers: finalizers.iter().map(|&it| it.into()).collect(),
            ..Meta::default()
        }
    }

    #[test]
    fn a_finalizer_is_added_behind_those_of_others() {
        let Patch::Json(first) = Patch::add_finalizer(&meta(&[]), "x/y") else { panic!() };
        let test = json!({ "op": "test", "path": "/metadata/finalizers", "value": null });
        let add = json!({ "op": "add", "path": "/metadata/finalizers", "value": ["x/y"] });
        assert_eq!(first, json!([test, add]));
        let Patch::Json(next) = Patch::add_finalizer(&meta(&["o"]), "x/y") else { panic!() };
        let test = json!({ "op": "test", "path": "/metadata/finalizers", "value": ["o"] });
        let add = json!({ "op": "add", "path": "/metadata/finalizers/-", "value": "x/y" });
        assert_eq!(next, json!([test, add]));
    }

    #[test]
    fn a_finalizer_is_removed_where_it_was_seen() {
        let Some(Patch::Json(steps)) = Patch::remove_finalizer(&meta(&["o", "x/y"]), "x/y") else {
            panic!()
        };
        let test = json!({ "op": "test", "path": "/metadata/finalizers/1", "value": "x/y" });
        let remove = json!({ "op": "remove", "path": "/metadata/finalizers/1" });
        assert_eq!(steps, json!([test, remove]));
        assert_eq!(Patch::remove_finalizer(&meta(&["o"]), "x/y"), None);
    }

    #[test]
    fn metadata_is_written_for_one_state_only() {
        let patch = Patch::metadata(&meta(&[]), json!({ "finalizers": ["x"] }));
        let expected = json!({ "metadata": { "resourceVersion": "7", "finalizers": ["x"] } });
        assert_eq!(patch, Patch::Merge(expected));
    }

    #[test]
    fn objects_are_where_the_api_serves_them() {
        let path_of = path::<VolumeAttachment>(&meta(&[]), Part::Status);
        assert_eq!(path_of, "/apis/storage.k8s.io/v1/volumeattachments/a/status");
        let namespaced = Meta { namespace: Some("n".to_owned()), ..meta(&[]) };
        let path_of = path::<PersistentVolume>(&namespaced, Part::Main);
        assert_eq!(path_of, "/api/v1/namespaces/n/persistentvolumes/a");
    }
}
