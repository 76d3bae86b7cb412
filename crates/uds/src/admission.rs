//! Checks on a call before it gets a task.

use std::{
    sync::Arc,
    task::{Context, Waker},
};

use bytes::Bytes;
use h2::{RecvStream, server::SendResponse};
use http::{HeaderMap, Request};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tonic::Status;

use crate::{
    clients::ClientCall,
    limits::{ALL_REQUEST_HEADERS, REQUEST_FIELDS},
};

/// The overhead that HTTP/2 adds to the size of each header field.
const FIELD: usize = 32;

/// # Errors
/// When a request has too many header fields.
pub(crate) fn check_fields(headers: &HeaderMap) -> Result<(), Status> {
    match headers.len() {
        ..=REQUEST_FIELDS => Ok(()),
        count => Err(Status::resource_exhausted(format!(
            "the call has {count} header fields, the most are {REQUEST_FIELDS}"
        ))),
    }
}

/// Whether the client has reset the call or disconnected.
pub(crate) fn is_reset(reply: &mut SendResponse<Bytes>) -> bool {
    reply.poll_reset(&mut Context::from_waker(Waker::noop())).is_ready()
}

/// Room for the header lists of all calls of a listener.
#[derive(Clone)]
pub(crate) struct HeaderRoom(Arc<Semaphore>);

impl HeaderRoom {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(ALL_REQUEST_HEADERS)))
    }

    /// Reserves room for a request until the permit is dropped.
    ///
    /// # Errors
    /// When the request has too many fields, or other calls, of the process or of all, leave no
    /// room.
    pub(crate) fn take(
        &self,
        request: &Request<RecvStream>,
        call: &mut ClientCall,
    ) -> Result<OwnedSemaphorePermit, Status> {
        check_fields(request.headers())?;
        let size = size(request);
        call.take_headers(size)?;
        // h2 has refused sizes that do not fit into 32 bits.
        let size = u32::try_from(size).unwrap_or(u32::MAX);
        self.0.clone().try_acquire_many_owned(size).map_err(|_| full())
    }
}

fn size(request: &Request<RecvStream>) -> usize {
    let fields = request.headers().iter();
    let fields: usize = fields.map(|(name, value)| name.as_str().len() + value.len() + FIELD).sum();
    let authority = request.uri().authority().map_or(0, |authority| authority.as_str().len());
    let path = request.uri().path_and_query().map_or(0, |path| path.as_str().len());
    fields + authority + path + 4 * FIELD
}

fn full() -> Status {
    Status::resource_exhausted(format!(
        "the header lists of calls under way take {} MiB, the most that is allowed: try again",
        ALL_REQUEST_HEADERS >> 20
    ))
}
