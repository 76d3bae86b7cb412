//! A container runtime that creates nothing, and stores all requests.

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use anyhow::Result;
use bytes::Bytes;
use prost::Message;
use tonic::Code;
use wharf_proto::cri;

use super::{
    calls::framed,
    info,
    server::{self, Service},
};

/// Returns how many updates overtook another update of their pod, as text in a
/// [`cri::VersionResponse`].
pub(super) const OVERTAKEN: &str = "/dev.wharf.bench.Runtime/Overtaken";

/// The largest message that a kubelet accepts, with its frame.
pub(super) const LARGE: usize = 16 << 20;

/// Serves at `socket` until the process is killed.
pub(super) async fn serve(socket: &Path, update: Duration) -> Result<()> {
    let runtime = Runtime {
        state: Mutex::default(),
        version: framed(&cri::VersionResponse {
            version: "0.1.0".to_owned(),
            runtime_name: "containerd".to_owned(),
            runtime_version: "v2.2.0".to_owned(),
            runtime_api_version: "v1".to_owned(),
        }),
        images: framed(&cri::ListImagesResponse { images: images() }),
        update,
    };
    server::serve(socket, Arc::new(runtime)).await
}

struct Runtime {
    state: Mutex<State>,
    version: Bytes,
    images: Bytes,
    update: Duration,
}

#[derive(Default)]
struct State {
    pods: BTreeMap<String, cri::PodSandboxConfig>,
    containers: BTreeMap<String, Container>,
    /// For each pod: when an update arrived, and its number.
    updates: BTreeMap<String, Vec<(u64, i64)>>,
}

struct Container {
    pod: String,
    config: cri::ContainerConfig,
}

impl Service for Runtime {
    async fn answer(&self, number: u64, method: &str, message: Bytes) -> Result<Bytes, Code> {
        let name = method.rsplit('/').next().unwrap_or_default();
        match name {
            "Version" => Ok(self.version.clone()),
            "ListImages" => Ok(self.images.clone()),
            "RunPodSandbox" => self.state().run_pod(read(message)?),
            "CreateContainer" => self.state().create(read(message)?),
            "UpdateContainerResources" => {
                let answer = self.state().update(number, &read(message)?);
                tokio::time::sleep(self.update).await;
                answer
            }
            "ListPodSandbox" => Ok(self.state().pods()),
            "ListContainers" => Ok(self.state().containers(&read(message)?)),
            "PodSandboxStatus" => self.state().pod(&read(message)?),
            "ContainerStatus" => self.state().container(&read(message)?),
            "Overtaken" => Ok(self.state().overtaken()),
            _ => Err(Code::Unimplemented),
        }
    }
}

impl Runtime {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// A pod that is made again gets the same ID, and replaces the first.
    fn run_pod(&mut self, asked: cri::RunPodSandboxRequest) -> Result<Bytes, Code> {
        let config = asked.config.ok_or(Code::InvalidArgument)?;
        let id = id(&[&config.metadata.as_ref().ok_or(Code::InvalidArgument)?.uid]);
        self.pods.insert(id.clone(), config);
        Ok(framed(&cri::RunPodSandboxResponse { pod_sandbox_id: id }))
    }

    fn create(&mut self, asked: cri::CreateContainerRequest) -> Result<Bytes, Code> {
        let (config, pod) = (asked.config.ok_or(Code::InvalidArgument)?, asked.pod_sandbox_id);
        let id = id(&[&pod, &config.metadata.as_ref().ok_or(Code::InvalidArgument)?.name]);
        self.containers.insert(id.clone(), Container { pod, config });
        Ok(framed(&cri::CreateContainerResponse { container_id: id }))
    }

    fn update(
        &mut self,
        number: u64,
        asked: &cri::UpdateContainerResourcesRequest,
    ) -> Result<Bytes, Code> {
        let container = self.containers.get(&asked.container_id).ok_or(Code::NotFound)?;
        let shares = asked.linux.as_ref().map_or(0, |linux| linux.cpu_shares);
        self.updates.entry(container.pod.clone()).or_default().push((number, shares));
        Ok(framed(&cri::UpdateContainerResourcesResponse {}))
    }

    fn overtaken(&mut self) -> Bytes {
        let mut count = 0;
        for updates in self.updates.values_mut() {
            updates.sort_unstable();
            count += updates.windows(2).filter(|pair| pair[0].1 > pair[1].1).count();
        }
        framed(&cri::VersionResponse { version: count.to_string(), ..Default::default() })
    }

