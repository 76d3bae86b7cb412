//! Where a volume is to be made, and from where it can be reached.
//!
//! A driver names labels of nodes (its topology keys); a segment gives each of them a value, and nodes with the same segment
//! are one place. What the driver is asked for follows from the node that the scheduler picked, the places that the class
//! allows, and all places that there are.
//!
//! - `segment`: places, and how they are compared and listed.
//! - `spread`: how the volumes of a StatefulSet go to different places.
//! - `places`: what the cluster says about places, and what is remembered of it for the next attempt.
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

/// How a driver wants to be told of places.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopologyOptions {
    /// At all; where not, all drivers are taken for such as do not care.
    pub enabled: bool,
    /// Of the place of the selected node only, and not of all others as well.
    pub strict: bool,
    /// Of all places where no node was selected and the class allows all, and not of none.
    pub immediate: bool,
}

impl Default for TopologyOptions {
    fn default() -> Self {
        Self { enabled: true, strict: false, immediate: true }
    }
}

/// Why it is not known where a volume is to be made.
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

/// What is asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Wish<'a> {
    pub(super) claim: &'a str,
    pub(super) allowed: &'a [TopologyTerm],
    /// The node that the scheduler picked.
    pub(super) node: Option<&'a str>,
}

/// What the driver is told; `None` leaves it all to the driver. `memory` is what earlier attempts were told by.
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
    let told = segments.into_iter().filter(|segment| !segment.is_empty());
    told.map(|segments| Topology { segments }).collect()
}

#[cfg(test)]
#[path = "topology_tests.rs"]
mod tests;
