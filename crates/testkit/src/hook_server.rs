//! A hook server that records its calls, and answers by script.

mod behind;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;
use tonic::{Request, Response, Status, metadata::KeyAndValueRef};
use wharf_proto::hooks::{
    ContainerResourceHookRequest, ContainerResourceHookResponse, PodSandboxHookRequest,
    PodSandboxHookResponse,
    runtime_hook_service_server::{RuntimeHookService, RuntimeHookServiceServer},
};
use wharf_uds::Routes;

pub use self::behind::Behind;
use crate::front::Front;
pub use crate::front::Transport;
use crate::script;
pub use crate::script::Answer;

type OnPod = dyn Fn(&str, &PodSandboxHookRequest) -> PodSandboxHookResponse + Send + Sync;
type OnContainer =
    dyn Fn(&str, &ContainerResourceHookRequest) -> ContainerResourceHookResponse + Send + Sync;

/// The behaviour of a [`HookServer`].
#[derive(Clone)]
pub struct HookScript {
    /// Treatment of connections.
    pub transport: Transport,
    /// Treatment of calls.
    pub answer: Answer,
    /// Answers calls about a pod, by the hook's name.
    pub pod: Arc<OnPod>,
    /// Answers calls about a container, by the hook's name.
    pub container: Arc<OnContainer>,
    /// Another server, whose answers are returned instead.
    pub behind: Option<Behind>,
}

impl Default for HookScript {
    /// Answers without changes: empty answers.
    fn default() -> Self {
        Self {
            transport: Transport::default(),
            answer: Answer::default(),
            pod: Arc::new(|_, _| PodSandboxHookResponse::default()),
            container: Arc::new(|_, _| ContainerResourceHookResponse::default()),
            behind: None,
        }
    }
}

impl HookScript {
    /// Repeats all fields of the request without changes, like koordlet.
    #[must_use]
    pub fn echo() -> Self {
        Self {
            pod: Arc::new(|_, asked| PodSandboxHookResponse {
                labels: asked.labels.clone(),
                annotations: asked.annotations.clone(),
                cgroup_parent: asked.cgroup_parent.clone(),
                resources: asked.resources.clone(),
                ..Default::default()
            }),
            container: Arc::new(|_, asked| echo(asked)),
            ..Self::default()
        }
    }
}

/// An answer that repeats all fields of a request about a container.
#[must_use]
pub fn echo(asked: &ContainerResourceHookRequest) -> ContainerResourceHookResponse {
    ContainerResourceHookResponse {
        container_annotations: asked.container_annotations.clone(),
        container_resources: asked.container_resources.clone(),
        pod_cgroup_parent: asked.pod_cgroup_parent.clone(),
        container_envs: asked.container_envs.clone(),
        ..Default::default()
    }
}

/// A recorded call.
#[derive(Clone, Debug, PartialEq)]
pub struct HookCall {
    /// The hook's name, such as `PreRunPodSandbox`.
    pub hook: &'static str,
    /// The metadata of the call, if it is text.
    pub metadata: BTreeMap<String, String>,
    /// The pod or container of the call.
    pub about: Subject,
}

/// The request of a call.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// A pod.
    Pod(PodSandboxHookRequest),
    /// A container.
    Container(ContainerResourceHookRequest),
}

impl HookCall {
    /// The request about a container.
    ///
    /// # Panics
    /// If the call is about a pod.
    #[must_use]
    pub fn container(&self) -> &ContainerResourceHookRequest {
        match &self.about {
            Subject::Container(container) => container,
            Subject::Pod(_) => panic!("{} is about a pod", self.hook),
        }
    }

    /// The request about a pod.
    ///
    /// # Panics
    /// If the call is about a container.
    #[must_use]
    pub fn pod(&self) -> &PodSandboxHookRequest {
        match &self.about {
            Subject::Pod(pod) => pod,
            Subject::Container(_) => panic!("{} is about a container", self.hook),
        }
    }
}

/// Serves until it is dropped, which kills it.
pub struct HookServer {
    front: Front,
    service: Service,
}

impl HookServer {
    /// Serves on the path, replacing an existing socket.
    #[must_use]
    pub fn serve(path: &Path, script: HookScript) -> Self {
        let transport = script.transport;
        let service = Service { script: Arc::new(Mutex::new(script)), calls: Arc::default() };
        let routes = Routes::new(RuntimeHookServiceServer::new(service.clone()));
        Self { front: Front::serve(path, transport, routes), service }
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.front.path()
    }

    /// Changes the script for future calls.
    pub fn change(&self, change: impl FnOnce(&mut HookScript)) {
        let mut script = self.service.script();
        change(&mut script);
        self.front.treat_as(script.transport);
    }