    fn pods(&self) -> Bytes {
        let item = |(id, config): (&String, &cri::PodSandboxConfig)| cri::PodSandbox {
            id: id.clone(),
            metadata: config.metadata.clone(),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            ..Default::default()
        };
        framed(&cri::ListPodSandboxResponse { items: self.pods.iter().map(item).collect() })
    }

    fn containers(&self, asked: &cri::ListContainersRequest) -> Bytes {
        let wanted = asked.filter.as_ref().map_or("", |filter| &filter.id);
        let item = |(id, container): (&String, &Container)| cri::Container {
            id: id.clone(),
            pod_sandbox_id: container.pod.clone(),
            metadata: container.config.metadata.clone(),
            image: container.config.image.clone(),
            state: cri::ContainerState::ContainerRunning.into(),
            labels: container.config.labels.clone(),
            annotations: container.config.annotations.clone(),
            ..Default::default()
        };
        let wanted = self.containers.iter().filter(|(id, _)| id.starts_with(wanted));
        framed(&cri::ListContainersResponse { containers: wanted.map(item).collect() })
    }

    fn pod(&self, asked: &cri::PodSandboxStatusRequest) -> Result<Bytes, Code> {
        let id = &asked.pod_sandbox_id;
        let config = self.pods.get(id).ok_or(Code::NotFound)?;
        let status = cri::PodSandboxStatus {
            id: id.clone(),
            metadata: config.metadata.clone(),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            ..Default::default()
        };
        Ok(framed(&cri::PodSandboxStatusResponse {
            status: Some(status),
            info: verbose(asked.verbose, || info::pod(id, config)),
            ..Default::default()
        }))
    }

    fn container(&self, asked: &cri::ContainerStatusRequest) -> Result<Bytes, Code> {
        let id = &asked.container_id;
        let Container { pod, config } = self.containers.get(id).ok_or(Code::NotFound)?;
        let pod = self.pods.get(pod).ok_or(Code::NotFound)?;
        let linux = config.linux.as_ref().and_then(|linux| linux.resources.clone());
        let status = cri::ContainerStatus {
            id: id.clone(),
            metadata: config.metadata.clone(),
            state: cri::ContainerState::ContainerRunning.into(),
            image: config.image.clone(),
            labels: config.labels.clone(),
            annotations: config.annotations.clone(),
            resources: Some(cri::ContainerResources { linux, ..Default::default() }),
            ..Default::default()
        };
        Ok(framed(&cri::ContainerStatusResponse {
            status: Some(status),
            info: verbose(asked.verbose, || info::container(id, config, pod)),
        }))
    }
}

fn verbose(wanted: bool, document: impl FnOnce() -> String) -> BTreeMap<String, String> {
    wanted.then(|| ("info".to_owned(), document())).into_iter().collect()
}

fn read<T: Message + Default>(message: Bytes) -> Result<T, Code> {
    T::decode(message).map_err(|_| Code::InvalidArgument)
}

/// As long as a runtime's IDs; the same for the same names.
fn id(names: &[&str]) -> String {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let part = |number: usize| {
        let mut hasher = DefaultHasher::new();
        (number, names).hash(&mut hasher);
        format!("{:016x}", hasher.finish())
    };
    (0..4).map(part).collect()
}

/// Images that take almost [`LARGE`] bytes together.
fn images() -> Vec<cri::Image> {
    let image = |number: usize| cri::Image {
        id: format!("sha256:{number:064x}"),
        repo_tags: vec![format!("registry.example.com/team/server:{number}")],
        repo_digests: vec![format!("registry.example.com/team/server@sha256:{number:064x}")],
        size: 123_456_789,
        ..Default::default()
    };
    let mut left = LARGE;
    // Each image has a tag of one byte and a length of two.
    let fits = |image: &cri::Image| {
        left = left.checked_sub(3 + image.encoded_len())?;
        Some(())
    };
    let mut fits = fits;
    (0..).map(image).take_while(|image| fits(image).is_some()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn images_take_just_under_the_limit() {
        let size = cri::ListImagesResponse { images: images() }.encoded_len();
        assert!((LARGE - 1024..=LARGE).contains(&size), "{size}");
    }

    #[test]
    fn an_update_that_was_overtaken_is_counted() {
        let mut state = State::default();
        state.updates.insert("a".to_owned(), vec![(4, 2), (1, 1), (9, 3)]);
        state.updates.insert("b".to_owned(), vec![(2, 2), (3, 1)]);
        let version = cri::VersionResponse::decode(state.overtaken().slice(5..)).unwrap();
        assert_eq!(version.version, "1");
    }
}
