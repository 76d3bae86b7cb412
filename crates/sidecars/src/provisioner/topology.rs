//! The requested and the accessible topology of a volume.
//!
//! A driver names labels of nodes (its topology keys); a segment has a value for each of them, and
//! nodes with the same segment are equivalent. The request follows from the node that the scheduler
//! selected, the topologies that the class allows, and all segments of the cluster.
//!
//! - `segment`: segments, and how they are compared and listed.
//! - `spread`: distributes the volumes of a StatefulSet over segments.
//! - `places`: reads segments from the cluster, and keeps them for the next attempt.
//! - `affinity`: from the driver's answer to the nodes that reach a volume.

mod affinity;
mod places;
mod segment;
mod spread;

use wharf_cluster::TopologyTerm;
use wharf_proto::csi::{Topology, TopologyRequirement};

pub(super) use self::{
    affinity::{is_within, node_affinity, segments_of},
    places::{Memory, Places},
    segment::Segment,
};
use self::{
    segment::{flatten, holds, sort},
    spread::offset,
};

/// The topology settings of requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopologyOptions {
    /// Whether topology is used; if not, all drivers are treated as without topology.
    pub enabled: bool,
    /// Request only the segment of the selected node, without all others.
    pub strict: bool,
    /// Request all segments if no node was selected and the class allows all, instead of none.
    pub immediate: bool,
}

impl Default for TopologyOptions {
    fn default() -> Self {
        Self { enabled: true, strict: false, immediate: true }
    }
}

/// Why the topology of a request is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum TopologyRefusal {
    #[error("failed to get selected CSINode {0}: csinode.storage.k8s.io {0:?} not found")]
    UnknownNode(String),
    #[error("error generating accessibility requirements: no topology key found for node {0}")]
    NoKeys(String),
    #[error(
        "error generating accessibility requirements: the labels of node {node} do not have all topology keys of its \
         CSINode: {}",
        keys.join(", ")
    )]
    NoLabels { node: String, keys: Vec<String> },
    #[error(
        "error generating accessibility requirements: topology {segment:?} of selected node {node} is not in allowed \
         topologies"
    )]
    NotAllowed { node: String, segment: Segment },
    #[error("error generating accessibility requirements: no available topology found")]
    Nowhere,
    #[error(
        "error generating accessibility requirements: no node has all of the topology keys {}",
        .0.join(", ")
    )]
    KeysNowhere(Vec<String>),
}

/// The subject of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish<'a> {
    pub(super) claim: &'a str,
    pub(super) allowed: &'a [TopologyTerm],
    /// The node that the scheduler selected.
    pub(super) node: Option<&'a str>,
}

/// The topology of the request; `None` leaves it to the driver. `memory` is that of earlier
/// attempts.
pub(super) fn requirement(
    wish: Wish<'_>,
    options: TopologyOptions,
    places: &Places<'_>,
    memory: &mut Memory,
) -> Result<Option<TopologyRequirement>, TopologyRefusal> {
    memory.turn_to(wish.node);
    let selected = match wish.node {
        Some(node) => Some((node, places.of_node(node, memory)?)),
        None => None,
    };
    let mut requisite = match &selected {
        Some((node, segment)) if options.strict => {
            let allowed = flatten(wish.allowed);
            if !wish.allowed.is_empty() && !allowed.iter().any(|it| holds(it, segment)) {
                let (node, segment) = ((*node).to_owned(), segment.clone());
                return Err(TopologyRefusal::NotAllowed { node, segment });
            }
            vec![segment.clone()]
        }
        _ if !wish.allowed.is_empty() => flatten(wish.allowed),
        None if !options.immediate => return Ok(None),
        _ => places.all(memory)?,
    };
    if requisite.is_empty() {
        return Ok(None);
    }
    sort(&mut requisite);
    let first = match &selected {
        None => offset(wish.claim, requisite.len()),
        Some(_) if options.strict => 0,
        Some((node, segment)) => {
            requisite.iter().position(|it| holds(it, segment)).ok_or_else(|| {
                let (node, segment) = ((*node).to_owned(), segment.clone());
                TopologyRefusal::NotAllowed { node, segment }
            })?
        }
    };
    let mut preferred = requisite.clone();
    preferred.rotate_left(first);
    Ok(Some(TopologyRequirement { requisite: message(requisite), preferred: message(preferred) }))
}

fn message(segments: Vec<Segment>) -> Vec<Topology> {
    let named = segments.into_iter().filter(|segment| !segment.is_empty());
    named.map(|segments| Topology { segments }).collect()
}

#[cfg(test)]
mod tests;
