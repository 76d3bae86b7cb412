use std::{sync::Arc, time::Duration};

use bytes::Bytes;
use h2::Reason;
use tokio::sync::{Notify, watch};

use super::Headers;

/// The answer to a call.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Answers before the request has ended, without reading it.
    pub early: bool,
    /// Delay before the answer.
    pub delay: Duration,
    /// Headers in addition to those of every answer.
    pub headers: Headers,
    /// Data, sent in these pieces.
    pub data: Vec<Bytes>,
    /// Further data, as it is added, until the sender is dropped.
    pub more: Option<watch::Receiver<Vec<Bytes>>>,
    /// A signal to wait for after the data.
    pub pause: Option<Arc<Notify>>,
    /// The end of the answer.
    pub then: Then,
}

/// The end of an answer.
#[derive(Clone, Debug)]
pub enum Then {
    /// Trailers, with `grpc-status` 0 unless they contain it.
    Trailers(Headers),
    /// Ends with the headers: they contain the status, and there is no data.
    Headers,
    /// A reset: before the headers, or after the data if there is any. Data that is not written by
    /// then is lost.
    Reset(Reason),
    /// The answer never ends.
    Never,
    /// Ends with the request: everything received is sent back at once, including trailers.
    Echo,
}

impl Default for Reply {
    /// An empty message.
    fn default() -> Self {
        Self::of(vec![message(b"")])
    }
}

impl Reply {
    /// Data and status 0.
    #[must_use]
    pub fn of(data: Vec<Bytes>) -> Self {
        let then = Then::Trailers(Vec::new());
        let (early, delay, headers) = (false, Duration::ZERO, Vec::new());
        Self { early, delay, headers, data, more: None, pause: None, then }
    }

    /// Data, and then something else than status 0.
    #[must_use]
    pub fn then(data: Vec<Bytes>, then: Then) -> Self {
        Self { then, ..Self::of(data) }
    }
}

/// A gRPC message as it travels: a flag, its length, itself.
#[must_use]
pub fn message(bytes: &[u8]) -> Bytes {
    let length = u32::try_from(bytes.len()).expect("a message is below 4 GiB").to_be_bytes();
    [&[0], length.as_slice(), bytes].concat().into()
}
