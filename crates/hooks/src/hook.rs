//! A trait per hook point.
//!
//! One type may implement several of them; hooks share state through the `Arc`s that are passed to
//! the builder. Hooks of one server run in parallel, at least for different pods. A hook that takes
//! longer than the proxy's limit is dropped at an `.await`, and counts as failed.

use async_trait::async_trait;

use crate::{
    Container, Outcome, PodSandbox, Refusal,
    adjustment::{ContainerAdjustment, PodAdjustment, ResourceAdjustment},
};

/// Called before a pod's sandbox is made.
#[async_trait]
pub trait PreRunPodSandbox: Send + Sync + 'static {
    /// Returns changes; an error keeps the pod from running if the server's failure policy is
    /// `Fail`.
    async fn pre_run_pod_sandbox(&self, sandbox: &PodSandbox) -> Result<PodAdjustment, Refusal>;
}

/// Called after a pod's sandbox was stopped.
#[async_trait]
pub trait PostStopPodSandbox: Send + Sync + 'static {
    /// The runtime was asked to stop the sandbox. `outcome` is its answer; `None` behind
    /// koordinator's proxy.
    async fn post_stop_pod_sandbox(
        &self,
        sandbox: &PodSandbox,
        outcome: Option<Outcome>,
    ) -> Result<(), Refusal>;
}

/// Called before a container is made.
#[async_trait]
pub trait PreCreateContainer: Send + Sync + 'static {
    /// Returns changes; an error keeps the container from being made if the server's failure policy
    /// is `Fail`.
    async fn pre_create_container(
        &self,
        container: &Container,
    ) -> Result<ContainerAdjustment, Refusal>;
}

/// Called before a container is started.
#[async_trait]
pub trait PreStartContainer: Send + Sync + 'static {
    /// Prepares something outside of the container: StartContainer has no fields to change. An
    /// error keeps the container from starting if the server's failure policy is `Fail`.
    async fn pre_start_container(&self, container: &Container) -> Result<(), Refusal>;
}

/// Called after a container was started.
#[async_trait]
pub trait PostStartContainer: Send + Sync + 'static {
    /// The runtime was asked to start the container. `outcome` is its answer; `None` behind
    /// koordinator's proxy.
    async fn post_start_container(
        &self,
        container: &Container,
        outcome: Option<Outcome>,
    ) -> Result<(), Refusal>;
}

/// Called before the resources of a running container are changed.
#[async_trait]
pub trait PreUpdateContainerResources: Send + Sync + 'static {
    /// Returns changes. `container.resources` are those after the update.
    async fn pre_update_container_resources(
        &self,
        container: &Container,
    ) -> Result<ResourceAdjustment, Refusal>;
}

/// Called after a container was stopped, or has ended by itself.
#[async_trait]
pub trait PostStopContainer: Send + Sync + 'static {
    /// The container has ended, or the runtime was asked to stop it. `outcome` is the runtime's
    /// answer; `None` behind koordinator's proxy.
    async fn post_stop_container(
        &self,
        container: &Container,
        outcome: Option<Outcome>,
    ) -> Result<(), Refusal>;
}
