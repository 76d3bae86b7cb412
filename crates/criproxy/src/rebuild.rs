//! Records of what was there before the proxy, from what the runtime tells.
//!
//! After it hooks see what they saw before a restart: sandboxes and containers as they were made,
//! the changes of hooks in them. Of a runtime that tells no more than the protocol asks for there
//! are names, labels and annotations alone. One that does not answer for a pod or container is
//! asked again when a call is about it: half of the truth is not recorded.
//!
//! What the runtime cannot tell is whether a hook was called. What is no longer running is taken
//! for told, so that a restart never repeats a post-stop hook; it may lose one. Where there was a
//! record and the runtime no longer has what it is about, servers are notified of the end now.

use std::sync::Arc;

use futures_util::stream::{self, StreamExt};
use prost::Message;
use tonic::Status;
use wharf_cri::{Client, ContainerDetails};
use wharf_proto::{
    cri,
    hooks::{
        ContainerMetadata, ContainerResourceHookRequest, LinuxContainerResources as Resources,
        PodSandboxHookRequest, PodSandboxMetadata,
    },
};

use crate::{
    map,
    record::{Container, Pod, Rebuild, Records},
    resources::overlaid,
};

/// How many questions the runtime is asked at a time.
const CONCURRENCY: usize = 16;
/// Where containerd puts containers for which no cgroup parent was asked.
const NO_PARENT: &str = "/k8s.io";

/// What a rebuild found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Rebuilt {
    /// Pods.
    pub(crate) pods: usize,
    /// Containers.
    pub(crate) containers: usize,
    /// Those among them of which the runtime did not tell all.
    pub(crate) bare: usize,
}

/// Rebuilds all records, and forgets what the runtime no longer has, except objects whose end hook
/// servers have yet to hear. The record of a call that ends meanwhile is newer than the runtime's
/// answer and stays.
pub(crate) async fn all(cri: &Client, records: &Records) -> Result<Rebuilt, Status> {
    let rebuild = records.rebuild();
    let mut gone = records.ids();
    let (pods, containers) = tokio::try_join!(cri.pods(), cri.containers())?;
    for id in pods.clone().map(|pod| pod.id).chain(containers.clone().map(|own| own.id)) {
        gone.remove(id.as_str());
    }
    records.vanish(&gone);
    let pods: Vec<_> = stream::iter(pods.map(|pod| add_pod(cri, records, &rebuild, pod)))
        .buffer_unordered(CONCURRENCY)
        .filter_map(|made| std::future::ready(told(made)))
        .collect()
        .await;
    let containers: Vec<_> =
        stream::iter(containers.map(|own| add_container(cri, records, &rebuild, own)))
            .buffer_unordered(CONCURRENCY)
            .filter_map(|made| std::future::ready(told(made)))
            .collect()
            .await;
    let bare = pods.iter().map(|pod| pod.bare).chain(containers.iter().map(|own| own.bare));
    Ok(Rebuilt {
        pods: pods.len(),
        containers: containers.len(),
        bare: bare.filter(|bare| *bare).count(),
    })
}

/// A record, and the id that it is kept under. Runtimes take a beginning of it for the whole.
#[derive(Clone, Debug)]
pub(crate) struct Found<T> {
    pub(crate) id: String,
    pub(crate) record: Arc<T>,
}

/// The record of a pod, rebuilt if there is none; `None` if the runtime does not know it.
pub(crate) async fn pod(
    cri: &Client,
    records: &Records,
    id: &str,
) -> Result<Option<Found<Pod>>, Status> {
    if let Some(record) = records.pod(id) {
        return Ok(Some(Found { id: id.to_owned(), record }));
    }
    if id.is_empty() {
        return Ok(None);
    }
    let rebuild = records.rebuild();
    let Some(details) = cri.pod_details(id).await? else { return Ok(None) };
    let status = details.status;
    let listed = cri::PodSandbox {
        id: status.id,
        metadata: status.metadata,
        state: status.state,
        created_at: status.created_at,
        labels: status.labels,
        annotations: status.annotations,
        runtime_handler: status.runtime_handler,
    };
    let record = rebuild.pod(&listed.id, pod_record(&listed, details.cgroup_parent));
    Ok(record.map(|record| Found { id: listed.id, record }))
}

/// The record of a container, rebuilt if there is none, and that of its pod likewise; `None` if the
/// runtime does not know it.
pub(crate) async fn container(
    cri: &Client,
    records: &Records,
    id: &str,
) -> Result<Option<Found<Container>>, Status> {
    if let Some(record) = records.container(id) {
        return Ok(Some(Found { id: id.to_owned(), record }));
    }
    // Every id begins with nothing.
    if id.is_empty() {
        return Ok(None);
    }
    let rebuild = records.rebuild();
    let Some(listed) = cri.container(id).await? else { return Ok(None) };
    if pod(cri, records, &listed.pod_sandbox_id).await?.is_none() {
        return Ok(None);
    }
    let id = listed.id.clone();
    let made = add_container(cri, records, &rebuild, listed).await?;
    Ok(made.map(|made| Found { id, record: made.record }))
}

/// A record, and whether the runtime told less of it than there was.
struct Made<T> {
    record: Arc<T>,
    bare: bool,
}

