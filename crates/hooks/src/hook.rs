//! What a server can be asked, a trait per point.
//!
//! One type may implement several, and several may share what they know: they are handed in as `Arc`s. Hooks of one server
//! run at the same time, for different pods at least. A hook that takes longer than the proxy gives it is dropped at an
//! `.await`, and counts as failed.

use async_trait::async_trait;

use crate::adjustment::{ContainerAdjustment, PodAdjustment, ResourceAdjustment};
use crate::{Container, Outcome, PodSandbox, Refusal};

/// Before a pod's sandbox is made.
#[async_trait]
pub trait PreRunPodSandbox: Send + Sync + 'static {
    /// What is to be changed; a refusal keeps the pod from running, if the server's policy is to fail.
    async fn pre_run_pod_sandbox(&self, sandbox: &PodSandbox) -> Result<PodAdjustment, Refusal>;
}

/// After a pod's sandbox was stopped.
#[async_trait]
pub trait PostStopPodSandbox: Send + Sync + 'static {
    /// The runtime was asked to stop it. How that went is not known behind koordinator's proxy.
    async fn post_stop_pod_sandbox(
        &self,
        sandbox: &PodSandbox,
        outcome: Option<Outcome>,
    ) -> Result<(), Refusal>;
}

/// Before a container is made.
#[async_trait]
pub trait PreCreateContainer: Send + Sync + 'static {
    /// What is to be changed; a refusal keeps the container from being made, if the server's policy is to fail.
    async fn pre_create_container(
        &self,
        container: &Container,
    ) -> Result<ContainerAdjustment, Refusal>;
}

/// Before a container is started.
#[async_trait]
pub trait PreStartContainer: Send + Sync + 'static {
    /// Prepares something outside of the container. StartContainer has nothing that could be changed; a refusal keeps the
    /// container from starting, if the server's policy is to fail.
    async fn pre_start_container(&self, container: &Container) -> Result<(), Refusal>;
}

/// After a container was started.
#[async_trait]
pub trait PostStartContainer: Send + Sync + 'static {
    /// The runtime was asked to start it. How that went is not known behind koordinator's proxy.
    async fn post_start_container(
        &self,
        container: &Container,
        outcome: Option<Outcome>,
    ) -> Result<(), Refusal>;
}

/// Before the resources of a running container are changed.
#[async_trait]
pub trait PreUpdateContainerResources: Send + Sync + 'static {
    /// What is to be changed. The container's resources are those that the update leads to.
    async fn pre_update_container_resources(
        &self,
        container: &Container,
    ) -> Result<ResourceAdjustment, Refusal>;
}

/// After a container was stopped, or is known to have ended by itself.
#[async_trait]
pub trait PostStopContainer: Send + Sync + 'static {
    /// The container is gone, or the runtime was asked to stop it. How that went is not known behind koordinator's proxy.
    async fn post_stop_container(
        &self,
        container: &Container,
        outcome: Option<Outcome>,
    ) -> Result<(), Refusal>;
}
