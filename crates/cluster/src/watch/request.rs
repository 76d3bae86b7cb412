//! Lists and watches as HTTP.

use std::time::Duration;

use http::Request;
use percent_encoding::{NON_ALPHANUMERIC, PercentEncode, utf8_percent_encode};
use serde::Deserialize;

use crate::Kind;

const PAGE: usize = 500;

/// A page of a list.
#[derive(Deserialize)]
pub(super) struct List<K> {
    #[serde(default)]
    pub(super) metadata: ListMeta,
    #[serde(default = "Vec::new")]
    pub(super) items: Vec<K>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ListMeta {
    pub(super) resource_version: String,
    #[serde(rename = "continue")]
    pub(super) next: Option<String>,
}

/// Which objects of a kind are asked for; all of them by default.
#[derive(Clone, Debug, Default)]
pub(super) struct Scope {
    /// Those in this namespace only.
    pub(super) namespace: Option<String>,
    /// Those with these labels only.
    pub(super) labels: Vec<(String, String)>,
}

/// All objects one by one, a bookmark, and then each change.
pub(super) fn initial_stream<K: Kind>(scope: &Scope, length: Duration) -> Request<Vec<u8>> {
    let from = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    get::<K>(scope, &format!("{}&{from}", watch(length)))
}

/// Each change after a version.
pub(super) fn follow<K: Kind>(scope: &Scope, version: &str, length: Duration) -> Request<Vec<u8>> {
    get::<K>(scope, &format!("{}&resourceVersion={}", watch(length), escaped(version)))
}

/// A part of all objects: the first, or the one that a token of the server stands for.
pub(super) fn page<K: Kind>(scope: &Scope, token: Option<&str>) -> Request<Vec<u8>> {
    match token {
        Some(token) => get::<K>(scope, &format!("limit={PAGE}&continue={}", escaped(token))),
        None => get::<K>(scope, &format!("limit={PAGE}")),
    }
}

/// What a server wrote may be anything; most of them write base64, whose `+` is a space in a query.
fn escaped(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

fn watch(length: Duration) -> String {
    format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={}", length.as_secs())
}

fn get<K: Kind>(scope: &Scope, query: &str) -> Request<Vec<u8>> {
    let namespace = match &scope.namespace {
        Some(namespace) => format!("/namespaces/{namespace}"),
        None => String::new(),
    };
    // Neither names nor values of labels have characters that a query would read otherwise.
    let labels: Vec<String> =
        scope.labels.iter().map(|(key, value)| format!("{key}%3D{value}")).collect();
    let labels = match labels.is_empty() {
        true => String::new(),
        false => format!("&labelSelector={}", labels.join(",")),
    };
    Request::get(format!("{}{namespace}/{}?{query}{labels}", K::GROUP, K::RESOURCE))
        .body(Vec::new())
        .expect("kinds, numbers, labels and escaped tokens make a URL")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CsiNode, CsiStorageCapacity};

    #[test]
    fn tokens_of_any_kind_arrive_as_they_came() {
        let uri = page::<CsiNode>(&Scope::default(), Some("a+b/c= ä&\n")).uri().to_string();
        assert!(uri.ends_with("&continue=a%2Bb%2Fc%3D%20%C3%A4%26%0A"), "{uri}");
        let uri = follow::<CsiNode>(&Scope::default(), "1 2", Duration::from_secs(1));
        let uri = uri.uri().to_string();
        assert!(uri.ends_with("&resourceVersion=1%202"), "{uri}");
    }

    #[test]
    fn objects_of_a_namespace_and_with_labels_are_asked_for() {
        let scope = Scope {
            namespace: Some("n".to_owned()),
            labels: vec![("a.b/c".to_owned(), "d".to_owned()), ("e".to_owned(), "f".to_owned())],
        };
        let path = "/apis/storage.k8s.io/v1/namespaces/n/csistoragecapacities";
        let all = page::<CsiStorageCapacity>(&scope, None).uri().to_string();
        assert_eq!(all, format!("{path}?limit=500&labelSelector=a.b/c%3Dd,e%3Df"));
        let everywhere = page::<CsiStorageCapacity>(&Scope::default(), None).uri().to_string();
        assert_eq!(everywhere, "/apis/storage.k8s.io/v1/csistoragecapacities?limit=500");
    }
}
