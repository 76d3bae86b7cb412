use std::{cmp::Ordering, collections::BTreeMap};

use wharf_cluster::TopologyTerm;

/// A segment: a value for each topology key.
pub(in super::super) type Segment = BTreeMap<String, String>;

/// Whether a segment satisfies a requirement.
pub(super) fn holds(asked: &Segment, place: &Segment) -> bool {
    asked.iter().all(|(key, value)| place.get(key) == Some(value))
}

/// Each segment once, in the order that the spreading uses: those with fewer keys first.
pub(super) fn sort(segments: &mut Vec<Segment>) {
    let order = |a: &Segment, b: &Segment| match a.len().cmp(&b.len()) {
        Ordering::Equal => a.iter().cmp(b.iter()),
        unequal => unequal,
    };
    segments.sort_by(order);
    segments.dedup();
}

/// The segments that a class allows. Its terms are alternatives, whose requirements must all match,
/// each with alternative values; here each combination is listed.
pub(super) fn flatten(allowed: &[TopologyTerm]) -> Vec<Segment> {
    allowed.iter().flat_map(flatten_term).collect()
}

fn flatten_term(term: &TopologyTerm) -> Vec<Segment> {
    let mut places = Vec::<Segment>::new();
    for requirement in &term.match_label_expressions {
        let before = if places.is_empty() { vec![Segment::new()] } else { places };
        places = requirement
            .values
            .iter()
            .flat_map(|value| {
                before.iter().cloned().map(|mut place| {
                    place.insert(requirement.key.clone(), value.clone());
                    place
                })
            })
            .collect();
    }
    places
}