async fn add_pod(
    cri: &Client,
    records: &Records,
    rebuild: &Rebuild,
    listed: cri::PodSandbox,
) -> Result<Option<Made<Pod>>, Status> {
    if let Some(record) = records.pod(&listed.id) {
        return Ok(Some(Made { record, bare: false }));
    }
    let Some(details) = cri.pod_details(&listed.id).await? else { return Ok(None) };
    let bare = details.cgroup_parent.is_none();
    let record = rebuild.pod(&listed.id, pod_record(&listed, details.cgroup_parent));
    Ok(record.map(|record| Made { record, bare }))
}

async fn add_container(
    cri: &Client,
    records: &Records,
    rebuild: &Rebuild,
    listed: cri::Container,
) -> Result<Option<Made<Container>>, Status> {
    if let Some(record) = records.container(&listed.id) {
        return Ok(Some(Made { record, bare: false }));
    }
    // Without a pod there is nobody to tell hooks about.
    let Some(pod) = records.pod(&listed.pod_sandbox_id) else { return Ok(None) };
    let Some(details) = cri.container_details(&listed.id).await? else { return Ok(None) };
    let bare = details.config.as_ref().is_none_or(|config| config.envs.is_none());
    let record = rebuild.container(container_record(&listed, details, &pod));
    Ok(record.map(|record| Made { record, bare }))
}

/// What was made, if the runtime told.
fn told<T>(made: Result<Option<T>, Status>) -> Option<T> {
    made.unwrap_or_else(|status| {
        let (code, error) = (status.code(), status.message());
        tracing::warn!(?code, error, "the runtime does not tell the status of what it lists");
        None
    })
}

fn pod_record(listed: &cri::PodSandbox, cgroup_parent: Option<String>) -> Pod {
    let metadata = listed.metadata.clone().unwrap_or_default();
    let question = PodSandboxHookRequest {
        pod_meta: Some(PodSandboxMetadata {
            name: metadata.name,
            uid: metadata.uid,
            namespace: metadata.namespace,
            attempt: 0,
        }),
        runtime_handler: listed.runtime_handler.clone(),
        labels: listed.labels.clone(),
        annotations: listed.annotations.clone(),
        cgroup_parent: cgroup_parent.unwrap_or_default(),
        ..Default::default()
    };
    Pod::rebuilt(&question, listed.state() == cri::PodSandboxState::SandboxNotready)
}

fn container_record(listed: &cri::Container, details: ContainerDetails, pod: &Pod) -> Container {
    let metadata = listed.metadata.clone().unwrap_or_default();
    let told = details.config.is_some();
    let config = details.config.unwrap_or_default();
    let envs = config.envs.unwrap_or_default();
    let created = config.resources.map(|own| same(&own)).or(told.then(Resources::default));
    let in_force = details.status.resources.and_then(|own| own.linux).map(|own| same(&own));
    let pod_parent = pod.question().cgroup_parent;
    let path = details.cgroups_path.as_deref();
    let question = ContainerResourceHookRequest {
        container_meta: Some(ContainerMetadata {
            name: metadata.name,
            attempt: metadata.attempt,
            id: listed.id.clone(),
        }),
        container_annotations: listed.annotations.clone(),
        container_envs: map::texts(envs.iter().map(|env| (env.key.as_bytes(), &env.value[..]))),
        container_resources: resources(created, in_force),
        pod_cgroup_parent: path
            .and_then(|path| parent(path, &listed.id, &pod_parent))
            .unwrap_or(pod_parent),
        ..Default::default()
    };
    let record = Container::new(&listed.pod_sandbox_id, &listed.id, question);
    match listed.state() {
        cri::ContainerState::ContainerExited => record.stopped(),
        _ => record,
    }
}

/// What a container has now: what it was made with, and what updates changed since.
fn resources(created: Option<Resources>, in_force: Option<Resources>) -> Option<Resources> {
    match (created, in_force) {
        (Some(created), Some(mut in_force)) => {
            // containerd forbids swap by a limit of its own where none was asked for.
            let limit = in_force.memory_limit_in_bytes;
            if created.memory_swap_limit_in_bytes == 0
                && in_force.memory_swap_limit_in_bytes == limit
            {
                in_force.memory_swap_limit_in_bytes = 0;
            }
            Some(overlaid(created, &in_force))
        }
        (created, in_force) => created.or(in_force),
    }
}

/// The cgroup parent that was asked for, given the container's own cgroup; `None` if that does not
/// tell more than the pod's.
fn parent(path: &str, id: &str, pod_parent: &str) -> Option<String> {
    if let Some((slice, _)) = path.split_once(':') {
        // systemd's driver keeps the last part of a parent alone.
        let last = pod_parent.rsplit('/').next().unwrap_or_default();
        return (slice != last).then(|| slice.to_owned());
    }
    let parent = path.strip_suffix(id)?.strip_suffix('/')?;
    let same = parent == pod_parent.trim_end_matches('/');
    let unasked = pod_parent.is_empty() && parent == NO_PARENT;
    (!same && !unasked).then(|| parent.to_owned())
}

/// The same message in the protocol of hooks, which has the same numbers.
fn same(resources: &cri::LinuxContainerResources) -> Resources {
    Resources::decode(&*resources.encode_to_vec()).expect("both declare the same fields")
}

#[cfg(test)]
mod tests;
