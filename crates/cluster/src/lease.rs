//! One Lease object: the fields that replicas read and write.
//!
//! Lease objects are kept and written whole, so that fields that this build does not know survive
//! an election.

mod api;
#[cfg(test)]
pub(crate) mod fake;

use std::{collections::BTreeMap, time::Duration};

use k8s_openapi::{apimachinery::pkg::apis::meta::v1::MicroTime, jiff::Timestamp};
use serde_json::{Map, Value, json};

pub use api::{KubeLease, LeaseApi, LeaseVersions};

/// A Lease as the API returned it.
#[derive(Clone, Debug, PartialEq)]
pub struct Lease(pub Value);

impl Lease {
    /// The holder's identity; empty if nobody holds it.
    pub fn holder(&self) -> &str {
        self.spec()["holderIdentity"].as_str().unwrap_or_default()
    }

    /// How long a holder counts as alive after its last renewal was seen.
    pub fn duration(&self) -> Duration {
        Duration::from_secs(self.spec()["leaseDurationSeconds"].as_u64().unwrap_or_default())
    }

    /// The fields that each renewal changes.
    pub fn spec(&self) -> &Value {
        &self.0["spec"]
    }

    /// The time of the last renewal, by its holder's clock.
    pub(crate) fn renew_time(&self) -> &Value {
        &self.spec()["renewTime"]
    }

    /// The version that a write has to be based on.
    pub fn version(&self) -> &str {
        self.0["metadata"]["resourceVersion"].as_str().unwrap_or_default()
    }

    /// The same Lease, released in the way that client-go's replicas understand: no holder, and a
    /// duration of one second.
    #[must_use]
    pub fn released(&self, now: Timestamp) -> Lease {
        let mut lease = self.clone();
        let spec = lease.edit_spec();
        spec.remove("holderIdentity");
        spec.insert("leaseDurationSeconds".into(), json!(1));
        spec.insert("acquireTime".into(), json!(MicroTime(now)));
        spec.insert("renewTime".into(), json!(MicroTime(now)));
        lease
    }

    fn edit_spec(&mut self) -> &mut Map<String, Value> {
        object(&mut self.0["spec"])
    }
}

/// The fields that a replica writes to hold the Lease.
#[derive(Clone, Debug)]
pub struct LeaseClaim {
    /// The replica's identity.
    pub identity: String,
    /// The lease duration, in whole seconds.
    pub seconds: u32,
    /// Labels to set; others stay.
    pub labels: BTreeMap<String, String>,
}

impl LeaseClaim {
    /// A new Lease.
    pub fn first(&self, namespace: &str, name: &str, now: Timestamp) -> Lease {
        let mut lease = Lease(json!({
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": { "name": name, "namespace": namespace },
            "spec": { "acquireTime": MicroTime(now), "leaseTransitions": 0 },
        }));
        self.write(&mut lease, now);
        lease
    }

    /// An existing Lease, renewed if it is ours, taken over if not.
    pub fn on(&self, lease: &Lease, now: Timestamp) -> Lease {
        let mut claimed = lease.clone();
        if lease.holder() != self.identity {
            let transitions = lease.spec()["leaseTransitions"].as_i64().unwrap_or_default();
            let spec = claimed.edit_spec();
            spec.insert("leaseTransitions".into(), json!(transitions.saturating_add(1)));
            spec.insert("acquireTime".into(), json!(MicroTime(now)));
        }
        self.write(&mut claimed, now);
        claimed
    }

    fn write(&self, lease: &mut Lease, now: Timestamp) {
        let spec = lease.edit_spec();
        spec.insert("holderIdentity".into(), json!(self.identity));
        spec.insert("leaseDurationSeconds".into(), json!(self.seconds));
        spec.insert("renewTime".into(), json!(MicroTime(now)));
        if !self.labels.is_empty() {
            let labels = object(&mut lease.0["metadata"]["labels"]);
            labels.extend(self.labels.iter().map(|(key, value)| (key.clone(), json!(value))));
        }
    }
}

/// The object in `value`, which is replaced by an empty one if it is something else.
fn object(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("made an object just above")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claim(identity: &str) -> LeaseClaim {
        let labels = BTreeMap::from([("team".to_owned(), "storage".to_owned())]);
        LeaseClaim { identity: identity.to_owned(), seconds: 15, labels }
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn a_first_claim_is_what_client_go_creates() {
        assert_eq!(
            claim("node-a").first("storage", "external-attacher-leader-x", at(0)).0,
            json!({
                "apiVersion": "coordination.k8s.io/v1",
                "kind": "Lease",
                "metadata": {
                    "name": "external-attacher-leader-x",
                    "namespace": "storage",
                    "labels": { "team": "storage" },
                },
                "spec": {
                    "holderIdentity": "node-a",
                    "leaseDurationSeconds": 15,
                    "acquireTime": "1970-01-01T00:00:00.000000Z",
                    "renewTime": "1970-01-01T00:00:00.000000Z",
                    "leaseTransitions": 0,
                },
            })
        );
    }

    #[test]
    fn a_renewal_keeps_the_term_and_a_takeover_counts_it() {
        let mut lease = claim("node-a").first("storage", "x", at(0));
        lease.0["spec"]["strategy"] = json!("OldestEmulationVersion");
        lease.0["metadata"]["labels"]["other"] = json!("stays");

        let renewed = claim("node-a").on(&lease, at(5));
        assert_eq!(renewed.spec()["acquireTime"], lease.spec()["acquireTime"]);
        assert_eq!(renewed.spec()["renewTime"], "1970-01-01T00:00:05.000000Z");
        assert_eq!(renewed.spec()["leaseTransitions"], 0);

        let taken = claim("node-b").on(&renewed, at(20));
        assert_eq!(taken.holder(), "node-b");
        assert_eq!(taken.spec()["acquireTime"], "1970-01-01T00:00:20.000000Z");
        assert_eq!(taken.spec()["leaseTransitions"], 1);
        assert_eq!(taken.spec()["strategy"], "OldestEmulationVersion", "an unknown field was lost");
        assert_eq!(taken.0["metadata"]["labels"], json!({ "team": "storage", "other": "stays" }));
    }

    #[test]
    fn a_released_lease_is_held_by_nobody_and_keeps_its_count() {
        let lease = claim("node-b").on(&claim("node-a").first("storage", "x", at(0)), at(5));
        let released = lease.released(at(9));
        assert_eq!(released.holder(), "");
        assert_eq!(released.duration(), Duration::from_secs(1));
        assert_eq!(released.spec()["leaseTransitions"], 1);
        assert_eq!(claim("node-a").on(&released, at(10)).spec()["leaseTransitions"], 2);
    }

    #[test]
    fn a_lease_of_strangers_may_lack_everything() {
        let lease = Lease(json!({ "metadata": { "name": "x" }, "spec": null }));
        assert_eq!((lease.holder(), lease.version()), ("", ""));
        assert_eq!(lease.duration(), Duration::ZERO);
        assert_eq!(claim("node-a").on(&lease, at(0)).holder(), "node-a");
    }
}
