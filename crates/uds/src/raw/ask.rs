//! Sends a unary call and collects its answer.

use std::path::Path;

use bytes::Bytes;
use h2::{
    Reason, RecvStream, SendStream,
    client::{ResponseFuture, SendRequest},
    server::SendResponse,
};
use http::{HeaderMap, Request, Response, StatusCode, header::CONTENT_LENGTH, response::Parts};
use tokio::time::Instant;
use tonic::{Code, Status};
use wharf_wire::{Frame, Frames};

use super::{RawCall, call::refuse, loss::Loss};
use crate::{
    call::{GRPC_STATUS, complete, grpc_status, reset_status},
    deadline,
};

/// The largest answer that is collected: CRI's limit of 16 MiB, with room for growth.
const LARGEST: usize = 64 << 20;

/// A server's answer, which can be read before it is passed on.
#[derive(Debug)]
pub struct RawAnswer(Answer);

#[derive(Debug)]
enum Answer {
    Whole { head: Box<Parts>, body: Vec<Bytes>, trailers: Option<HeaderMap> },
    Cut(Loss),
}

impl RawAnswer {
    pub(super) fn unavailable(text: String) -> Self {
        Self(Answer::Cut(Loss::Status(Status::unavailable(text))))
    }

    /// The code that the call ended with.
    pub fn code(&self) -> Code {
        match &self.0 {
            Answer::Whole { head, trailers, .. } => headers_with_status(head, trailers)
                .and_then(grpc_status)
                .unwrap_or_else(|| code_without_status(head.status)),
            Answer::Cut(Loss::Status(status)) => status.code(),
            Answer::Cut(Loss::Reset(reason)) => reset_status(*reason),
        }
    }

