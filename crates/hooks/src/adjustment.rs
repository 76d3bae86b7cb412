//! The changes that a hook returns.
//!
//! An adjustment holds changes only: fields that it does not set are kept, behind every proxy. A
//! second call of a setter replaces the first.

mod check;
mod resources;

use std::collections::BTreeMap;

use wharf_proto::hooks::{ContainerResourceHookResponse, PodSandboxHookResponse, Removals};

pub use self::check::AdjustmentError;
use self::resources::{ResourceChanges, resource_setters};
use crate::{Container, Env};

/// Changes to a pod before its sandbox is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a hook returns it"]
pub struct PodAdjustment {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    cgroup_parent: Option<String>,
    removals: Removals,
}

impl PodAdjustment {
    /// No change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces a label.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let key = key.into();
        self.removals.labels.retain(|removed| *removed != key);
        self.labels.insert(key, value.into());
        self
    }

    /// Adds or replaces an annotation.
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let key = key.into();
        self.removals.annotations.retain(|removed| *removed != key);
        self.annotations.insert(key, value.into());
        self
    }

    /// Removes a label. Koordinator's proxy ignores this.
    pub fn remove_label(mut self, key: impl Into<String>) -> Self {
        remove(key.into(), &mut self.labels, &mut self.removals.labels);
        self
    }

    /// Removes an annotation. Koordinator's proxy ignores this.
    pub fn remove_annotation(mut self, key: impl Into<String>) -> Self {
        remove(key.into(), &mut self.annotations, &mut self.removals.annotations);
        self
    }

    /// Moves the pod to another cgroup. Our proxy also moves the pod's containers; behind
    /// koordinator's, each container needs [its own change](ContainerAdjustment::cgroup_parent).
    pub fn cgroup_parent(mut self, path: impl Into<String>) -> Self {
        self.cgroup_parent = Some(path.into());
        self
    }

    /// Checks that the protocol can express every change. Called for every answer; call it earlier
    /// to learn earlier.
    pub fn check(&self) -> Result<(), AdjustmentError> {
        check::removals(&self.removals)?;
        check::keys("labels", &self.labels)?;
        check::keys("annotations", &self.annotations)?;
        check::cgroup_parent(self.cgroup_parent.as_deref())
    }

    pub(crate) fn answer(self) -> PodSandboxHookResponse {
        PodSandboxHookResponse {
            labels: self.labels,
            annotations: self.annotations,
            cgroup_parent: self.cgroup_parent.unwrap_or_default(),
            resources: None,
            removals: given(self.removals),
        }
    }
}

/// Changes to a container before it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a hook returns it"]
pub struct ContainerAdjustment {
    resources: ResourceChanges,
    annotations: BTreeMap<String, String>,
    env: Env,
    cgroup_parent: Option<String>,
    removals: Removals,
}

impl ContainerAdjustment {
    /// No change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces an annotation of the container.
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        let key = key.into();
        self.removals.annotations.retain(|removed| *removed != key);
        self.annotations.insert(key, value.into());
        self
    }

    /// Adds or replaces an environment variable.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        let name = name.into();
        self.removals.envs.retain(|removed| *removed != name);
        self.env.set(name, value.into());
        self
    }

    /// Removes an annotation of the container. Koordinator's proxy ignores this.
    pub fn remove_annotation(mut self, key: impl Into<String>) -> Self {
        remove(key.into(), &mut self.annotations, &mut self.removals.annotations);
        self
    }

    /// Removes an environment variable.
    pub fn remove_env(mut self, name: impl Into<String>) -> Self {
        let name = name.into();
        self.env.remove(&name);
        self.removals.envs.push(name);
        self
    }

    /// Makes the container's cgroup below `path` instead of below the pod's.
    pub fn cgroup_parent(mut self, path: impl Into<String>) -> Self {
        self.cgroup_parent = Some(path.into());
        self
    }

    /// Adds all changes of `resources`, for hooks that make the same changes before a container is
    /// made and before it is updated.
    pub fn resources(mut self, resources: ResourceAdjustment) -> Self {
        self.resources.extend(resources.resources);
        self.annotations.extend(resources.annotations);
        self
    }

    resource_setters!();

    /// Checks that the protocol can express every change. Called for every answer; call it earlier
    /// to learn earlier.
    pub fn check(&self) -> Result<(), AdjustmentError> {
        self.resources.check()?;
        check::removals(&self.removals)?;
        check::keys("annotations", &self.annotations)?;
        check::env(&self.env)?;
        check::cgroup_parent(self.cgroup_parent.as_deref())
    }

    pub(crate) fn answer(self, container: &Container) -> ContainerResourceHookResponse {
        let removals = self.resources.removals(self.removals);
        ContainerResourceHookResponse {
            container_annotations: self.annotations,
            container_resources: self.resources.over(&container.resources),
            pod_cgroup_parent: self.cgroup_parent.unwrap_or_default(),
            container_envs: over(&container.env, self.env, &removals.envs).into(),
            removals: given(removals),
        }
    }
}

/// Changes to an update of a container's resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a hook returns it"]
pub struct ResourceAdjustment {
    resources: ResourceChanges,
    annotations: BTreeMap<String, String>,
}

impl ResourceAdjustment {
    /// No change.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds or replaces an annotation of the update.
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    resource_setters!();

    /// Checks that the protocol can express every change. Called for every answer; call it earlier
    /// to learn earlier.
    pub fn check(&self) -> Result<(), AdjustmentError> {
        self.resources.check()?;
        check::keys("annotations", &self.annotations)
    }

    pub(crate) fn answer(self, container: &Container) -> ContainerResourceHookResponse {
        let removals = self.resources.removals(Removals::default());
        ContainerResourceHookResponse {
            container_annotations: self.annotations,
            container_resources: self.resources.over(&container.resources),
            removals: given(removals),
            ..ContainerResourceHookResponse::default()
        }
    }
}

/// Removes a key; the last call about a key counts.
fn remove(key: String, set: &mut BTreeMap<String, String>, removed: &mut Vec<String>) {
    set.remove(&key);
    removed.push(key);
}

/// Removals; `None` if there are none.
fn given(removals: Removals) -> Option<Removals> {
    (removals != Removals::default()).then_some(removals)
}

/// The environment after the changes. An answer with variables replaces all of them, so it repeats
/// those of the request; one without variables changes none.
fn over(sent: &Env, changes: Env, removed: &[String]) -> Env {
    if changes.is_empty() && removed.is_empty() {
        return changes;
    }
    let mut env = sent.clone();
    for name in removed {
        env.remove(name);
    }
    for (name, value) in changes.iter() {
        env.set(name.to_owned(), value.to_owned());
    }
    env
}
