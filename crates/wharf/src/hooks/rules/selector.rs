//! Selects the pods and containers of a rule.

use std::{collections::BTreeMap, str::FromStr};

use serde::{Deserialize, Deserializer, de};
use wharf_hooks::{Pod, QosClass};

use super::pattern::Pattern;

/// A missing key selects everything.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Selector {
    namespaces: Option<Vec<Pattern>>,
    #[serde(default)]
    labels: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "classes")]
    qos: Option<Vec<QosClass>>,
    containers: Option<Vec<String>>,
}

impl Selector {
    /// Whether the selector matches this pod, or some of its containers.
    pub(super) fn selects(&self, pod: &Pod, qos: Option<QosClass>) -> bool {
        let namespaces = self.namespaces.as_ref();
        namespaces.is_none_or(|all| all.iter().any(|one| one.matches(&pod.namespace)))
            && self.labels.iter().all(|(key, value)| pod.labels.get(key) == Some(value))
            && self.qos.as_ref().is_none_or(|all| qos.is_some_and(|qos| all.contains(&qos)))
    }

    /// Whether the selector matches the container of this name in a matching pod.
    pub(super) fn selects_container(&self, name: &str) -> bool {
        self.containers.as_ref().is_none_or(|names| names.iter().any(|own| own == name))
    }

    /// Whether the selector names containers.
    pub(super) fn is_of_containers(&self) -> bool {
        self.containers.is_some()
    }

    /// The selector's mistakes: an empty list would never match.
    pub(super) fn mistakes(&self) -> Vec<String> {
        let lists = [
            ("match.namespaces", self.namespaces.as_ref().map(Vec::len)),
            ("match.qos", self.qos.as_ref().map(Vec::len)),
            ("match.containers", self.containers.as_ref().map(Vec::len)),
        ];
        let empty = lists.into_iter().filter(|(_, length)| *length == Some(0));
        empty
            .map(|(key, _)| format!("{key}: expected at least one entry, or no such key"))
            .collect()
    }
}

fn classes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Vec<QosClass>>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    let classes = names.iter().map(|name| QosClass::from_str(name));
    classes.collect::<Result<_, _>>().map(Some).map_err(de::Error::custom)
}
