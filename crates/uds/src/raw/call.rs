use std::time::Duration;

use bytes::Bytes;
use h2::{Reason, RecvStream, server::SendResponse};
use http::{HeaderMap, Request, Response, request::Parts};
use tokio::{sync::OwnedSemaphorePermit, time::Instant};
use tonic::Status;
use wharf_wire::{FrameError, Frames};

use super::{RawAnswer, patience::Patience};
use crate::{
    admission::{HeaderRoom, is_reset},
    chain::Chain,
    clients::{Client, ClientCall},
    deadline,
};

/// The bytes before a message that hold its size.
const FRAME_HEADER: usize = 5;

/// A call whose headers have arrived. Dropping it resets the stream.
pub struct RawCall {
    pub(super) head: Parts,
    pub(super) body: RecvStream,
    pub(super) reply: SendResponse<Bytes>,
    arrived: Instant,
    pub(super) client: ClientCall,
    /// Whether a server works on the call, so that its process is charged if it gives the call up.
    is_charged: bool,
    /// Room for its header list, until the call ends.
    _room: OwnedSemaphorePermit,
}

impl RawCall {
    /// A call that needs a task, or `None` if the client reset it or it was refused.
    pub(super) fn admit(
        request: Request<RecvStream>,
        mut reply: SendResponse<Bytes>,
        client: &Client,
        room: &HeaderRoom,
    ) -> Option<Self> {
        if is_reset(&mut reply) {
            return None;
        }
        let admitted = client.begin().and_then(|mut call| {
            let room = room.take(&request, &mut call)?;
            Ok((call, room))
        });
        let (client, room) = match admitted {
            Ok(admitted) => admitted,
            Err(status) => {
                refuse(&mut reply, status);
                return None;
            }
        };
        let (head, body) = request.into_parts();
        let arrived = Instant::now();
        Some(Self { head, body, reply, arrived, client, is_charged: false, _room: room })
    }

    /// The method as its caller wrote it: `/runtime.v1.RuntimeService/Version`.
    pub fn method(&self) -> &str {
        self.head.uri.path()
    }

    /// The call's metadata.
    pub fn metadata(&self) -> &HeaderMap {
        &self.head.headers
    }

    /// How long its caller waits, counted from when the call was made.
    pub fn timeout(&self) -> Option<Duration> {
        deadline::header_timeout(&self.head.headers)
    }

    /// When its caller stops waiting.
    pub fn ends(&self) -> Option<Instant> {
        self.timeout().and_then(|patience| self.arrived.checked_add(patience))
    }

    /// The one message of a unary call, of up to `limit` bytes, once all of it is there.
    ///
    /// # Errors
    /// When the message is too large, compressed or not exactly one, or the caller gives up: the
    /// status to refuse the call with.
    pub async fn message(&mut self, limit: usize) -> Result<Bytes, Status> {
        self.message_within(limit, |_| Ok(())).await
    }

    /// The same, and calls `reserve` with the number of bytes before each piece is kept. The
    /// messages of all running calls of a process may take as many bytes together as the largest
    /// message.
    ///
    /// # Errors
    /// The same, and the errors of `reserve`. Also if the messages of the process take too much, if
    /// no byte arrives for 10 seconds, and once the caller's deadline has passed.
    pub async fn message_within(
        &mut self,
        limit: usize,
        mut reserve: impl FnMut(usize) -> Result<(), Status>,
    ) -> Result<Bytes, Status> {
        let mut frames = Frames::new(limit);
        let mut message = None;
        let ends = self.ends();
        let mut patience = Patience::new(ends);
        while let Some(data) = patience.within(self.body.data()).await? {
            let data = data.map_err(|error| Status::cancelled(Chain(&error).to_string()))?;
            patience.restore(data.len());
            self.client.take_message(data.len(), limit + FRAME_HEADER)?;
            reserve(data.len())?;
            // Released at once: the limit bounds what is kept, not the window.
            let _ = self.body.flow_control().release_capacity(data.len());
            frames.push(&data);
            while let Some(frame) = frames.next_frame().map_err(unreadable)? {
                if frame.compressed {
                    return Err(Status::unimplemented(
                        "the message is compressed, which no kubelet does: send it as it is",
                    ));
                }
                if message.replace(frame.message).is_some() {
                    return Err(Status::internal("expected one message, got more"));
                }
            }
        }
        frames.finish().map_err(unreadable)?;
        message.ok_or_else(|| Status::internal("expected one message, got none"))
    }

    /// Charges the client process if it gives up the call from now on, like a call that was
    /// relayed: a server other than that of a [`Relay`](super::Relay) works on the call.
    pub fn charge_if_abandoned(&mut self) {
        self.is_charged = true;
    }

    /// Waits until the caller resets the call or disconnects.
    pub async fn abandoned(&mut self) {
        self.given_up().await;
        if self.is_charged {
            self.client.give_up();
        }
    }

    /// Passes on the server's answer.
    pub fn answer(self, answer: RawAnswer) {
        answer.send(self.reply);
    }

    /// Ends the call with `status`, and ignores the rest of its request.
    pub fn refuse(mut self, status: Status) {
        refuse(&mut self.reply, status);
    }

    /// Waits until the caller gives up.
    pub(super) async fn given_up(&mut self) -> Reason {
        given_up(&mut self.reply).await
    }
}

impl std::fmt::Debug for RawCall {
    /// Metadata may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RawCall").field("method", &self.method()).finish_non_exhaustive()
    }
}

/// Answers with a status and no message.
pub(super) fn refuse(reply: &mut SendResponse<Bytes>, status: Status) {
    let (head, ()) = status.into_http::<()>().into_parts();
    // The send fails if the caller has left.
    let _ = reply.send_response(Response::from_parts(head, ()), true);
}

/// Waits until the caller resets its stream or disconnects, and returns the code for resets of
/// related streams.
pub(super) async fn given_up(reply: &mut SendResponse<Bytes>) -> Reason {
    std::future::poll_fn(|cx| reply.poll_reset(cx)).await.unwrap_or(Reason::CANCEL)
}

fn unreadable(error: FrameError) -> Status {
    match error {
        FrameError::TooLarge { .. } => Status::resource_exhausted(error.to_string()),
        FrameError::Flag(_) | FrameError::Truncated { .. } => Status::internal(error.to_string()),
    }
}
