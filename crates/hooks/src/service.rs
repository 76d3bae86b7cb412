//! The gRPC service of a server's hooks.

use std::{collections::BTreeSet, future::Future, sync::Arc, time::Instant};

use tonic::{Code, Request, Response, Status};
use wharf_proto::hooks::{
    ContainerResourceHookRequest, ContainerResourceHookResponse, PodSandboxHookRequest,
    PodSandboxHookResponse, runtime_hook_service_server::RuntimeHookService,
};
use wharf_uds::code_name;

use crate::{
    Container, HookMetrics, HookPoint, Outcome, PodSandbox,
    hook::{
        PostStartContainer, PostStopContainer, PostStopPodSandbox, PreCreateContainer,
        PreRunPodSandbox, PreStartContainer, PreUpdateContainerResources,
    },
};

/// The hooks of a server, by point.
#[derive(Default)]
pub(crate) struct Hooks {
    pub(crate) pre_run_pod_sandbox: Option<Arc<dyn PreRunPodSandbox>>,
    pub(crate) post_stop_pod_sandbox: Option<Arc<dyn PostStopPodSandbox>>,
    pub(crate) pre_create_container: Option<Arc<dyn PreCreateContainer>>,
    pub(crate) pre_start_container: Option<Arc<dyn PreStartContainer>>,
    pub(crate) post_start_container: Option<Arc<dyn PostStartContainer>>,
    pub(crate) pre_update_container_resources: Option<Arc<dyn PreUpdateContainerResources>>,
    pub(crate) post_stop_container: Option<Arc<dyn PostStopContainer>>,
    pub(crate) metrics: Option<HookMetrics>,
}

impl Hooks {
    /// The points with a hook.
    pub(crate) fn offered(&self) -> BTreeSet<HookPoint> {
        let offers = |point: &HookPoint| match point {
            HookPoint::PreRunPodSandbox => self.pre_run_pod_sandbox.is_some(),
            HookPoint::PostStopPodSandbox => self.post_stop_pod_sandbox.is_some(),
            HookPoint::PreCreateContainer => self.pre_create_container.is_some(),
            HookPoint::PreStartContainer => self.pre_start_container.is_some(),
            HookPoint::PostStartContainer => self.post_start_container.is_some(),
            HookPoint::PreUpdateContainerResources => self.pre_update_container_resources.is_some(),
            HookPoint::PostStopContainer => self.post_stop_container.is_some(),
        };
        HookPoint::ALL.into_iter().filter(offers).collect()
    }

    /// Runs a hook if the server has it; logs and counts the call. Does not log its content.
    async fn answer<H: ?Sized, R, F>(
        &self,
        point: HookPoint,
        hook: Option<&Arc<H>>,
        work: impl FnOnce(Arc<H>) -> F,
    ) -> Result<Response<R>, Status>
    where
        F: Future<Output = Result<R, Status>>,
    {
        let hook = hook.ok_or_else(|| {
            Status::unimplemented(format!("this hook server does not offer {}", point.name()))
        })?;
        let started = Instant::now();
        let result = work(hook.clone()).await;
        let duration = started.elapsed();
        let code = result.as_ref().err().map_or(Code::Ok, Status::code);
        if let Err(status) = &result {
            let (hook, error) = (point.name(), status.message());
            tracing::warn!(hook, code = code_name(code), ?duration, error, "hook failed");
        }
        if let Some(metrics) = &self.metrics {
            metrics.observe(point, code, duration);
        }
        result.map(Response::new)
    }
}

/// The service.
pub(crate) struct Service(pub(crate) Arc<Hooks>);

type Answer<R> = Result<Response<R>, Status>;

