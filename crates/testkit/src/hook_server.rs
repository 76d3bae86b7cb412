//! A hook server of a runtime proxy that remembers what it was asked, and answers by script.

mod behind;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::watch;
use tonic::metadata::KeyAndValueRef;
use tonic::{Request, Response, Status};
use wharf_proto::hooks::runtime_hook_service_server::{
    RuntimeHookService, RuntimeHookServiceServer,
};
use wharf_proto::hooks::{
    ContainerResourceHookRequest, ContainerResourceHookResponse, PodSandboxHookRequest,
    PodSandboxHookResponse,
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

/// What a [`HookServer`] does.
#[derive(Clone)]
pub struct HookScript {
    /// How connections are treated.
    pub transport: Transport,
    /// How a call is answered.
    pub answer: Answer,
    /// What is answered about a pod, by the hook's name.
    pub pod: Arc<OnPod>,
    /// What is answered about a container, by the hook's name.
    pub container: Arc<OnContainer>,
    /// Another server, whose answers are given instead.
    pub behind: Option<Behind>,
}

impl Default for HookScript {
    /// Changes nothing, and says so with empty answers.
    fn default() -> HookScript {
        HookScript {
            transport: Transport::default(),
            answer: Answer::default(),
            pod: Arc::new(|_, _| PodSandboxHookResponse::default()),
            container: Arc::new(|_, _| ContainerResourceHookResponse::default()),
            behind: None,
        }
    }
}

impl HookScript {
    /// Changes nothing, and answers with everything that it was told, as koordlet does.
    #[must_use]
    pub fn echo() -> HookScript {
        HookScript {
            pod: Arc::new(|_, asked| PodSandboxHookResponse {
                labels: asked.labels.clone(),
                annotations: asked.annotations.clone(),
                cgroup_parent: asked.cgroup_parent.clone(),
                resources: asked.resources.clone(),
                ..Default::default()
            }),
            container: Arc::new(|_, asked| echo(asked)),
            ..HookScript::default()
        }
    }
}

/// The answer to a question about a container that changes nothing.
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

/// A question that came in.
#[derive(Clone, Debug, PartialEq)]
pub struct HookCall {
    /// The hook's name, such as `PreRunPodSandbox`.
    pub hook: &'static str,
    /// The metadata that came along, where it is text.
    pub metadata: BTreeMap<String, String>,
    /// What it is about.
    pub about: Subject,
}

/// What a question is about.
#[derive(Clone, Debug, PartialEq)]
pub enum Subject {
    /// A pod.
    Pod(PodSandboxHookRequest),
    /// A container.
    Container(ContainerResourceHookRequest),
}

impl HookCall {
    /// The container that it is about.
    ///
    /// # Panics
    /// When it is about a pod.
    #[must_use]
    pub fn container(&self) -> &ContainerResourceHookRequest {
        match &self.about {
            Subject::Container(container) => container,
            Subject::Pod(_) => panic!("{} is about a pod", self.hook),
        }
    }

    /// The pod that it is about.
    ///
    /// # Panics
    /// When it is about a container.
    #[must_use]
    pub fn pod(&self) -> &PodSandboxHookRequest {
        match &self.about {
            Subject::Pod(pod) => pod,
            Subject::Container(_) => panic!("{} is about a container", self.hook),
        }
    }
}

/// Serves until it is dropped, which is a kill.
pub struct HookServer {
    front: Front,
    service: Service,
}

impl HookServer {
    /// Serves on the path, whatever is there.
    #[must_use]
    pub fn serve(path: &Path, script: HookScript) -> HookServer {
        let transport = script.transport;
        let service = Service { script: Arc::new(Mutex::new(script)), calls: Arc::default() };
        let routes = Routes::new(RuntimeHookServiceServer::new(service.clone()));
        HookServer { front: Front::serve(path, transport, routes), service }
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        self.front.path()
    }

    /// Changes what is answered from now on.
    pub fn change(&self, change: impl FnOnce(&mut HookScript)) {
        let mut script = self.service.script();
        change(&mut script);
        self.front.treat_as(script.transport);
    }

    /// What was asked so far, oldest first.
    #[must_use]
    pub fn calls(&self) -> Vec<HookCall> {
        self.service.calls.borrow().clone()
    }

    /// The names of the hooks that were asked so far, oldest first.
    #[must_use]
    pub fn hooks(&self) -> Vec<&'static str> {
        self.service.calls.borrow().iter().map(|call| call.hook).collect()
    }

    /// Ends as by kill -9: the socket stays, and nobody listens on it.
    pub async fn kill(self) {
        self.front.kill().await;
    }

    /// Waits until what was asked is as `wanted`.
    ///
    /// # Panics
    /// When it is not, for too long.
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
