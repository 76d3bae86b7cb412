//! Pods that want no hooks: a hook server that runs as a pod must not wait for itself.

use std::{collections::BTreeSet, fmt, str::FromStr};

use wharf_facts::hook;
use wharf_proto::hooks::PodSandboxHookRequest;

/// The label that takes a pod out, and where it counts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip {
    /// Its key.
    pub key: String,
    /// The value that it has to have.
    pub value: String,
    /// Whether an annotation of this key and value takes a pod out, too. Admission policies often
    /// look at labels only.
    pub by_annotation: bool,
    /// Namespaces whose pods can be taken out; all if it is empty.
    pub namespaces: BTreeSet<String>,
}

impl Default for Skip {
    /// As in koord-runtime-proxy.
    fn default() -> Self {
        Self {
            key: hook::SKIP_LABEL.to_owned(),
            value: hook::SKIP_VALUE.to_owned(),
            by_annotation: false,
            namespaces: BTreeSet::new(),
        }
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

impl FromStr for Skip {
    type Err = String;

    /// Reads `KEY=VALUE`, a label in any namespace.
    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((key, value)) if !key.is_empty() => {
                Ok(Self { key: key.to_owned(), value: value.to_owned(), ..Self::default() })
            }
            _ => Err("expected KEY=VALUE".to_owned()),
        }
    }
}

impl Skip {
    pub(crate) fn applies(&self, pod: &PodSandboxHookRequest) -> bool {
        let namespace = pod.pod_meta.as_ref().map_or("", |meta| &meta.namespace);
        if !self.namespaces.is_empty() && !self.namespaces.contains(namespace) {
            return false;
        }
        pod.labels.get(&self.key) == Some(&self.value)
            || self.by_annotation && pod.annotations.get(&self.key) == Some(&self.value)
    }
}

#[cfg(test)]
mod tests {
    use wharf_proto::hooks::PodSandboxMetadata;

    use super::*;

    fn pod(namespace: &str, label: &str, annotation: &str) -> PodSandboxHookRequest {
        let pair = |value: &str| [(hook::SKIP_LABEL.to_owned(), value.to_owned())].into();
        let namespace = namespace.to_owned();
        PodSandboxHookRequest {
            pod_meta: Some(PodSandboxMetadata { namespace, ..PodSandboxMetadata::default() }),
            labels: pair(label),
            annotations: pair(annotation),
            ..PodSandboxHookRequest::default()
        }
    }

    #[test]
    fn a_label_with_that_value() {
        let skip = Skip::default();
        assert!(skip.applies(&pod("a", "true", "")));
        assert!(!skip.applies(&pod("a", "True", "true")));
        assert!(!skip.applies(&PodSandboxHookRequest::default()));
    }

    #[test]
    fn an_annotation_where_that_is_wanted() {
        let skip = Skip { by_annotation: true, ..Skip::default() };
        assert!(skip.applies(&pod("a", "", "true")));
        assert!(skip.applies(&pod("a", "true", "")));
        assert!(!skip.applies(&pod("a", "", "")));
    }

    #[test]
    fn a_pod_of_these_namespaces() {
        let namespaces = ["koordinator-system".to_owned()].into();
        let skip = Skip { namespaces, by_annotation: true, ..Skip::default() };
        assert!(skip.applies(&pod("koordinator-system", "true", "")));
        assert!(!skip.applies(&pod("default", "true", "true")));
        let nameless = PodSandboxHookRequest { pod_meta: None, ..pod("", "true", "true") };
        assert!(!skip.applies(&nameless));
    }
}
