//! A gRPC client that calls by name and sends bytes as they are given.

use std::path::{Path, PathBuf};
use std::time::Duration;

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use tonic::client::Grpc;
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{AsciiMetadataKey, AsciiMetadataValue};
use tonic::{Request, Status};
use wharf_uds::{Channel, ChannelOptions};

use crate::script::DEADLINE;

/// Calls whatever listens at a socket.
pub struct Client {
    path: PathBuf,
    calls: Grpc<Channel>,
    metadata: Vec<(AsciiMetadataKey, AsciiMetadataValue)>,
}

impl Client {
    /// A client that is connected.
    ///
    /// # Panics
    ///
    /// When nobody listens.
    pub async fn dial(path: &Path) -> Client {
        let channel = Channel::new(path, ChannelOptions::default());
        channel.connected(DEADLINE).await.unwrap_or_else(|error| panic!("{path:?}: {error}"));
        Client { path: path.to_owned(), calls: Grpc::new(channel), metadata: Vec::new() }
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same client, that sends a header with each call.
    ///
    /// # Panics
    ///
    /// When it is no legal header.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &'static str) -> Client {
        let value = AsciiMetadataValue::from_static(value);
        self.metadata.push((AsciiMetadataKey::from_static(name), value));
        self
    }

    /// One message to `method`, such as `/runtime.v1.RuntimeService/Version`, and the one that answers it.
    pub async fn call(&self, method: &str, message: impl Into<Bytes>) -> Result<Bytes, Status> {
        let mut request = Request::new(message.into());
        request.set_timeout(CALL);
        for (name, value) in &self.metadata {
            request.metadata_mut().insert(name.clone(), value.clone());
        }
        let method = PathAndQuery::try_from(method).expect("a legal path");
        let mut calls = self.calls.clone();
        let answer = calls.unary(request, method, Raw);
        match tokio::time::timeout(CALL, answer).await {
            Ok(answer) => answer.map(tonic::Response::into_inner),
            Err(_) => panic!("{}: no answer within {CALL:?}", self.path.display()),
        }
    }
}

const CALL: Duration = Duration::from_secs(20);

/// Messages as bytes.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Raw;
    type Decoder = Raw;

    fn encoder(&mut self) -> Raw {
        Raw
    }

    fn decoder(&mut self) -> Raw {
        Raw
    }
}

impl Encoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn encode(&mut self, message: Bytes, buffer: &mut EncodeBuf<'_>) -> Result<(), Status> {
        buffer.put(message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, buffer: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(buffer.copy_to_bytes(buffer.remaining())))
    }
}
