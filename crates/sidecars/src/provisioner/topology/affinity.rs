use serde_json::{Value, json};
use wharf_cluster::{NodeAffinity, NodeSelectorTerm};
use wharf_proto::csi::Topology;

use super::Segment;

/// The node affinity of a PersistentVolume; `None` for all nodes.
pub(in super::super) fn node_affinity(accessible: &[Topology]) -> Option<Value> {
    if accessible.is_empty() {
        return None;
    }
    let terms: Vec<Value> = accessible
        .iter()
        .filter(|topology| !topology.segments.is_empty())
        .map(|topology| {
            let required = topology
                .segments
                .iter()
                .map(|(key, value)| json!({ "key": key, "operator": "In", "values": [value] }));
            json!({ "matchExpressions": required.collect::<Vec<_>>() })
        })
        .collect();
    Some(json!({ "required": { "nodeSelectorTerms": terms } }))
}

/// Whether a volume is accessible from a segment. Without an affinity it is accessible from
/// everywhere.
pub(in super::super) fn is_within(affinity: Option<&NodeAffinity>, place: &Segment) -> bool {
    let Some(affinity) = affinity.filter(|_| !place.is_empty()) else { return true };
    affinity.required.node_selector_terms.iter().any(|term| matches(term, place))
}

/// The segments that a volume is accessible from, if its terms have the form of [`node_affinity`].
pub(in super::super) fn segments_of(affinity: &NodeAffinity) -> Vec<Segment> {
    affinity.required.node_selector_terms.iter().filter_map(segment).collect()
}

/// A term without requirements matches nothing.
fn matches(term: &NodeSelectorTerm, place: &Segment) -> bool {
    !term.match_expressions.is_empty()
        && term.match_expressions.iter().all(|required| {
            let value = place.get(&required.key);
            let listed = value.is_some_and(|value| required.values.contains(value));
            match required.operator.as_str() {
                "In" => listed,
                "NotIn" => !listed,
                "Exists" => value.is_some(),
                "DoesNotExist" => value.is_none(),
                // Operators that compare numbers: no driver's volume uses them.
                _ => false,
            }
        })
}

fn segment(term: &NodeSelectorTerm) -> Option<Segment> {
    let required = term.match_expressions.iter().map(|required| match &*required.values {
        [value] if required.operator == "In" => Some((required.key.clone(), value.clone())),
        _ => None,
    });
    required.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(pairs: &[(&str, &str)]) -> Segment {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    fn affinity(accessible: &[Topology]) -> Option<NodeAffinity> {
        node_affinity(accessible).map(|affinity| serde_json::from_value(affinity).unwrap())
    }

    #[test]
    fn what_the_driver_says_is_what_is_read_back() {
        let places = [place(&[("rack", "1"), ("zone", "a")]), place(&[("zone", "b")])];
        let accessible = places.clone().map(|segments| Topology { segments });
        let affinity = affinity(&accessible).unwrap();
        assert_eq!(segments_of(&affinity), places);
        assert!(is_within(Some(&affinity), &place(&[("zone", "b"), ("rack", "7")])));
        assert!(!is_within(Some(&affinity), &place(&[("zone", "a"), ("rack", "7")])));
    }

    #[test]
    fn a_volume_that_says_nothing_is_everywhere() {
        assert_eq!(node_affinity(&[]), None);
        assert!(is_within(None, &place(&[("zone", "a")])));
        let foreign = affinity(&[Topology { segments: place(&[("zone", "a")]) }]);
        assert!(is_within(foreign.as_ref(), &Segment::new()));
        // A topology without segments has no term, which matches nothing.
        let none = affinity(&[Topology::default()]);
        assert!(!is_within(none.as_ref(), &place(&[("zone", "a")])));
    }

    #[test]
    fn operators_are_the_schedulers() {
        let term = |operator: &str| {
            let required = json!({ "key": "zone", "operator": operator, "values": ["a"] });
            serde_json::from_value(json!({ "matchExpressions": [required] })).unwrap()
        };
        let here = place(&[("zone", "a")]);
        for (operator, expected) in [
            ("In", true),
            ("NotIn", false),
            ("Exists", true),
            ("DoesNotExist", false),
            ("Gt", false),
        ] {
            assert_eq!(matches(&term(operator), &here), expected, "{operator}");
        }
        assert!(!matches(&NodeSelectorTerm::default(), &here));
    }
}
