//! A client that makes a kubelet's calls.

use std::path::Path;

use bytes::Bytes;
use h2::{Reason, SendStream};
use prost::Message;
use tonic::{Code, Status};
use wharf_proto::cri;
use wharf_testkit::runtime::message;

use crate::client::{Answer, Client, USUAL, send, whole};

pub(crate) const V1: &str = "/runtime.v1.RuntimeService";
pub(crate) const V1ALPHA2: &str = "/runtime.v1alpha2.RuntimeService";

pub(crate) struct Kubelet {
    pub(crate) client: Client,
    /// The version that it speaks.
    pub(crate) service: &'static str,
}

impl Kubelet {
    pub(crate) async fn dial(path: &Path) -> Self {
        Self { client: Client::dial(path).await, service: V1 }
    }

    pub(crate) async fn run(&self, request: &cri::RunPodSandboxRequest) -> Result<String, Status> {
        let made: cri::RunPodSandboxResponse = self.call("RunPodSandbox", request).await?;
        Ok(made.pod_sandbox_id)
    }

    pub(crate) async fn stop_pod(&self, id: &str) -> Result<(), Status> {
        let request = cri::StopPodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.call::<cri::StopPodSandboxResponse>("StopPodSandbox", &request).await.map(drop)
    }

    pub(crate) async fn remove_pod(&self, id: &str) -> Result<(), Status> {
        let request = cri::RemovePodSandboxRequest { pod_sandbox_id: id.to_owned() };
        self.call::<cri::RemovePodSandboxResponse>("RemovePodSandbox", &request).await.map(drop)
    }

    pub(crate) async fn create(
        &self,
        request: &cri::CreateContainerRequest,
    ) -> Result<String, Status> {
        let made: cri::CreateContainerResponse = self.call("CreateContainer", request).await?;
        Ok(made.container_id)
    }

    pub(crate) async fn start(&self, id: &str) -> Result<(), Status> {
        let request = cri::StartContainerRequest { container_id: id.to_owned() };
        self.call::<cri::StartContainerResponse>("StartContainer", &request).await.map(drop)
    }

    pub(crate) async fn update(
        &self,
        request: &cri::UpdateContainerResourcesRequest,
    ) -> Result<(), Status> {
        let method = "UpdateContainerResources";
        self.call::<cri::UpdateContainerResourcesResponse>(method, request).await.map(drop)
    }

    pub(crate) async fn stop(&self, id: &str) -> Result<(), Status> {
        let request = cri::StopContainerRequest { container_id: id.to_owned(), timeout: 30 };
        self.call::<cri::StopContainerResponse>("StopContainer", &request).await.map(drop)
    }

    pub(crate) async fn remove(&self, id: &str) -> Result<(), Status> {
        let request = cri::RemoveContainerRequest { container_id: id.to_owned() };
        self.call::<cri::RemoveContainerResponse>("RemoveContainer", &request).await.map(drop)
    }

    /// A call by its name.
    pub(crate) async fn call<A: Message + Default>(
        &self,
        method: &str,
        request: &impl Message,
    ) -> Result<A, Status> {
        let answer = self.send(method, request.encode_to_vec(), USUAL).await?;
        Ok(A::decode(answer).unwrap())
    }

    /// A message as it is, and the one that answers it.
    pub(crate) async fn send(
        &self,
        method: &str,
        bytes: impl Into<Vec<u8>>,
        fields: &[(&str, &[u8])],
    ) -> Result<Bytes, Status> {
        let frame = message(&bytes.into());
        // A call that the proxy could not even pass on is one to make again, as gRPC does.
        loop {
            let path = format!("{}/{method}", self.service);
            let (response, mut sink) = self.client.open(&path, fields).await;
            let _ = send(&mut sink, frame.clone(), true).await;
            match whole(response).await {
                Ok(answer) => return answered(&answer),
                Err(error) if error.reason() == Some(Reason::REFUSED_STREAM) => {}
                Err(error) => return Err(Status::unavailable(error.to_string())),
            }
        }
    }

    /// Sends a call without waiting for its answer. Whoever drops what is returned gives it up.
    pub(crate) async fn begin(
        &self,
        method: &str,
        request: &impl Message,
    ) -> (h2::client::ResponseFuture, SendStream<Bytes>) {
        let path = format!("{}/{method}", self.service);
        let (response, mut sink) = self.client.open(&path, USUAL).await;
        send(&mut sink, message(&request.encode_to_vec()), true).await.unwrap();
        (response, sink)
    }
}

pub(crate) fn answered(answer: &Answer) -> Result<Bytes, Status> {
    let fields = answer.trailers.as_ref().unwrap_or(&answer.headers);
    let status = Status::from_header_map(fields).expect("an answer has a status");
    match status.code() {
        Code::Ok => Ok(Bytes::copy_from_slice(&answer.data[5..])),
        _ => Err(status),
    }
}
