//! What a hook changes.
//!
//! An adjustment holds changes and nothing else: what it does not name stays as it is, whichever proxy asked. A second call
//! of a setter replaces the first one.

mod check;
mod resources;

use std::collections::BTreeMap;

use wharf_proto::hooks::{ContainerResourceHookResponse, PodSandboxHookResponse};

pub use self::check::AdjustmentError;
use self::resources::{ResourceChanges, resource_setters};
use crate::{Container, Env};

/// What changes of a pod before its sandbox is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a hook returns it"]
pub struct PodAdjustment {
    labels: BTreeMap<String, String>,
    annotations: BTreeMap<String, String>,
    cgroup_parent: Option<String>,
}

impl PodAdjustment {
    /// No change.
    pub fn new() -> PodAdjustment {
        PodAdjustment::default()
    }

    /// Adds or replaces a label.
    pub fn label(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.labels.insert(key.into(), value.into());
        self
    }

    /// Adds or replaces an annotation.
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    /// Moves the pod to another cgroup. Our proxy carries it on to the pod's containers; koordinator's does not, and needs
    /// it said for [each of them](ContainerAdjustment::cgroup_parent) again.
    pub fn cgroup_parent(mut self, path: impl Into<String>) -> Self {
        self.cgroup_parent = Some(path.into());
        self
    }

    /// Whether all of it can be said in the protocol. Asked for every answer; for those who want to know earlier.
    pub fn check(&self) -> Result<(), AdjustmentError> {
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
        }
    }
}

/// What changes of a container before it is made.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a hook returns it"]
pub struct ContainerAdjustment {
    resources: ResourceChanges,
    annotations: BTreeMap<String, String>,
    env: Env,
    cgroup_parent: Option<String>,
}

impl ContainerAdjustment {
    /// No change.
    pub fn new() -> ContainerAdjustment {
        ContainerAdjustment::default()
    }

    /// Adds or replaces an annotation of the container.
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    /// Adds or replaces an environment variable.
    pub fn env(mut self, name: impl Into<String>, value: impl Into<String>) -> Self {
        self.env.set(name.into(), value.into());
        self
    }

    /// Puts the container's cgroup below another one than the pod's.
    pub fn cgroup_parent(mut self, path: impl Into<String>) -> Self {
        self.cgroup_parent = Some(path.into());
        self
    }

    /// Changes everything that `resources` does: for hooks that do the same before a container is made and before it is
    /// updated.
    pub fn resources(mut self, resources: ResourceAdjustment) -> Self {
        self.resources.extend(resources.resources);
        self.annotations.extend(resources.annotations);
        self
    }

    resource_setters!();

    /// Whether all of it can be said in the protocol. Asked for every answer; for those who want to know earlier.
    pub fn check(&self) -> Result<(), AdjustmentError> {
        self.resources.check()?;
        check::keys("annotations", &self.annotations)?;
        check::env(&self.env)?;
        check::cgroup_parent(self.cgroup_parent.as_deref())
    }

    pub(crate) fn answer(self, container: &Container) -> ContainerResourceHookResponse {
        ContainerResourceHookResponse {
            container_annotations: self.annotations,
            container_resources: self.resources.over(&container.resources),
            pod_cgroup_parent: self.cgroup_parent.unwrap_or_default(),
            container_envs: over(&container.env, self.env).into(),
        }
    }
}

/// What changes in an update of a container's resources.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[must_use = "a hook returns it"]
pub struct ResourceAdjustment {
    resources: ResourceChanges,
    annotations: BTreeMap<String, String>,
}

impl ResourceAdjustment {
    /// No change.
    pub fn new() -> ResourceAdjustment {
        ResourceAdjustment::default()
    }

    /// Adds or replaces an annotation of the update.
    pub fn annotation(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.annotations.insert(key.into(), value.into());
        self
    }

    resource_setters!();

    /// Whether all of it can be said in the protocol. Asked for every answer; for those who want to know earlier.
    pub fn check(&self) -> Result<(), AdjustmentError> {
        self.resources.check()?;
        check::keys("annotations", &self.annotations)
    }

    pub(crate) fn answer(self, container: &Container) -> ContainerResourceHookResponse {
        ContainerResourceHookResponse {
            container_annotations: self.annotations,
            container_resources: self.resources.over(&container.resources),
            ..ContainerResourceHookResponse::default()
        }
    }
}

/// The environment after the changes. An answer with variables replaces all of them; one without leaves them.
fn over(sent: &Env, changes: Env) -> Env {
    if changes.is_empty() {
        return changes;
    }
    let mut env = sent.clone();
    for (name, value) in changes.iter() {
        env.set(name.to_owned(), value.to_owned());
    }
    env
}