    /// The calls so far, oldest first.
    #[must_use]
    pub fn calls(&self) -> Vec<HookCall> {
        self.service.calls.borrow().clone()
    }

    /// The hooks' names of the calls so far, oldest first.
    #[must_use]
    pub fn hooks(&self) -> Vec<&'static str> {
        self.service.calls.borrow().iter().map(|call| call.hook).collect()
    }

    /// Ends like after kill -9: the socket file stays, without a listener.
    pub async fn kill(self) {
        self.front.kill().await;
    }

    /// Waits until the calls satisfy `wanted`.
    ///
    /// # Panics
    /// If they do not within [`DEADLINE`](crate::script::DEADLINE).
    pub async fn seen(&self, wanted: impl FnMut(&Vec<HookCall>) -> bool) -> Vec<HookCall> {
        script::seen(&self.service.calls, wanted).await
    }
}

#[derive(Clone)]
struct Service {
    script: Arc<Mutex<HookScript>>,
    calls: Arc<watch::Sender<Vec<HookCall>>>,
}

impl Service {
    fn script(&self) -> MutexGuard<'_, HookScript> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn take<T>(
        &self,
        hook: &'static str,
        request: Request<T>,
        about: impl FnOnce(T) -> Subject,
    ) -> Result<(Subject, HookScript), Status> {
        let text = |pair| match pair {
            KeyAndValueRef::Ascii(key, value) => {
                Some((key.to_string(), value.to_str().ok()?.to_owned()))
            }
            KeyAndValueRef::Binary(..) => None,
        };
        let metadata = request.metadata().iter().filter_map(text).collect();
        let about = about(request.into_inner());
        let call = HookCall { hook, metadata, about: about.clone() };
        self.calls.send_modify(|calls| calls.push(call));
        let script = self.script().clone();
        script.answer.clone().given().await?;
        Ok((about, script))
    }

    async fn pod(
        &self,
        hook: &'static str,
        request: Request<PodSandboxHookRequest>,
    ) -> Result<Response<PodSandboxHookResponse>, Status> {
        match self.take(hook, request, Subject::Pod).await? {
            (Subject::Pod(asked), script) => match script.behind {
                Some(behind) => behind.pod(hook, asked).await,
                None => Ok(Response::new((script.pod)(hook, &asked))),
            },
            (Subject::Container(_), _) => Err(Status::internal("a pod became a container")),
        }
    }

    async fn container(
        &self,
        hook: &'static str,
        request: Request<ContainerResourceHookRequest>,
    ) -> Result<Response<ContainerResourceHookResponse>, Status> {
        match self.take(hook, request, Subject::Container).await? {
            (Subject::Container(asked), script) => match script.behind {
                Some(behind) => behind.container(hook, asked).await,
                None => Ok(Response::new((script.container)(hook, &asked))),
            },
            (Subject::Pod(_), _) => Err(Status::internal("a container became a pod")),
        }
    }
}

type PodAnswer = Result<Response<PodSandboxHookResponse>, Status>;
type ContainerAnswer = Result<Response<ContainerResourceHookResponse>, Status>;

#[tonic::async_trait]
impl RuntimeHookService for Service {
    async fn pre_run_pod_sandbox_hook(&self, asked: Request<PodSandboxHookRequest>) -> PodAnswer {
        self.pod("PreRunPodSandbox", asked).await
    }

    async fn post_stop_pod_sandbox_hook(&self, asked: Request<PodSandboxHookRequest>) -> PodAnswer {
        self.pod("PostStopPodSandbox", asked).await
    }

    async fn pre_create_container_hook(
        &self,
        asked: Request<ContainerResourceHookRequest>,
    ) -> ContainerAnswer {
        self.container("PreCreateContainer", asked).await
    }

    async fn pre_start_container_hook(
        &self,
        asked: Request<ContainerResourceHookRequest>,
    ) -> ContainerAnswer {
        self.container("PreStartContainer", asked).await
    }

    async fn post_start_container_hook(
        &self,
        asked: Request<ContainerResourceHookRequest>,
    ) -> ContainerAnswer {
        self.container("PostStartContainer", asked).await
    }

    async fn post_stop_container_hook(
        &self,
        asked: Request<ContainerResourceHookRequest>,
    ) -> ContainerAnswer {
        self.container("PostStopContainer", asked).await
    }

    async fn pre_update_container_resources_hook(
        &self,
        asked: Request<ContainerResourceHookRequest>,
    ) -> ContainerAnswer {
        self.container("PreUpdateContainerResources", asked).await
    }
}
