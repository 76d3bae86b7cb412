use std::collections::BTreeMap;

use wharf_cluster::{NodeSelectorRequirement, PersistentVolume};
use wharf_csi::Driver;

use super::{ResizerError, capabilities::failed};

/// A label that every node has, and can be selected by.
const HOSTNAME: &str = "kubernetes.io/hostname";

/// The topology of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Place(BTreeMap<String, String>);

impl Place {
    /// The segment of the driver's node, as NodeGetInfo reports it.
    pub(super) async fn of(node: &str, driver: &Driver) -> Result<Self, ResizerError> {
        let info = driver.node_info().await.map_err(failed("NodeGetInfo"))?;
        let mut labels = info.topology;
        labels.entry(HOSTNAME.to_owned()).or_insert_with(|| node.to_owned());
        Ok(Self(labels))
    }

    /// Whether a volume is accessible from here. A volume without a topology would be processed by
    /// every node, and so is by none.
    pub(super) fn holds(&self, volume: &PersistentVolume) -> bool {
        let Some(affinity) = &volume.spec.node_affinity else { return false };
        affinity.required.node_selector_terms.iter().any(|term| {
            let asked = &term.match_expressions;
            !asked.is_empty() && asked.iter().all(|it| self.fulfils(it))
        })
    }

    fn fulfils(&self, asked: &NodeSelectorRequirement) -> bool {
        let own = self.0.get(&asked.key);
        let listed = || own.is_some_and(|own| asked.values.contains(own));
        match asked.operator.as_str() {
            "In" => listed(),
            "NotIn" => !listed(),
            "Exists" => own.is_some(),
            "DoesNotExist" => own.is_none(),
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn holds(terms: &Value) -> bool {
        let affinity = json!({ "required": { "nodeSelectorTerms": terms } });
        let volume = json!({ "spec": { "nodeAffinity": affinity } });
        let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
        Place([("zone".to_owned(), "a".to_owned())].into()).holds(&volume)
    }

    #[test]
    fn a_volume_is_where_one_of_its_terms_holds() {
        let of = |key: &str, operator: &str, values: &[&str]| json!({ "matchExpressions": [{ "key": key, "operator": operator, "values": values }] });
        assert!(holds(&json!([of("zone", "In", &["b"]), of("zone", "In", &["c", "a"])])));
        assert!(!holds(&json!([of("zone", "In", &["b"])])));
        assert!(holds(&json!([of("zone", "NotIn", &["b"])])));
        assert!(holds(&json!([of("zone", "Exists", &[])])));
        assert!(holds(&json!([of("rack", "DoesNotExist", &[])])));
        assert!(!holds(&json!([of("zone", "Gt", &["0"])])));
        assert!(!holds(&json!([{}])));
        let place = Place([("zone".to_owned(), "a".to_owned())].into());
        assert!(!place.holds(&PersistentVolume::default()));
    }
}
