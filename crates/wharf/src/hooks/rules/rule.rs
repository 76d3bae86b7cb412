//! One rule: the pods that it selects, and its changes.

use serde::Deserialize;
use wharf_hooks::{
    Pod, QosClass,
    adjustment::{ContainerAdjustment, PodAdjustment, ResourceAdjustment},
};

use super::{selector::Selector, set::Set};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Rule {
    pub(super) name: String,
    #[serde(default, rename = "match")]
    selector: Selector,
    set: Set,
}

impl Rule {
    /// Whether the rule applies to the sandbox of this pod and all its containers.
    pub(super) fn is_for_pod(&self, pod: &Pod, qos: Option<QosClass>) -> bool {
        !self.selector.is_of_containers() && self.selector.selects(pod, qos)
    }

    /// Whether the rule applies to this container of a pod.
    pub(super) fn is_for_container(&self, pod: &Pod, qos: Option<QosClass>, name: &str) -> bool {
        self.selector.selects(pod, qos) && self.selector.selects_container(name)
    }

    /// Adds the rule's changes to a sandbox.
    pub(super) fn sandbox(&self, to: PodAdjustment) -> PodAdjustment {
        self.set.sandbox(to)
    }

    /// Adds the rule's changes to a container.
    pub(super) fn container(&self, to: ContainerAdjustment) -> ContainerAdjustment {
        self.set.container(to)
    }

    /// Adds the rule's changes to a container's resources.
    pub(super) fn resources(&self, to: ResourceAdjustment) -> ResourceAdjustment {
        self.set.resources(to)
    }

    /// The rule's mistakes: each with its key and the expected value.
    pub(super) fn mistakes(&self) -> Vec<String> {
        let mut mistakes = self.selector.mistakes();
        mistakes.extend(self.set.mistakes());
        if self.selector.is_of_containers() && self.set.changes_pods() {
            let mistake = "set: expected no podLabels, podAnnotations and cgroupParent beside \
                           match.containers: they are of the whole pod";
            mistakes.push(mistake.to_owned());
        }
        mistakes
    }
}
