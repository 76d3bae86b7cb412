//! Both directions of a stream, and how they end.

use std::{path::Path, pin::pin};

use bytes::Bytes;
use h2::{
    Reason, SendStream,
    client::{ResponseFuture, SendRequest},
    server::SendResponse,
};
use http::{HeaderMap, Request, Response};
use tonic::Code;

use super::{
    RawCall,
    call::{given_up, refuse},
    loss::{Loss, reset_code},
    pump::{Broken, pump},
};
use crate::call::{complete, grpc_status, reset_status};

/// Passes `call` on through `sender` and its answer back. `path` is the server's socket.
pub(super) async fn carry(call: RawCall, sender: &SendRequest<Bytes>, path: &Path) -> Carried {
    let RawCall { mut head, mut body, reply, client, .. } = call;
    let mut answer = Answer { reply, sink: None };
    complete(&mut head.uri);
    let no_body = body.is_end_stream();
    let sent = sender.clone().send_request(Request::from_parts(head, ()), no_body);
    let Ok((response, mut request)) = sent else {
        // Nothing was sent to the server: the caller may send the call again.
        return answer.reset(Reason::REFUSED_STREAM).into();
    };
    let end = {
        let mut upload = pin!(pump(&mut body, &mut request));
        let mut download = pin!(answer.pass(response));
        let mut uploading = !no_body;
        loop {
            tokio::select! {
                biased;
                end = &mut download => break end,
                uploaded = &mut upload, if uploading => match uploaded {
                    Err(Broken::Source(error)) => break End::CallerLeft(reset_code(&error)),
                    // A server that stops reading the request may still answer.
                    Ok(_) | Err(Broken::Sink(_)) => uploading = false,
                },
            }
        }
    };
    match end {
        End::Answered(code) => code.into(),
        End::CallerLeft(reason) => {
            request.send_reset(reason);
            client.give_up();
            Carried::ABANDONED
        }
        End::ServerLeft(error) => answer.cut(&error, path).into(),
    }
}

/// How a relayed call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Carried {
    /// The code that its caller got, or would have got.
    pub code: Code,
    /// Whether the caller gave up before the answer.
    pub abandoned: bool,
}

impl Carried {
    pub(super) const ABANDONED: Self = Self { code: Code::Cancelled, abandoned: true };
}

impl From<Code> for Carried {
    fn from(code: Code) -> Self {
        Self { code, abandoned: false }
    }
}

enum End {
    Answered(Code),
    CallerLeft(Reason),
    ServerLeft(h2::Error),
}

/// The caller's side of the stream: its headers are still to be sent, or its data.
struct Answer {
    reply: SendResponse<Bytes>,
    sink: Option<SendStream<Bytes>>,
}

impl Answer {
    async fn pass(&mut self, response: ResponseFuture) -> End {
        let response = tokio::select! {
            biased;
            response = response => response,
            reason = given_up(&mut self.reply) => return End::CallerLeft(reason),
        };
        let (head, mut body) = match response {
            Ok(response) => response.into_parts(),
            Err(error) => return End::ServerLeft(error),
        };
        // An answer without a message has its status in the headers.
        let code = grpc_status(&head.headers);
        let no_body = body.is_end_stream();
        let sink = match self.reply.send_response(Response::from_parts(head, ()), no_body) {
            Ok(sink) => self.sink.insert(sink),
            Err(error) => return End::CallerLeft(reset_code(&error)),
        };
        if no_body {
            return End::Answered(code.unwrap_or(Code::Unknown));
        }
        match pump(&mut body, sink).await {
            Ok(trailing) => End::Answered(trailing.or(code).unwrap_or(Code::Unknown)),
            Err(Broken::Source(error)) => End::ServerLeft(error),
            Err(Broken::Sink(error)) => End::CallerLeft(reset_code(&error)),
        }
    }

    /// Ends the call as the server did, or, where the connection to it was lost, UNAVAILABLE.
    fn cut(&mut self, error: &h2::Error, path: &Path) -> Code {
        let status = match Loss::of(error, self.sink.is_some(), path) {
            Loss::Reset(reason) => return self.reset(reason),
            Loss::Status(status) => status,
        };
        match &mut self.sink {
            None => refuse(&mut self.reply, status),
            Some(sink) => {
                let mut trailers = HeaderMap::new();
                // Where this fails, the stream is reset when it is dropped.
                let _ = status.add_header(&mut trailers);
                let _ = sink.send_trailers(trailers);
            }
        }
        Code::Unavailable
    }

    fn reset(&mut self, reason: Reason) -> Code {
        match &mut self.sink {
            Some(sink) => sink.send_reset(reason),
            None => self.reply.send_reset(reason),
        }
        reset_status(reason)
    }
}
