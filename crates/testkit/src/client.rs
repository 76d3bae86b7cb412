//! A gRPC client that calls methods by name and sends bytes unchanged.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::{Buf, BufMut, Bytes};
use http::uri::PathAndQuery;
use tonic::{
    Request, Status,
    client::Grpc,
    codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder},
    metadata::{AsciiMetadataKey, AsciiMetadataValue},
};
use wharf_uds::{Channel, ChannelOptions};

use crate::script::DEADLINE;

/// A client of the server at a socket.
pub struct Client {
    path: PathBuf,
    calls: Grpc<Channel>,
    metadata: Vec<(AsciiMetadataKey, AsciiMetadataValue)>,
}

impl Client {
    /// A connected client.
    ///
    /// # Panics
    ///
    /// If nothing listens.
    pub async fn dial(path: &Path) -> Self {
        let channel = Channel::new(path, ChannelOptions::default());
        channel.connected(DEADLINE).await.unwrap_or_else(|error| panic!("{path:?}: {error}"));
        Self { path: path.to_owned(), calls: Grpc::new(channel), metadata: Vec::new() }
    }

    /// The socket.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same client with a header on each call.
    ///
    /// # Panics
    ///
    /// If the header is invalid.
    #[must_use]
    pub fn with(mut self, name: &'static str, value: &'static str) -> Self {
        let value = AsciiMetadataValue::from_static(value);
        self.metadata.push((AsciiMetadataKey::from_static(name), value));
        self
    }

    /// Sends one message to `method`, such as `/runtime.v1.RuntimeService/Version`, and returns the
    /// answer.
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

/// A codec for messages as bytes.
struct Raw;

impl Codec for Raw {
    type Encode = Bytes;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
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
