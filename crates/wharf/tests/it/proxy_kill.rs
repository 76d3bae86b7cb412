//! `wharf proxy`, killed and restarted while containers come and go: containerd agrees with the
//! answers that callers got.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
};

use anyhow::{Context, Result, ensure};
use prost_reflect::prost::Message;
use rustix::process::Signal;
use tokio::{sync::watch, task::JoinSet};
use tonic::Status;
use wharf_cri::ClientOptions;
use wharf_proto::cri::{
    self, ContainerConfig, ContainerMetadata, ContainerState, ImageSpec, LinuxPodSandboxConfig,
    PodSandboxConfig, PodSandboxMetadata,
};
use wharf_testkit::{
    client::Client,
    cluster::{Cluster, IMAGE},
    hook_server::{HookCall, HookScript, HookServer},
    process::wait_for,
};

use crate::{
    proxy::{register, start},
    support::{Bench, PATIENCE},
};

const WORKERS: usize = 3;
const KILLS: usize = 3;

#[tokio::test]
async fn containers_are_what_their_callers_believe() -> Result<()> {
    let Some(cluster) = Cluster::builder().containerd(true).start().await? else { return Ok(()) };
    let bench = Bench::new();
    let hooks = HookServer::serve(&bench.path("hooks.sock"), HookScript::echo());
    register(&bench, &hooks, &["PreCreateContainer", "PostStopContainer"]);
    let (mut proxy, socket) = start(&bench, &cluster.runtime_socket()).await;

    let lives = watch::Sender::new(0);
    let (stop, stopped) = watch::channel(false);
    let mut workers = JoinSet::new();
    for number in 0..WORKERS {
        let worker = Worker::begin(&cluster, &socket, number).await?;
        workers.spawn(worker.work(lives.clone(), stopped.clone()));
    }
    for _ in 0..KILLS {
        let before = *lives.borrow();
        let busy = lives.subscribe().wait_for(|lives| *lives >= before + WORKERS).await.is_ok();
        ensure!(busy);
        proxy.signal(Signal::KILL)?;
        proxy.wait(PATIENCE).await?;
        (proxy, _) = start(&bench, &cluster.runtime_socket()).await;
    }
    stop.send_replace(true);
    let mut workers = workers.join_all().await;
    let broken: usize = workers.iter().map(|worker| worker.failed.len()).sum();
    ensure!(broken >= KILLS, "{broken} calls failed by {KILLS} kills");

    for worker in &mut workers {
        worker.life().await.context("after the last kill")?;
    }
    let direct = wharf_cri::Client::new(cluster.runtime_socket(), ClientOptions::default());
    let listed: Vec<_> = direct.containers().await?.collect();
    for worker in &workers {
        worker.compare(&listed)?;
        for id in &worker.stopped {
            let told = hooks.calls().iter().filter(|call| is_stop_of(call, id)).count();
            ensure!(told == 1, "{id} was stopped, which was told of {told} times");
        }
    }

    for worker in workers {
        worker.end().await?;
    }
    ensure!(direct.containers().await?.next().is_none() && direct.pods().await?.next().is_none());
    no_end_is_told_twice(&hooks)?;
    ensure!(proxy.stop(PATIENCE).await?.success());
    cluster.stop().await
}

/// No end of a container was told of twice.
pub(crate) fn no_end_is_told_twice(hooks: &HookServer) -> Result<()> {
    let mut told = BTreeSet::new();
    for call in hooks.calls().iter().filter(|call| call.hook == "PostStopContainer") {
        let id = call.container().container_meta.clone().unwrap_or_default().id;
        ensure!(told.insert(id.clone()), "the end of {id} was told of twice");
    }
    Ok(())
}

fn is_stop_of(call: &HookCall, id: &str) -> bool {
    let of =
        |call: &HookCall| call.container().container_meta.as_ref().is_some_and(|own| own.id == id);
    call.hook == "PostStopContainer" && of(call)
}

/// Makes containers of one pod, one after another, and remembers what it knows of them.
pub(crate) struct Worker {
    client: Client,
    pod: String,
    config: PodSandboxConfig,
    made: usize,
    /// Containers that are there, with their state if it is known.
    present: BTreeMap<String, Option<ContainerState>>,
    /// Containers that may be there: a call that makes or removes them failed.
    unsure: BTreeSet<String>,
    /// Ids of those that were stopped.
    stopped: Vec<String>,
    /// Errors of calls that failed.
    pub(crate) failed: Vec<Status>,
}

impl Worker {
    pub(crate) async fn begin(cluster: &Cluster, socket: &Path, number: usize) -> Result<Self> {
        let group = cluster.folder().file_name().context("a name")?.display();
        let name = format!("pod-{number}");
        let (uid, namespace) = (name.clone(), "default".to_owned());
        let config = PodSandboxConfig {
            metadata: Some(PodSandboxMetadata { name, uid, namespace, attempt: 0 }),
            linux: Some(LinuxPodSandboxConfig {
                cgroup_parent: format!("/{group}/pods"),
                ..Default::default()
            }),
            ..Default::default()
        };
        let mut worker = Worker {
            client: Client::dial(socket).await,
            pod: String::new(),
            config: config.clone(),
            made: 0,
            present: BTreeMap::new(),
            unsure: BTreeSet::new(),
            stopped: Vec::new(),
            failed: Vec::new(),
        };
        let request = cri::RunPodSandboxRequest { config: Some(config), ..Default::default() };
        let answer: cri::RunPodSandboxResponse = worker.call("RunPodSandbox", &request).await?;
        worker.pod = answer.pod_sandbox_id;
        Ok(worker)
    }

