use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::request::Parts;
use http::{Request, Response};
use tonic::Status;

/// A call whose headers have arrived, and nothing else yet. Dropped, it is reset.
pub struct RawCall {
    pub(super) head: Parts,
    pub(super) body: RecvStream,
    pub(super) reply: SendResponse<Bytes>,
}

impl RawCall {
    pub(super) fn new(request: Request<RecvStream>, reply: SendResponse<Bytes>) -> RawCall {
        let (head, body) = request.into_parts();
        RawCall { head, body, reply }
    }

    /// The method as its caller wrote it: `/runtime.v1.RuntimeService/Version`.
    pub fn method(&self) -> &str {
        self.head.uri.path()
    }

    /// Ends the call with `status`, whatever its request still holds.
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
    // A caller that has left needs no answer.
    let _ = reply.send_response(Response::from_parts(head, ()), true);
}

/// Waits until the caller resets its stream, or is gone, and gives the code to reset others with.
pub(super) async fn given_up(reply: &mut SendResponse<Bytes>) -> Reason {
    std::future::poll_fn(|cx| reply.poll_reset(cx)).await.unwrap_or(Reason::CANCEL)
}
