//! HTTP requests of watches.

use std::time::Duration;

use http::Request;

use crate::{Kind, pages::escaped};

/// Selects objects of a kind; all by default.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// The path of group and version, if not the kind's default.
    pub(super) group: Option<String>,
    /// Only objects of this namespace.
    pub(super) namespace: Option<String>,
    /// Only objects with this label.
    pub(super) labels: Vec<(String, String)>,
}

impl Scope {
    /// The path where the API serves them.
    pub(super) fn collection<K: Kind>(&self) -> String {
        let group = self.group.as_deref().unwrap_or(K::GROUP);
        match &self.namespace {
            Some(namespace) => format!("{group}/namespaces/{namespace}/{}", K::RESOURCE),
            None => format!("{group}/{}", K::RESOURCE),
        }
    }

    /// The label selector; `None` for all objects.
    pub(super) fn selector(&self) -> Option<String> {
        let labels: Vec<String> =
            self.labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
        (!labels.is_empty()).then(|| labels.join(","))
    }
}

/// Requests all objects one by one, a bookmark, and then each change.
pub(super) fn initial_stream<K: Kind>(scope: &Scope, length: Duration) -> Request<Vec<u8>> {
    watch::<K>(scope, length, "sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
}

/// Requests each change after a version.
pub(super) fn follow<K: Kind>(scope: &Scope, version: &str, length: Duration) -> Request<Vec<u8>> {
    watch::<K>(scope, length, &format!("resourceVersion={}", escaped(version)))
}

fn watch<K: Kind>(scope: &Scope, length: Duration, from: &str) -> Request<Vec<u8>> {
    let length = length.as_secs();
    let selector = scope.selector().map(|it| format!("&labelSelector={}", escaped(&it)));
    let (collection, selector) = (scope.collection::<K>(), selector.unwrap_or_default());
    let query = format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={length}&{from}");
    Request::get(format!("{collection}?{query}{selector}"))
        .body(Vec::new())
        .expect("kinds, numbers and what is escaped make a URL")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CsiStorageCapacity;

    #[test]
    fn objects_of_a_namespace_and_with_labels_are_watched_from_any_version() {
        let scope = Scope {
            group: None,
            namespace: Some("n".to_owned()),
            labels: vec![("a.b/c".to_owned(), "d".to_owned()), ("e".to_owned(), "f".to_owned())],
        };
        let some = follow::<CsiStorageCapacity>(&scope, "1 2", Duration::from_secs(1));
        let path = "/apis/storage.k8s.io/v1/namespaces/n/csistoragecapacities";
        let query = "watch=true&allowWatchBookmarks=true&timeoutSeconds=1&resourceVersion=1%202";
        let labels = "labelSelector=a%2Eb%2Fc%3Dd%2Ce%3Df";
        assert_eq!(some.uri().to_string(), format!("{path}?{query}&{labels}"));
        let everywhere = Scope::default().collection::<CsiStorageCapacity>();
        assert_eq!(everywhere, "/apis/storage.k8s.io/v1/csistoragecapacities");
        let earlier =
            Scope { group: Some("/apis/storage.k8s.io/v1beta1".to_owned()), ..Scope::default() };
        let earlier = earlier.collection::<CsiStorageCapacity>();
        assert_eq!(earlier, "/apis/storage.k8s.io/v1beta1/csistoragecapacities");
    }
}
