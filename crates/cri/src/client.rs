use std::{
    fmt,
    path::{Path, PathBuf},
    time::Duration,
};

use http::uri::PathAndQuery;
use prost::Message;
use tonic::{
    Code, Request, Response, Status, Streaming, client::Grpc, metadata::AsciiMetadataValue,
};
use tonic_prost::ProstCodec;
use wharf_proto::cri::{
    Container, ContainerEventResponse, ContainerFilter, ContainerStatusRequest,
    ContainerStatusResponse, GetEventsRequest, ListContainersRequest, ListPodSandboxRequest,
    PodSandbox, PodSandboxStatusRequest, PodSandboxStatusResponse,
};
use wharf_uds::{Channel, ChannelOptions, timed, within};

use crate::{ContainerDetails, Listed, PodDetails, listed::List};

const SERVICES: [&str; 2] = ["runtime.v1.RuntimeService", "runtime.v1alpha2.RuntimeService"];
/// User agent of this client in a runtime's log, where the kubelet's calls appear as well.
const USER_AGENT: &str = concat!("wharf-cri/", env!("CARGO_PKG_VERSION"));
/// Maximum size of a response. Lists of a full node exceed both gRPC's 4 MiB and the kubelet's 16
/// MiB.
const MAX_MESSAGE: usize = 64 << 20;

/// Options of a [`Client`].
#[derive(Clone, Copy, Debug)]
pub struct ClientOptions {
    /// Timeout of a call. Defaults to 10 s.
    pub timeout: Duration,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self { timeout: Duration::from_secs(10) }
    }
}

/// A client of a container runtime. Clones share one connection, which is made when a call needs
/// it.
#[derive(Clone)]
pub struct Client {
    channel: Channel,
    timeout: Duration,
}

impl Client {
    /// Creates a client of the runtime at `socket`. The socket need not exist yet.
    pub fn new(socket: impl Into<PathBuf>, options: ClientOptions) -> Self {
        let channel = Channel::new(socket, ChannelOptions::default());
        Self { channel, timeout: options.timeout }
    }

    /// Path of the runtime's socket.
    pub fn socket(&self) -> &Path {
        self.channel.path()
    }

    /// Lists all pod sandboxes, including those that have stopped.
    pub async fn pods(&self) -> Result<Listed<PodSandbox>, Status> {
        let list: List = self.call("ListPodSandbox", ListPodSandboxRequest::default()).await?;
        Ok(list.into())
    }

    /// Lists all containers, including those that have exited.
    pub async fn containers(&self) -> Result<Listed<Container>, Status> {
        self.list_containers(None).await
    }

    /// Finds a container by its ID or by a unique prefix of it.
    pub async fn container(&self, id: &str) -> Result<Option<Container>, Status> {
        let filter = ContainerFilter { id: id.to_owned(), ..Default::default() };
        let found = self.list_containers(Some(filter)).await?;
        // Filter again: a runtime may return more than the filter asks for.
        let mut found = found.filter(|container| container.id.starts_with(id));
        let first = found.next();
        Ok(first.filter(|_| found.next().is_none()))
    }

    /// Returns a pod sandbox's status and configuration; `None` if the runtime does not know the
    /// sandbox.
    pub async fn pod_details(&self, id: &str) -> Result<Option<PodDetails>, Status> {
        let request = PodSandboxStatusRequest { pod_sandbox_id: id.to_owned(), verbose: true };
        let answer = known(self.call("PodSandboxStatus", request).await)?;
        Ok(answer.and_then(|answer: PodSandboxStatusResponse| PodDetails::read(answer)))
    }

    /// Returns a container's status and configuration; `None` if the runtime does not know the
    /// container.
    pub async fn container_details(&self, id: &str) -> Result<Option<ContainerDetails>, Status> {
        let request = ContainerStatusRequest { container_id: id.to_owned(), verbose: true };
        let answer = known(self.call("ContainerStatus", request).await)?;
        Ok(answer.and_then(|answer: ContainerStatusResponse| ContainerDetails::read(answer)))
    }

    /// Streams container events from now on. The call returns when the runtime has sent the first
    /// event, and the stream ends when the runtime closes it: the caller must bound both waits.
    ///
    /// # Errors
    /// UNIMPLEMENTED if the runtime has no events. Older versions of the protocol have none, so
    /// they are not tried.
    pub async fn container_events(&self) -> Result<Streaming<ContainerEventResponse>, Status> {
        let path = PathAndQuery::from_static("/runtime.v1.RuntimeService/GetContainerEvents");
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE);
        let mut request = Request::new(GetEventsRequest {});
        request.metadata_mut().insert("user-agent", AsciiMetadataValue::from_static(USER_AGENT));
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

    /// Calls the newest version of the protocol that the runtime implements.
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
            .expect("service and method names are legal in a path");
        let mut grpc = Grpc::new(self.channel.clone()).max_decoding_message_size(MAX_MESSAGE);
        let mut request = timed(request, self.timeout);
        request.metadata_mut().insert("user-agent", AsciiMetadataValue::from_static(USER_AGENT));
        let call = grpc.unary(request, path, ProstCodec::<Q, A>::default());
        within(self.timeout, method, call).await.map(Response::into_inner)
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("socket", &self.socket()).finish_non_exhaustive()
    }
}

/// Turns NOT_FOUND into `None`.
fn known<A>(answer: Result<A, Status>) -> Result<Option<A>, Status> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(status) if status.code() == Code::NotFound => Ok(None),
        Err(status) => Err(status),
    }
}

#[cfg(test)]
mod tests;
