//! Lists and watches as HTTP.

use std::time::Duration;

use http::Request;
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

/// All objects one by one, a bookmark, and then each change.
pub(super) fn initial_stream<K: Kind>(length: Duration) -> Request<Vec<u8>> {
    let from = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    get::<K>(&format!("{}&{from}", watch(length)))
}

/// Each change after a version.
pub(super) fn follow<K: Kind>(version: &str, length: Duration) -> Request<Vec<u8>> {
    get::<K>(&format!("{}&resourceVersion={version}", watch(length)))
}

/// A part of all objects: the first, or the one that a token of the server stands for.
pub(super) fn page<K: Kind>(token: Option<&str>) -> Request<Vec<u8>> {
    match token {
        Some(token) => get::<K>(&format!("limit={PAGE}&continue={token}")),
        None => get::<K>(&format!("limit={PAGE}")),
    }
}

fn watch(length: Duration) -> String {
    format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={}", length.as_secs())
}

fn get<K: Kind>(query: &str) -> Request<Vec<u8>> {
    Request::get(format!("{}/{}?{query}", K::GROUP, K::RESOURCE))
        .body(Vec::new())
        .expect("kinds, numbers and the server's own tokens make a URL")
}
