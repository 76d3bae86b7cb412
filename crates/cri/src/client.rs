use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::metadata::AsciiMetadataValue;
use tonic::{Code, Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use wharf_proto::cri::{
    Container, ContainerEventResponse, ContainerFilter, ContainerStatusRequest,
    ContainerStatusResponse, GetEventsRequest, ListContainersRequest, ListPodSandboxRequest,
    PodSandbox, PodSandboxStatusRequest, PodSandboxStatusResponse,
};
use wharf_uds::{Channel, ChannelOptions, timed, within};

use crate::listed::List;
use crate::{ContainerDetails, Listed, PodDetails};

const SERVICES: [&str; 2] = ["runtime.v1.RuntimeService", "runtime.v1alpha2.RuntimeService"];
/// What a runtime's log shows, apart from what kubelet asks.
const AGENT: &str = concat!("wharf-cri/", env!("CARGO_PKG_VERSION"));
/// Lists of a busy node pass gRPC's own limit of 4 MiB, and the 16 MiB that kubelet takes.
const LARGEST: usize = 64 << 20;

/// How a [`Client`] talks to its socket.
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// How long one call may take. 10 s unless set.
    pub timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> ClientOptions {
        ClientOptions { timeout: Duration::from_secs(10) }
    }
}

/// A runtime behind its socket. Clones share one connection, which is made when a call needs it.
#[derive(Clone)]
pub struct Client {
    channel: Channel,
    timeout: Duration,
}

impl Client {
    /// A runtime at `socket`, which need not be there yet.
    pub fn new(socket: impl Into<PathBuf>, options: ClientOptions) -> Client {
        let channel = Channel::new(socket, ChannelOptions::default());
        Client { channel, timeout: options.timeout }
    }

    /// The socket.
    pub fn socket(&self) -> &Path {
        self.channel.path()
    }

    /// All pod sandboxes, dead ones too.
    pub async fn pods(&self) -> Result<Listed<PodSandbox>, Status> {
        let list: List = self.call("ListPodSandbox", ListPodSandboxRequest::default()).await?;
        Ok(list.into())
    }

    /// All containers, dead ones too.
    pub async fn containers(&self) -> Result<Listed<Container>, Status> {
        self.list_containers(None).await
    }

    /// The container with this id, of which runtimes know a unique beginning as well.
    pub async fn container(&self, id: &str) -> Result<Option<Container>, Status> {
        let filter = ContainerFilter { id: id.to_owned(), ..Default::default() };
        let found = self.list_containers(Some(filter)).await?;
        // A runtime may take the filter for less than it says.
        let mut found = found.filter(|container| container.id.starts_with(id));
        let first = found.next();
        Ok(first.filter(|_| found.next().is_none()))
    }

    /// The status of a pod sandbox and what the runtime tells of its configuration; `None` if there is no such pod.
    pub async fn pod_details(&self, id: &str) -> Result<Option<PodDetails>, Status> {
        let request = PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
        let answer = known(self.call("PodSandboxStatus", request).await)?;
        Ok(answer.and_then(|answer: PodSandboxStatusResponse| PodDetails::read(answer)))
    }

    /// The status of a container and what the runtime tells of its configuration; `None` if there is no such
    /// container.
    pub async fn container_details(&self, id: &str) -> Result<Option<ContainerDetails>, Status> {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
        let answer = known(self.call("ContainerStatus", request).await)?;
        Ok(answer.and_then(|answer: ContainerStatusResponse| ContainerDetails::read(answer)))
    }

    /// Events of containers from now on. The call returns once the runtime has sent the first one, and the stream lasts for as
    /// long as the runtime sends any: it is up to the caller to bound both.
    ///
    /// # Errors
    /// UNIMPLEMENTED of a runtime without events. Older versions of the protocol have none, so they are not tried.
    pub async fn container_events(&self) -> Result<Streaming<ContainerEventResponse>, Status> {
        let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/GetContainerEvents");
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(LARGEST);
        let mut request = Request::new(GetEventsRequest {});
        request.metadata_mut().insert("user-agent", AsciiMetadataValue::from_static(AGENT));
        let codec = ProstCodec::<GetEventsRequest, ContainerEventResponse>::default();
        grpc.server_streaming(request, path, codec).await.map(Response::into_inner)
    }

    async fn list_containers(
        &self,
        filter: Option<ContainerFilter>,
    ) -> Result<Listed<Container>, Status> {
        let list: List = self.call("ListContainers", ListContainersRequest { filter }).await?;
        Ok(list.into())
    }

    /// Asks in the newest version of the protocol that the runtime knows.
    async fn call<Q, A>(&self, method: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let [newest, old] = SERVICES;
        match self.send(newest, method, request.clone()).await {
            Err(status) if status.code() == Code::Unimplemented => {
                self.send(old, method, request).await
            }
            answer => answer,
        }
    }

    async fn send<Q, A>(&self, service: &str, method: &'static str, request: Q) -> Result<A, Status>
    where
        Q: Message + 'static,
        A: Message + Default + 'static,
    {
        let path = PathAndQuery::try_from(format!("/{service}/{method}"))
            .expect("the protocol's names are legal in a path");
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(LARGEST);
        let mut request = timed(request, self.timeout);
        request.metadata_mut().insert("user-agent", AsciiMetadataValue::from_static(AGENT));
        let call = grpc.unary(request, path, ProstCodec::<Q, A>::default());
        within(self.timeout, method, call).await.map(Response::into_inner)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("socket", &self.socket()).finish_non_exhaustive()
    }
}

/// An answer, or none for what the runtime does not have.
fn known<A>(answer: Result<A, Status>) -> Result<Option<A>, Status> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}

#[cfg(test)]
mod tests;
