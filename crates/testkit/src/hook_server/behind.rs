//! Another hook server, to which calls are forwarded.

use std::path::Path;

use tonic::{Response, Status};
use wharf_proto::hooks::{
    ContainerResourceHookRequest, ContainerResourceHookResponse, PodSandboxHookRequest,
    PodSandboxHookResponse, runtime_hook_service_client::RuntimeHookServiceClient,
};
use wharf_uds::{Channel, ChannelOptions};

/// A server whose answers are returned.
#[derive(Clone)]
pub struct Behind(RuntimeHookServiceClient<Channel>);

impl Behind {
    /// The server at the socket `path`.
    #[must_use]
    pub fn at(path: &Path) -> Self {
        Self(RuntimeHookServiceClient::new(Channel::new(path, ChannelOptions::default())))
    }

    pub(super) async fn pod(
        mut self,
        hook: &str,
        asked: PodSandboxHookRequest,
    ) -> Result<Response<PodSandboxHookResponse>, Status> {
        match hook {
            "PreRunPodSandbox" => self.0.pre_run_pod_sandbox_hook(asked).await,
            _ => self.0.post_stop_pod_sandbox_hook(asked).await,
        }
    }

    pub(super) async fn container(
        mut self,
        hook: &str,
        asked: ContainerResourceHookRequest,
    ) -> Result<Response<ContainerResourceHookResponse>, Status> {
        match hook {
            "PreCreateContainer" => self.0.pre_create_container_hook(asked).await,
            "PreStartContainer" => self.0.pre_start_container_hook(asked).await,
            "PostStartContainer" => self.0.post_start_container_hook(asked).await,
            "PostStopContainer" => self.0.post_stop_container_hook(asked).await,
            _ => self.0.pre_update_container_resources_hook(asked).await,
        }
    }
}
