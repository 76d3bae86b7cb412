use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use h2::Reason;
use tokio::sync::{Notify, watch};

use super::Headers;

/// How a call is answered.
#[derive(Clone, Debug)]
pub struct Reply {
    /// Answer before the request has ended, and read nothing of it.
    pub early: bool,
    /// How long to think.
    pub delay: Duration,
    /// Headers beside those that every answer has.
    pub headers: Headers,
    /// Data, a piece at a time.
    pub data: Vec<Bytes>,
    /// More data, as it is added, until the sender is gone.
    pub more: Option<watch::Receiver<Vec<Bytes>>>,
    /// What to wait for after the data.
    pub pause: Option<Arc<Notify>>,
    /// What follows.
    pub then: Then,
}

/// How an answer ends.
#[derive(Clone, Debug)]
pub enum Then {
    /// With trailers, `grpc-status` 0 unless they say otherwise.
    Trailers(Headers),
    /// With the headers: they hold the status, and there is no data.
    Headers,
    /// With a reset: before the headers, or after the data if there is any. What was not written by then is lost.
    Reset(Reason),
    /// Not at all.
    Never,
    /// Not before the request: what comes is sent back, trailers too, as it comes.
    Echo,
}

impl Default for Reply {
    /// An empty message.
    fn default() -> Reply {
        Reply::of(vec![message(b"")])
    }
}

impl Reply {
    /// Data and status 0.
    #[must_use]
    pub fn of(data: Vec<Bytes>) -> Reply {
        let then = Then::Trailers(Vec::new());
        let (early, delay, headers) = (false, Duration::ZERO, Vec::new());
        Reply { early, delay, headers, data, more: None, pause: None, then }
    }

    /// Data, and then something else than status 0.
    #[must_use]
    pub fn then(data: Vec<Bytes>, then: Then) -> Reply {
        Reply { then, ..Reply::of(data) }
    }
}

/// A gRPC message as it travels: a flag, its length, itself.
#[must_use]
pub fn message(bytes: &[u8]) -> Bytes {
    let length = u32::try_from(bytes.len()).expect("a message is below 4 GiB").to_be_bytes();
    [&[0], length.as_slice(), bytes].concat().into()
}
