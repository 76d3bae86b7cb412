//! The changes of a rule.

use std::collections::BTreeMap;

use serde::{Deserialize, Deserializer, de};
use wharf_facts::quantity;
use wharf_hooks::adjustment::{ContainerAdjustment, PodAdjustment, ResourceAdjustment};

/// Labels by which the kubelet finds its own pods.
const KUBELETS: &str = "io.kubernetes.";

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Set {
    cpuset: Option<String>,
    cpuset_mems: Option<String>,
    cpu_shares: Option<u64>,
    cpu_quota: Option<i64>,
    cpu_period: Option<u64>,
    #[serde(default, deserialize_with = "bytes")]
    memory: Option<u64>,
    #[serde(default, deserialize_with = "bytes")]
    memory_swap: Option<u64>,
    oom_score_adj: Option<i64>,
    #[serde(default)]
    unified: BTreeMap<String, String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default)]
    annotations: BTreeMap<String, String>,
    #[serde(default)]
    pod_labels: BTreeMap<String, String>,
    #[serde(default)]
    pod_annotations: BTreeMap<String, String>,
    cgroup_parent: Option<String>,
}

impl Set {
    pub(super) fn sandbox(&self, mut to: PodAdjustment) -> PodAdjustment {
        for (key, value) in &self.pod_labels {
            to = to.label(key, value);
        }
        for (key, value) in &self.pod_annotations {
            to = to.annotation(key, value);
        }
        with(to, self.cgroup_parent.as_ref(), PodAdjustment::cgroup_parent)
    }

    /// Repeats the cgroup parent, for proxies that do not remember it.
    pub(super) fn container(&self, to: ContainerAdjustment) -> ContainerAdjustment {
        let mut to = to.resources(self.resources(ResourceAdjustment::new()));
        for (key, value) in &self.annotations {
            to = to.annotation(key, value);
        }
        for (name, value) in &self.env {
            to = to.env(name, value);
        }
        with(to, self.cgroup_parent.as_ref(), ContainerAdjustment::cgroup_parent)
    }

    pub(super) fn resources(&self, mut to: ResourceAdjustment) -> ResourceAdjustment {
        for (file, value) in &self.unified {
            to = to.unified(file, value);
        }
        to = with(to, self.cpuset.as_ref(), ResourceAdjustment::cpuset);
        to = with(to, self.cpuset_mems.as_ref(), ResourceAdjustment::cpuset_mems);
        to = with(to, self.cpu_shares, ResourceAdjustment::cpu_shares);
        to = with(to, self.cpu_quota, ResourceAdjustment::cpu_quota);
        to = with(to, self.cpu_period, ResourceAdjustment::cpu_period);
        to = with(to, self.memory, ResourceAdjustment::memory);
        to = with(to, self.memory_swap, ResourceAdjustment::memory_swap);
        with(to, self.oom_score_adj, ResourceAdjustment::oom_score_adj)
    }

    /// Whether any change is to a whole pod.
    pub(super) fn changes_pods(&self) -> bool {
        self.sandbox(PodAdjustment::new()) != PodAdjustment::new()
    }

    /// The mistakes, one per key.
    pub(super) fn mistakes(&self) -> Vec<String> {
        let container = self.container(ContainerAdjustment::new());
        if container == ContainerAdjustment::new() && !self.changes_pods() {
            return vec!["set: expected at least one key".to_owned()];
        }
        let mut mistakes = Vec::new();
        for key in self.pod_labels.keys().filter(|key| key.starts_with(KUBELETS)) {
            let expected = "a label other than those by which the kubelet finds its pods";
            mistakes.push(format!("set.podLabels[{key}]: expected {expected}"));
        }
        if let Err(error) = container.check() {
            mistakes.push(format!("set.{}: expected {}", key(&error.field), error.expected));
        } else if let Err(error) = self.sandbox(PodAdjustment::new()).check() {
            let key = match error.field.as_str() {
                "labels" => "podLabels".to_owned(),
                "annotations" => "podAnnotations".to_owned(),
                field => key(field),
            };
            mistakes.push(format!("set.{key}: expected {}", error.expected));
        }
        mistakes
    }
}

fn with<T, V>(to: T, value: Option<V>, set: impl FnOnce(T, V) -> T) -> T {
    match value {
        Some(value) => set(to, value),
        None => to,
    }
}

/// The file's key for the name of a setter: `cpuShares` for `cpu_shares`. Keys of maps stay the
/// same.
fn key(setter: &str) -> String {
    let (name, rest) = setter.split_at(setter.find('[').unwrap_or(setter.len()));
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    let key = words.fold(first, |key, word| match word.split_at_checked(1) {
        Some((initial, rest)) => key + &initial.to_ascii_uppercase() + rest,
        None => key,
    });
    key + rest
}

/// A size as a Kubernetes quantity.
fn bytes<'de, D: Deserializer<'de>>(from: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(from)?;
    let bytes = quantity::parse(&text).map_err(de::Error::custom)?;
    u64::try_from(bytes).map(Some).map_err(de::Error::custom)
}