#[tonic::async_trait]
impl RuntimeHookService for Service {
    async fn pre_run_pod_sandbox_hook(
        &self,
        request: Request<PodSandboxHookRequest>,
    ) -> Answer<PodSandboxHookResponse> {
        let hook = self.0.pre_run_pod_sandbox.as_ref();
        let work = async |hook: Arc<dyn PreRunPodSandbox>| {
            let sandbox = PodSandbox::from(request.into_inner());
            let adjustment = hook.pre_run_pod_sandbox(&sandbox).await?;
            adjustment.check()?;
            Ok(adjustment.answer())
        };
        self.0.answer(HookPoint::PreRunPodSandbox, hook, work).await
    }

    async fn post_stop_pod_sandbox_hook(
        &self,
        request: Request<PodSandboxHookRequest>,
    ) -> Answer<PodSandboxHookResponse> {
        let hook = self.0.post_stop_pod_sandbox.as_ref();
        let work = async |hook: Arc<dyn PostStopPodSandbox>| {
            let outcome = Outcome::read(request.metadata());
            let sandbox = PodSandbox::from(request.into_inner());
            hook.post_stop_pod_sandbox(&sandbox, outcome).await?;
            Ok(PodSandboxHookResponse::default())
        };
        self.0.answer(HookPoint::PostStopPodSandbox, hook, work).await
    }

    async fn pre_create_container_hook(
        &self,
        request: Request<ContainerResourceHookRequest>,
    ) -> Answer<ContainerResourceHookResponse> {
        let hook = self.0.pre_create_container.as_ref();
        let work = async |hook: Arc<dyn PreCreateContainer>| {
            let container = Container::from(request.into_inner());
            let adjustment = hook.pre_create_container(&container).await?;
            adjustment.check()?;
            Ok(adjustment.answer(&container))
        };
        self.0.answer(HookPoint::PreCreateContainer, hook, work).await
    }

    async fn pre_start_container_hook(
        &self,
        request: Request<ContainerResourceHookRequest>,
    ) -> Answer<ContainerResourceHookResponse> {
        let hook = self.0.pre_start_container.as_ref();
        let work = async |hook: Arc<dyn PreStartContainer>| {
            let container = Container::from(request.into_inner());
            hook.pre_start_container(&container).await?;
            Ok(ContainerResourceHookResponse::default())
        };
        self.0.answer(HookPoint::PreStartContainer, hook, work).await
    }

    async fn post_start_container_hook(
        &self,
        request: Request<ContainerResourceHookRequest>,
    ) -> Answer<ContainerResourceHookResponse> {
        let hook = self.0.post_start_container.as_ref();
        let work = async |hook: Arc<dyn PostStartContainer>| {
            let outcome = Outcome::read(request.metadata());
            let container = Container::from(request.into_inner());
            hook.post_start_container(&container, outcome).await?;
            Ok(ContainerResourceHookResponse::default())
        };
        self.0.answer(HookPoint::PostStartContainer, hook, work).await
    }

    async fn pre_update_container_resources_hook(
        &self,
        request: Request<ContainerResourceHookRequest>,
    ) -> Answer<ContainerResourceHookResponse> {
        let hook = self.0.pre_update_container_resources.as_ref();
        let work = async |hook: Arc<dyn PreUpdateContainerResources>| {
            let container = Container::from(request.into_inner());
            let adjustment = hook.pre_update_container_resources(&container).await?;
            adjustment.check()?;
            Ok(adjustment.answer(&container))
        };
        self.0.answer(HookPoint::PreUpdateContainerResources, hook, work).await
    }

    async fn post_stop_container_hook(
        &self,
        request: Request<ContainerResourceHookRequest>,
    ) -> Answer<ContainerResourceHookResponse> {
        let hook = self.0.post_stop_container.as_ref();
        let work = async |hook: Arc<dyn PostStopContainer>| {
            let outcome = Outcome::read(request.metadata());
            let container = Container::from(request.into_inner());
            hook.post_stop_container(&container, outcome).await?;
            Ok(ContainerResourceHookResponse::default())
        };
        self.0.answer(HookPoint::PostStopContainer, hook, work).await
    }
}