    pub(crate) async fn work(
        mut self,
        lives: watch::Sender<usize>,
        stop: watch::Receiver<bool>,
    ) -> Self {
        while !*stop.borrow() {
            match self.life().await {
                Ok(()) => lives.send_modify(|lives| *lives += 1),
                Err(error) => {
                    self.failed.push(error);
                    self.answered().await.unwrap();
                }
            }
        }
        self
    }

    /// A container's life, and of every third one no more than its beginning.
    async fn life(&mut self) -> Result<(), Status> {
        self.made += 1;
        let name = format!("{}-{}", self.pod, self.made);
        let id = self.create(&name).await?;
        let container_id = id.clone();

        self.present.insert(name.clone(), None);
        let request = cri::StartContainerRequest { container_id: container_id.clone() };
        self.call::<cri::StartContainerResponse>("StartContainer", &request).await?;
        self.present.insert(name.clone(), Some(ContainerState::ContainerRunning));
        if self.made.is_multiple_of(3) {
            return Ok(());
        }

        self.present.insert(name.clone(), None);
        let request = cri::StopContainerRequest { container_id: container_id.clone(), timeout: 0 };
        self.call::<cri::StopContainerResponse>("StopContainer", &request).await?;
        self.present.insert(name.clone(), Some(ContainerState::ContainerExited));
        self.stopped.push(id);

        self.present.remove(&name);
        self.unsure.insert(name.clone());
        let request = cri::RemoveContainerRequest { container_id };
        self.call::<cri::RemoveContainerResponse>("RemoveContainer", &request).await?;
        self.unsure.remove(&name);
        Ok(())
    }

    async fn create(&mut self, name: &str) -> Result<String, Status> {
        let config = ContainerConfig {
            metadata: Some(ContainerMetadata { name: name.to_owned(), attempt: 0 }),
            image: Some(ImageSpec { image: IMAGE.to_owned(), ..Default::default() }),
            command: vec!["sleep".to_owned(), "1000".to_owned()],
            ..Default::default()
        };
        let request = cri::CreateContainerRequest {
            pod_sandbox_id: self.pod.clone(),
            config: Some(config),
            sandbox_config: Some(self.config.clone()),
        };
        self.unsure.insert(name.to_owned());
        let answer: cri::CreateContainerResponse = self.call("CreateContainer", &request).await?;
        self.unsure.remove(name);
        self.present.insert(name.to_owned(), Some(ContainerState::ContainerCreated));
        Ok(answer.container_id)
    }

    /// Waits until a proxy answers.
    async fn answered(&self) -> Result<()> {
        wait_for(PATIENCE, "the proxy to answer", || async {
            let request = cri::VersionRequest::default();
            self.call::<cri::VersionResponse>("Version", &request).await.ok().map(drop)
        })
        .await
    }

    /// Nothing is lost, nothing is there that nobody asked for, and all is as the calls left it.
    pub(crate) fn compare(&self, listed: &[cri::Container]) -> Result<()> {
        let of_pod = listed.iter().filter(|container| container.pod_sandbox_id == self.pod);
        let found: BTreeMap<_, _> = of_pod
            .map(|own| (own.metadata.clone().unwrap_or_default().name, own.state()))
            .collect();
        for (name, state) in &self.present {
            let found = found.get(name).with_context(|| format!("{name} is lost"))?;
            ensure!(state.is_none_or(|state| state == *found), "{name}: {state:?}, {found:?}");
        }
        let known =
            |name: &&String| self.present.contains_key(*name) || self.unsure.contains(*name);
        let leaked: Vec<_> = found.keys().filter(|name| !known(name)).collect();
        ensure!(leaked.is_empty(), "nobody made {leaked:?}");
        Ok(())
    }

    /// Removes the pod as a kubelet does, which asks again: containerd refuses to remove a
    /// container whose StartContainer was cut, as long as its task runs.
    pub(crate) async fn end(self) -> Result<()> {
        let pod_sandbox_id = self.pod.clone();
        let stop = cri::StopPodSandboxRequest { pod_sandbox_id: pod_sandbox_id.clone() };
        let remove = cri::RemovePodSandboxRequest { pod_sandbox_id };
        wait_for(PATIENCE, "the pod to be removed", || async {
            self.call::<cri::StopPodSandboxResponse>("StopPodSandbox", &stop).await.ok()?;
            self.call::<cri::RemovePodSandboxResponse>("RemovePodSandbox", &remove).await.ok()
        })
        .await
        .map(drop)
    }

    async fn call<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<A, Status> {
        let method = format!("/runtime.v1.RuntimeService/{method}");
        let answer = self.client.call(&method, request.encode_to_vec()).await?;
        A::decode(answer).map_err(|error| Status::internal(error.to_string()))
    }
}
