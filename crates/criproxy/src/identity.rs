//! The pod or container that a call is about, as people name it.

use serde::{Deserialize, Serialize};
use wharf_facts::text::cut;

use crate::{chain::CallContext, explain::Made};

/// The longest name or id that is kept. Those of Kubernetes and of runtimes are shorter; what a
/// caller sends instead may be of any length.
const LONGEST: usize = 256;

/// The names and ids of a pod, or of a container and its pod, as far as they are known.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Identity {
    /// The pod, as `namespace/name`; empty if it is not known.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// The id of its sandbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod_id: Option<String>,
    /// The container's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container: Option<String>,
    /// The container's id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub container_id: Option<String>,
}

impl Identity {
    /// That of a pod sandbox.
    pub(crate) fn of_pod(pod: &str, id: Option<&str>) -> Self {
        Self { pod: bounded(pod), pod_id: id.map(bounded), ..Self::default() }
    }

    /// That of a container.
    pub(crate) fn of_container(
        pod: &str,
        pod_id: Option<&str>,
        name: &str,
        id: Option<&str>,
    ) -> Self {
        let (container, container_id) = (Some(bounded(name)), id.map(bounded));
        Self { container, container_id, ..Self::of_pod(pod, pod_id) }
    }

    /// That of what hook servers are asked about.
    pub(crate) fn of(context: &CallContext) -> Self {
        let (pod, id, pod_id) = (&context.pod, context.id.as_deref(), context.pod_id.as_deref());
        match &context.container {
            Some(name) => Self::of_container(pod, pod_id, name, id),
            None => Self::of_pod(pod, id),
        }
    }

    /// The namespace and the name of the pod.
    pub(crate) fn pod_parts(&self) -> (&str, &str) {
        self.pod.split_once('/').unwrap_or(("", &self.pod))
    }

    /// Adds the ids that the runtime gave to what it has made.
    pub(crate) fn add(&mut self, made: &Made) {
        if let Some(id) = &made.pod {
            self.set_pod_id(id);
        }
        if self.container.is_none() || self.container_id.is_some() {
            return;
        }
        let is_it = |name: &Option<String>| name.is_none() || *name == self.container;
        if let Some((_, id)) = made.containers.iter().find(|(name, _)| is_it(name)) {
            self.container_id = Some(bounded(id));
        }
    }

    /// Adds the id of a sandbox.
    pub(crate) fn set_pod_id(&mut self, id: &str) {
        self.pod_id = Some(bounded(id));
    }

    /// Adds the id of a container.
    pub(crate) fn set_container_id(&mut self, id: &str) {
        self.container_id = Some(bounded(id));
    }

    /// The bytes that it takes beside itself.
    pub(crate) fn heap_bytes(&self) -> usize {
        let options = [&self.pod_id, &self.container, &self.container_id];
        let bytes = |text: &&Option<String>| text.as_ref().map_or(0, String::capacity);
        self.pod.capacity() + options.iter().map(bytes).sum::<usize>()
    }
}

fn bounded(text: &str) -> String {
    cut(text, LONGEST).into_owned()
}
