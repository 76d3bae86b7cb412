//! Places from which volumes and snapshots can be reached.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wharf_proto::csi;

/// A place, such as `{"topology.example.com/zone": "z1"}`.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Topology(pub BTreeMap<String, String>);

impl Topology {
    /// A place with one segment.
    pub fn new(key: impl Into<String>, value: impl Into<String>) -> Self {
        Self(BTreeMap::from([(key.into(), value.into())]))
    }

    /// Whether two places overlap: they have at least one segment key in common, and the values of
    /// all common keys are equal.
    #[must_use]
    pub fn meets(&self, other: &Self) -> bool {
        let mut shared = self.0.iter().filter_map(|(key, value)| Some((value, other.0.get(key)?)));
        match shared.next() {
            Some((own, others)) => own == others && shared.all(|(own, others)| own == others),
            None => false,
        }
    }
}

/// Places from which a volume or snapshot must be reachable.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TopologyRequirement {
    /// The object must be reachable from at least one of these; empty means anywhere.
    pub requisite: Vec<Topology>,
    /// Preferred places, best first.
    pub preferred: Vec<Topology>,
}

impl TopologyRequirement {
    /// Whether an object reachable from the `accessible` places satisfies the requirement. An empty
    /// list means everywhere.
    #[must_use]
    pub fn is_met_by(&self, accessible: &[Topology]) -> bool {
        self.requisite.is_empty()
            || accessible.is_empty()
            || self.requisite.iter().any(|place| accessible.iter().any(|own| own.meets(place)))
    }

    /// The places to try, best first, without duplicates.
    pub fn places(&self) -> impl Iterator<Item = &Topology> {
        let rest = self.requisite.iter().filter(|place| !self.preferred.contains(place));
        self.preferred.iter().chain(rest)
    }
}

impl From<csi::Topology> for Topology {
    fn from(topology: csi::Topology) -> Self {
        Self(topology.segments)
    }
}

impl From<Topology> for csi::Topology {
    fn from(topology: Topology) -> Self {
        Self { segments: topology.0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rack(zone: &str, rack: &str) -> Topology {
        let pairs = [("zone".to_owned(), zone.to_owned()), ("rack".to_owned(), rack.to_owned())];
        Topology(BTreeMap::from(pairs))
    }

    #[test]
    fn places_meet_where_they_agree() {
        let zone = Topology::new("zone", "a");
        assert!(zone.meets(&rack("a", "1")) && rack("a", "1").meets(&zone));
        assert!(!zone.meets(&rack("b", "1")));
        assert!(!rack("a", "1").meets(&rack("a", "2")));
        assert!(!zone.meets(&Topology::new("node", "a")));
    }

    #[test]
    fn any_requisite_place_will_do() {
        let (a, b) = (Topology::new("zone", "a"), Topology::new("zone", "b"));
        let requirement = TopologyRequirement {
            requisite: vec![a.clone(), b.clone()],
            preferred: vec![b.clone()],
        };
        assert!(requirement.is_met_by(std::slice::from_ref(&b)));
        assert!(requirement.is_met_by(&[]));
        assert!(!requirement.is_met_by(&[Topology::new("zone", "c")]));
        assert!(TopologyRequirement::default().is_met_by(std::slice::from_ref(&a)));
        assert_eq!(requirement.places().collect::<Vec<_>>(), [&b, &a]);
    }
}