    /// The status that the call ended with.
    pub fn status(&self) -> Status {
        match &self.0 {
            Answer::Whole { head, trailers, .. } => headers_with_status(head, trailers)
                .and_then(Status::from_header_map)
                .unwrap_or_else(|| without_status(head.status)),
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

    /// The message of a call that succeeded.
    ///
    /// # Errors
    /// The status that it ended with, or INTERNAL if it succeeded without a message.
    pub fn into_message(self) -> Result<Bytes, Status> {
        if self.code() != Code::Ok {
            return Err(self.status());
        }
        self.message().ok_or_else(|| Status::internal("the answer holds no message in one piece"))
    }

    /// Whether the server did not process the call, so that it may be made again.
    pub(super) fn was_refused(&self) -> bool {
        matches!(self.0, Answer::Cut(Loss::Reset(Reason::REFUSED_STREAM)))
    }

    pub(super) fn send(self, mut reply: SendResponse<Bytes>) {
        // Every send fails if the caller has left, and that is fine.
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

/// Asks with the headers of `call` and `message`; `None` if the caller gives up first. The
/// request's timeout is what is left of the caller's.
pub(super) async fn ask(
    call: &mut RawCall,
    sender: &SendRequest<Bytes>,
    path: &Path,
    message: &Bytes,
    sent: impl FnOnce(),
) -> Option<RawAnswer> {
    let mut head = call.head.clone();
    complete(&mut head.uri);
    // It was the length of the original message.
    head.headers.remove(CONTENT_LENGTH);
    if let Some(ends) = call.ends() {
        let left = ends.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let text = "the caller's time was over before the server could be asked";
            return Some(RawAnswer(Answer::Cut(Loss::Status(Status::deadline_exceeded(text)))));
        }
        deadline::set_header_timeout(&mut head.headers, left);
    }
    let Ok((response, mut request)) = send(sender, Request::from_parts(head, ()), message) else {
        return Some(RawAnswer(Answer::Cut(UNSENT)));
    };
    sent();
    tokio::select! {
        biased;
        answer = collect(response, LARGEST, path) => Some(answer),
        reason = call.given_up() => {
            request.send_reset(reason);
            call.client.give_up();
            None
        }
    }
}

/// Makes a call of this process's own, whose answer takes at most `limit` bytes.
pub(super) async fn call(
    sender: &SendRequest<Bytes>,
    path: &Path,
    request: Request<()>,
    message: &Bytes,
    limit: usize,
) -> RawAnswer {
    match send(sender, request, message) {
        Ok((response, _request)) => collect(response, limit, path).await,
        Err(_) => RawAnswer(Answer::Cut(UNSENT)),
    }
}

/// Nothing was sent: the caller may call again.
const UNSENT: Loss = Loss::Reset(Reason::REFUSED_STREAM);

fn send(
    sender: &SendRequest<Bytes>,
    request: Request<()>,
    message: &Bytes,
) -> Result<(ResponseFuture, SendStream<Bytes>), h2::Error> {
    let frame = Frame { compressed: false, message: message.clone() }.encode();
    let (response, mut stream) = sender.clone().send_request(request, false)?;
    stream.send_data(frame, true)?;
    Ok((response, stream))
}

async fn collect(response: ResponseFuture, limit: usize, path: &Path) -> RawAnswer {
    let collected = collect_all(response, limit).await;
    RawAnswer(collected.unwrap_or_else(|(error, begun)| Answer::Cut(Loss::of(&error, begun, path))))
}

/// Waits for the whole answer. The flag of an error is set if the answer had begun.
async fn collect_all(response: ResponseFuture, limit: usize) -> Result<Answer, (h2::Error, bool)> {
    let (head, mut source) = response.await.map_err(|error| (error, false))?.into_parts();
    let mut body = Vec::new();
    let mut size = 0;
    while let Some(data) = source.data().await {
        let data = data.map_err(|error| (error, true))?;
        size += data.len();
        if size > limit {
            return Ok(Answer::Cut(too_large(limit)));
        }
        release(&mut source, data.len());
        body.push(data);
    }
    let trailers = source.trailers().await.map_err(|error| (error, true))?;
    Ok(Answer::Whole { head: Box::new(head), body, trailers })
}

fn too_large(limit: usize) -> Loss {
    Loss::Status(Status::new(
        Code::ResourceExhausted,
        format!("the server's answer is larger than {limit} bytes"),
    ))
}

/// The headers that carry the gRPC status: the trailers, or those of an answer without a message.
fn headers_with_status<'a>(
    head: &'a Parts,
    trailers: &'a Option<HeaderMap>,
) -> Option<&'a HeaderMap> {
    trailers.iter().chain([&head.headers]).find(|headers| headers.contains_key(GRPC_STATUS))
}

fn without_status(http: StatusCode) -> Status {
    let text = format!("the server gave no status, and HTTP status {}", http.as_u16());
    Status::new(code_without_status(http), text)
}

/// The code of an answer without a gRPC status, as the protocol maps HTTP statuses.
fn code_without_status(http: StatusCode) -> Code {
    match http {
        StatusCode::BAD_REQUEST => Code::Internal,
        StatusCode::UNAUTHORIZED => Code::Unauthenticated,
        StatusCode::FORBIDDEN => Code::PermissionDenied,
        StatusCode::NOT_FOUND => Code::Unimplemented,
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => Code::Unavailable,
        _ => Code::Unknown,
    }
}

/// Fails if the stream was reset meanwhile, which the next read reports.
fn release(source: &mut RecvStream, size: usize) {
    let _ = source.flow_control().release_capacity(size);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn whole(http: u16, headers: &[(&str, &str)], trailers: Option<&[(&str, &str)]>) -> RawAnswer {
        let map = |pairs: &[(&str, &str)]| {
            let pair =
                |(name, value): &(&str, &str)| (name.parse().unwrap(), value.parse().unwrap());
            pairs.iter().map(pair).collect::<HeaderMap>()
        };
        let (mut head, ()) = Response::builder().status(http).body(()).unwrap().into_parts();
        head.headers = map(headers);
        RawAnswer(Answer::Whole {
            head: Box::new(head),
            body: Vec::new(),
            trailers: trailers.map(map),
        })
    }

    #[test]
    fn the_code_is_that_of_the_status() {
        let status = |code: &'static str| [("grpc-status", code), ("grpc-message", "why")];
        let ok = status("0");
        for (answer, code) in [
            (whole(200, &[], Some(&ok)), Code::Ok),
            (whole(200, &ok, Some(&status("5"))), Code::NotFound),
            (whole(200, &status("5"), Some(&[])), Code::NotFound),
            (whole(200, &status("7"), None), Code::PermissionDenied),
            (whole(200, &status("nonsense"), None), Code::Unknown),
            (whole(404, &[], None), Code::Unimplemented),
            (whole(503, &[], Some(&[])), Code::Unavailable),
            (RawAnswer::unavailable("gone".to_owned()), Code::Unavailable),
            (RawAnswer(Answer::Cut(UNSENT)), Code::Unavailable),
            (RawAnswer(Answer::Cut(Loss::Reset(Reason::CANCEL))), Code::Cancelled),
        ] {
            assert_eq!((answer.code(), answer.status().code()), (code, code), "{answer:?}");
        }
    }
}
