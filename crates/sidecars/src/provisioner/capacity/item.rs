use std::collections::HashSet;

use wharf_cluster::{CsiStorageCapacity, StorageClass};

use super::{Capacities, Segment};

/// A class in a segment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Item {
    pub(super) class: String,
    pub(super) segment: Segment,
}

impl Item {
    /// The item of an object.
    pub(super) fn of(object: &CsiStorageCapacity) -> Option<Self> {
        let segment = object.node_topology.as_ref()?.match_labels.to_map();
        Some(Self { class: object.storage_class_name.clone(), segment })
    }

    /// The index key of its objects.
    pub(super) fn key(&self) -> String {
        let place = self.segment.iter().map(|(label, value)| (label.as_str(), value.as_str()));
        CsiStorageCapacity::key(&self.class, place)
    }
}

/// The items that need an object: each relevant class, in each segment.
pub(super) fn desired(capacities: &Capacities) -> HashSet<Item> {
    let counts = |class: &StorageClass| {
        class.provisioner == capacities.driver_name
            && (capacities.options.immediate || class.waits_for_consumer())
    };
    let classes = capacities.classes.all();
    let places = places(capacities);
    let classes = classes.iter().filter(|class| counts(class));
    classes
        .flat_map(|class| {
            places.iter().map(|segment| Item {
                class: class.metadata.name.clone(),
                segment: segment.clone(),
            })
        })
        .collect()
}

fn places(capacities: &Capacities) -> HashSet<Segment> {
    if let Some(place) = &capacities.place {
        return HashSet::from([place.clone()]);
    }
    let nodes = capacities.csi_nodes.all();
    let places = nodes.iter().filter_map(|csi_node| {
        let keys = csi_node.topology_keys(&capacities.driver_name);
        let node = capacities.nodes.get(&csi_node.metadata.name).filter(|_| !keys.is_empty())?;
        let labels = &node.metadata.labels;
        keys.iter().map(|key| Some((key.clone(), labels.get(key)?.to_owned()))).collect()
    });
    places.collect()
}

/// The API's limit for the value of a label.
const MAX_LABEL: usize = 63;

/// The value of the label that names the manager of the objects.
pub(super) fn managed_by(node: Option<&str>) -> String {
    let base = "external-provisioner";
    let Some(node) = node else { return base.to_owned() };
    let name = format!("{base}-{node}");
    if name.len() <= MAX_LABEL {
        return name;
    }
    // A hash replaces the part that does not fit.
    match MAX_LABEL.checked_sub("-12345678-".len() + node.len()).filter(|left| *left > 0) {
        Some(left) => format!("{}-{:08x}-{node}", &base[..left.min(base.len())], fnv1a(base)),
        None => format!("{base}-{:08x}", fnv1a(&name)),
    }
}

fn fnv1a(text: &str) -> u32 {
    text.bytes()
        .fold(2_166_136_261, |hash: u32, byte| (hash ^ u32::from(byte)).wrapping_mul(16_777_619))
}

#[cfg(test)]
mod tests;
