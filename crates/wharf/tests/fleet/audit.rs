//! The writers of objects, from the API server's audit log.

use std::{
    collections::{BTreeMap, BTreeSet},
    net::Ipv4Addr,
};

use jiff::Timestamp;
use serde_json::Value;

use crate::{
    rights::named,
    role::{EVENTLESS, OLDER, READER, RIGHTLESS},
    site::Site,
};

const FORBIDDEN: u16 = 403;
const WRITES: [&str; 4] = ["create", "update", "patch", "delete"];

/// The writes that came from an address, in their order, without those of Leases and events.
pub(crate) fn writes(site: &Site, from: Ipv4Addr) -> Vec<Value> {
    let from = from.to_string();
    let mut told = told(site, &from);
    told.retain(|it| it["sourceIPs"][0] == from.as_str() && is_write(it));
    told
}

/// The kinds of which all objects were asked for from an address, from `since` on, and how often.
pub(crate) fn listed(site: &Site, from: Ipv4Addr, since: Timestamp) -> BTreeMap<String, usize> {
    let mut told = told(site, "sendInitialEvents=true");
    told.retain(|it| {
        let at = it["requestReceivedTimestamp"].as_str().and_then(|at| at.parse().ok());
        // A request is told of when it comes in and at its end.
        it["sourceIPs"][0] == from.to_string().as_str()
            && it["stage"] != "ResponseComplete"
            && at.is_some_and(|at: Timestamp| at >= since)
    });
    let mut listed = BTreeMap::new();
    for resource in told.iter().filter_map(|it| it["objectRef"]["resource"].as_str()) {
        *listed.entry(resource.to_owned()).or_default() += 1;
    }
    listed
}

/// Sees to it that nobody who has the roles of deploy/ asked for more.
pub(crate) fn assert_allowed(site: &Site) {
    let mut told = told(site, &FORBIDDEN.to_string());
    let lacks = |event: &Value| {
        [EVENTLESS, OLDER, READER, RIGHTLESS]
            .iter()
            .any(|user| event["impersonatedUser"]["username"] == **user)
    };
    told.retain(|it| it["responseStatus"]["code"] == FORBIDDEN && !lacks(it));
    assert!(told.is_empty(), "refused: {told:#?}");
}

/// What a user has asked for and was not refused: verbs, with what they were done to.
pub(crate) fn rights(site: &Site, user: &str) -> BTreeSet<(String, String)> {
    let mut told = told(site, &format!("\"username\":\"{user}\""));
    told.retain(|it| {
        it["impersonatedUser"]["username"] == user && it["responseStatus"]["code"] != FORBIDDEN
    });
    let text = |of: &Value| of.as_str().unwrap_or_default().to_owned();
    let right = |event: &Value| {
        let object = &event["objectRef"];
        let part = object["subresource"].as_str().map(|it| format!("/{it}")).unwrap_or_default();
        let resource = format!("{}{part}", text(&object["resource"]));
        (text(&event["verb"]), named(&resource, &text(&object["apiGroup"])))
    };
    told.iter().map(right).collect()
}

/// What the log has in lines with this text.
fn told(site: &Site, text: &str) -> Vec<Value> {
    let log = std::fs::read_to_string(site.cluster.audit_log()).unwrap();
    let lines = log.lines().filter(|line| line.contains(text));
    // The last line may be on its way.
    lines.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn is_write(event: &Value) -> bool {
    let is_aside = ["leases", "events"].iter().any(|it| event["objectRef"]["resource"] == **it);
    !is_aside && WRITES.iter().any(|verb| event["verb"] == **verb)
}
