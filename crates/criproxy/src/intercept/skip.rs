//! Pods that want no hooks: a hook server that runs as a pod must not wait for itself.

use std::collections::BTreeMap;
use std::fmt;

use wharf_facts::hook;

/// The label or annotation that takes a pod out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Its key.
    pub key: String,
    /// The value that it has to have.
    pub value: String,
}

impl Default for Skip {
    /// As in koord-runtime-proxy.
    fn default() -> Skip {
        Skip { key: hook::SKIP_LABEL.to_owned(), value: hook::SKIP_VALUE.to_owned() }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

impl Skip {
    pub(crate) fn applies(
        &self,
        labels: &BTreeMap<String, String>,
        annotations: &BTreeMap<String, String>,
    ) -> bool {
        [labels, annotations].iter().any(|map| map.get(&self.key) == Some(&self.value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_a_label_or_an_annotation_with_that_value() {
        let skip = Skip::default();
        let none = BTreeMap::new();
        let with = |value: &str| BTreeMap::from([(skip.key.clone(), value.to_owned())]);
        assert!(skip.applies(&with("true"), &none));
        assert!(skip.applies(&none, &with("true")));
        assert!(!skip.applies(&with("false"), &with("True")));
        assert!(!skip.applies(&none, &none));
    }
}
