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

/// All objects one by one, a bookmark, and then each change.
pub(super) fn initial_stream<K: Kind>(length: Duration) -> Request<Vec<u8>> {
    let from = "sendInitialEvents=true&resourceVersionMatch=NotOlderThan";
    get::<K>(&format!("{}&{from}", watch(length)))
}

/// Each change after a version.
pub(super) fn follow<K: Kind>(version: &str, length: Duration) -> Request<Vec<u8>> {
    get::<K>(&format!("{}&resourceVersion={}", watch(length), escaped(version)))
}

/// A part of all objects: the first, or the one that a token of the server stands for.
pub(super) fn page<K: Kind>(token: Option<&str>) -> Request<Vec<u8>> {
    match token {
        Some(token) => get::<K>(&format!("limit={PAGE}&continue={}", escaped(token))),
        None => get::<K>(&format!("limit={PAGE}")),
    }
}

/// What a server wrote may be anything; most of them write base64, whose `+` is a space in a query.
fn escaped(text: &str) -> PercentEncode<'_> {
    utf8_percent_encode(text, NON_ALPHANUMERIC)
}

fn watch(length: Duration) -> String {
    format!("watch=true&allowWatchBookmarks=true&timeoutSeconds={}", length.as_secs())
}

fn get<K: Kind>(query: &str) -> Request<Vec<u8>> {
    Request::get(format!("{}/{}?{query}", K::GROUP, K::RESOURCE))
        .body(Vec::new())
        .expect("kinds, numbers and escaped tokens make a URL")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CsiNode;

    #[test]
    fn tokens_of_any_kind_arrive_as_they_came() {
        let uri = page::<CsiNode>(Some("a+b/c= ä&\n")).uri().to_string();
        assert!(uri.ends_with("&continue=a%2Bb%2Fc%3D%20%C3%A4%26%0A"), "{uri}");
        let uri = follow::<CsiNode>("1 2", Duration::from_secs(1)).uri().to_string();
        assert!(uri.ends_with("&resourceVersion=1%202"), "{uri}");
    }
}
