//! A call that is asked anew, and its answer, collected.

use std::path::Path;

use bytes::Bytes;
use h2::client::{ResponseFuture, SendRequest};
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::header::CONTENT_LENGTH;
use http::response::Parts;
use http::{HeaderMap, Request, Response};
use tonic::{Code, Status};
use wharf_wire::{Frame, Frames};

use super::RawCall;
use super::call::refuse;
use super::loss::Loss;
use crate::call::{complete, reset_status};

/// The largest answer that is collected: CRI's limit of 16 MiB, with room for what follows it.
const LARGEST: usize = 64 << 20;

/// What a server answered, to be looked at before it is passed on.
#[derive(Debug)]
pub struct RawAnswer(Answer);

#[derive(Debug)]
enum Answer {
    Whole { head: Box<Parts>, body: Vec<Bytes>, trailers: Option<HeaderMap> },
    Cut(Loss),
}

impl RawAnswer {
    pub(super) fn unavailable(text: String) -> RawAnswer {
        RawAnswer(Answer::Cut(Loss::Status(Status::unavailable(text))))
    }

    /// How the call ended.
    pub fn status(&self) -> Status {
        match &self.0 {
            Answer::Whole { head, trailers, .. } => trailers
                .as_ref()
                .and_then(Status::from_header_map)
                // An answer without a message has its status in the headers.
                .or_else(|| Status::from_header_map(&head.headers))
                .unwrap_or_else(|| Status::unknown("the server gave no status")),
            Answer::Cut(Loss::Status(status)) => status.clone(),
            Answer::Cut(Loss::Reset(reason)) => {
                Status::new(reset_status(*reason), format!("the server reset the call: {reason}"))
            }
        }
    }

    /// The message of an answer that has one.
    pub fn message(&self) -> Option<Bytes> {
        let Answer::Whole { body, .. } = &self.0 else { return None };
        let mut frames = Frames::new(LARGEST);
        body.iter().for_each(|data| frames.push(data));
        frames.next_frame().ok()?.filter(|frame| !frame.compressed).map(|frame| frame.message)
    }

    pub(super) fn send(self, mut reply: SendResponse<Bytes>) {
        // A caller that has left needs no answer, so every send may fail.
        match self.0 {
            Answer::Whole { head, body, trailers } => {
                let ends = body.is_empty() && trailers.is_none();
                let Ok(mut sink) = reply.send_response(Response::from_parts(*head, ()), ends)
                else {
                    return;
                };
                let last = body.len().saturating_sub(1);
                for (index, data) in body.into_iter().enumerate() {
                    let _ = sink.send_data(data, index == last && trailers.is_none());
                }
                if let Some(trailers) = trailers {
                    let _ = sink.send_trailers(trailers);
                }
            }
            Answer::Cut(Loss::Status(status)) => refuse(&mut reply, status),
            Answer::Cut(Loss::Reset(reason)) => reply.send_reset(reason),
        }
    }
}

/// Asks with the headers of `call` and `message`; no answer if the caller gives up first.
pub(super) async fn ask(
    call: &mut RawCall,
    sender: &SendRequest<Bytes>,
    path: &Path,
    message: &Bytes,
    sent: impl FnOnce(),
) -> Option<RawAnswer> {
    let mut head = call.head.clone();
    complete(&mut head.uri);
    // It was that of the message that came.
    head.headers.remove(CONTENT_LENGTH);
    let frame = Frame { compressed: false, message: message.clone() }.encode();
    let asked = sender.clone().send_request(Request::from_parts(head, ()), false).and_then(
        |(response, mut request)| request.send_data(frame, true).map(|()| (response, request)),
    );
    let Ok((response, mut request)) = asked else {
        // Nothing has left: the caller may send it again.
        return Some(RawAnswer(Answer::Cut(Loss::Reset(Reason::REFUSED_STREAM))));
    };
    sent();
    tokio::select! {
        biased;
        answer = collect(response) => {
            Some(RawAnswer(answer.unwrap_or_else(|(error, begun)| {
                Answer::Cut(Loss::of(&error, begun, path))
            })))
        }
        reason = call.given_up() => {
            request.send_reset(reason);
            None
        }
    }
}

/// Waits for the whole answer. The flag with an error tells whether it had begun.
async fn collect(response: ResponseFuture) -> Result<Answer, (h2::Error, bool)> {
    let (head, mut source) = response.await.map_err(|error| (error, false))?.into_parts();
    let mut body = Vec::new();
    let mut size = 0;
    while let Some(data) = source.data().await {
        let data = data.map_err(|error| (error, true))?;
        size += data.len();
        if size > LARGEST {
            return Ok(Answer::Cut(too_large()));
        }
        release(&mut source, data.len());
        body.push(data);
    }
    let trailers = source.trailers().await.map_err(|error| (error, true))?;
    Ok(Answer::Whole { head: Box::new(head), body, trailers })
}

fn too_large() -> Loss {
    Loss::Status(Status::new(
        Code::ResourceExhausted,
        format!("the server's answer is larger than {LARGEST} bytes"),
    ))
}

/// It fails for a stream that was reset since, which the next read tells.
fn release(source: &mut RecvStream, size: usize) {
    let _ = source.flow_control().release_capacity(size);
}
