//! Finds the node of a volume, if snapshotters run on every node.

use std::sync::Arc;

use wharf_cluster::{
    Attributes, Node, NodeSelectorRequirement, NodeSelectorTerm, PersistentVolume,
};

/// The first node, by name, that can reach the volume. `None` for a volume without node affinity,
/// or whose nodes are gone.
pub(super) fn node_of(volume: &PersistentVolume, nodes: Vec<Arc<Node>>) -> Option<String> {
    let terms = &volume.spec.node_affinity.as_ref()?.required.node_selector_terms;
    let reaches = |node: &Arc<Node>| terms.iter().any(|term| fits(term, &node.metadata.labels));
    let names = nodes.into_iter().filter(reaches).map(|node| node.metadata.name.clone());
    names.min()
}

fn fits(term: &NodeSelectorTerm, labels: &Attributes) -> bool {
    // A term without requirements selects nothing.
    let wanted = &term.match_expressions;
    !wanted.is_empty() && wanted.iter().all(|it| holds(it, labels.get(&it.key)))
}

fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = &requirement.values;
    let listed = value.is_some_and(|value| values.iter().any(|it| it == value));
    let number = |text: &str| text.parse::<i64>().ok();
    let numbers = value.and_then(number).zip(values.first().and_then(|it| number(it)));
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers.is_some_and(|(own, limit)| own > limit),
        "Lt" => numbers.is_some_and(|(own, limit)| own < limit),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(affinity: &Value) -> PersistentVolume {
        serde_json::from_value(json!({ "spec": { "nodeAffinity": affinity } })).unwrap()
    }

    fn nodes() -> Vec<Arc<Node>> {
        let node = |name: &str, zone: &str| {
            let labels = json!({ "zone": zone, "rank": "7" });
            let node = json!({ "metadata": { "name": name, "labels": labels } });
            Arc::new(serde_json::from_value(node).unwrap())
        };
        vec![node("b", "1"), node("a", "2"), node("c", "2")]
    }

    fn chosen(key: &str, operator: &str, values: &[&str]) -> Option<String> {
        let wanted = json!({ "key": key, "operator": operator, "values": values });
        let terms = json!([{ "matchExpressions": [wanted] }]);
        node_of(&volume(&json!({ "required": { "nodeSelectorTerms": terms } })), nodes())
    }

    #[test]
    fn the_first_node_that_reaches_the_volume_is_chosen() {
        let named = |name: &str| Some(name.to_owned());
        assert_eq!(chosen("zone", "In", &["1"]), named("b"));
        assert_eq!(chosen("zone", "In", &["2", "3"]), named("a"));
        assert_eq!(chosen("zone", "NotIn", &["2"]), named("b"));
        assert_eq!(chosen("rank", "Gt", &["6"]), named("a"));
        assert_eq!(chosen("rank", "Lt", &["7"]), None);
        assert_eq!(chosen("other", "Exists", &[]), None);
        assert_eq!(chosen("other", "DoesNotExist", &[]), named("a"));
    }

    #[test]
    fn a_volume_that_is_everywhere_has_no_node() {
        assert_eq!(node_of(&volume(&Value::Null), nodes()), None);
        let nowhere = json!({ "required": { "nodeSelectorTerms": [{}] } });
        assert_eq!(node_of(&volume(&nowhere), nodes()), None);
    }
}
