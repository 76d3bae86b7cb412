//! A call at the runtime.

use bytes::Bytes;
use h2::{Reason, RecvStream, SendStream, server::SendResponse};
use http::{
    Request, Response,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue},
};
use tokio::sync::watch;

use super::{Reply, Then};

/// Header fields in order, with their values as bytes.
pub type Headers = Vec<(String, Vec<u8>)>;

/// A recorded call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Received {
    /// `:path`.
    pub method: String,
    /// `:authority`.
    pub authority: Option<String>,
    /// All other headers.
    pub headers: Headers,
    /// The request's data, without frames.
    pub data: Vec<u8>,
    /// The request's trailers.
    pub trailers: Headers,
    /// The end of the request.
    pub end: End,
}

/// The end of a call's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The request is not over.
    Open,
    /// The caller ended it properly.
    Ended,
    /// The caller reset the stream, with this code.
    Reset(u32),
    /// The connection was lost.
    Lost,
}

pub(super) async fn attend(
    request: Request<RecvStream>,
    reply: SendResponse<Bytes>,
    scripted: Reply,
    calls: watch::Sender<Vec<Received>>,
) {
    let (head, body) = request.into_parts();
    let received = Received {
        method: head.uri.path().to_owned(),
        authority: head.uri.authority().map(|authority| authority.as_str().to_owned()),
        headers: list(&head.headers),
        data: Vec::new(),
        trailers: Vec::new(),
        end: End::Open,
    };
    let mut index = 0;
    calls.send_modify(|calls| {
        index = calls.len();
        calls.push(received);
    });
    let mut call = Call { calls, index, cut: true };
    if let Err(error) = call.answer(body, reply, scripted).await {
        let end = match error.reason() {
            Some(reason) if !error.is_go_away() => End::Reset(reason.into()),
            _ => End::Lost,
        };
        call.note(|call| call.end = end);
    }
    call.cut = false;
}

struct Call {
    calls: watch::Sender<Vec<Received>>,
    index: usize,
    /// Dropped before its end, with its connection.
    cut: bool,
}

impl Drop for Call {
    fn drop(&mut self) {
        if self.cut {
            self.note(|call| call.end = End::Lost);
        }
    }
}

impl Call {
    async fn answer(
        &self,
        mut body: RecvStream,
        mut reply: SendResponse<Bytes>,
        scripted: Reply,
    ) -> Result<(), h2::Error> {
        if matches!(scripted.then, Then::Echo) {
            let mut sink = reply.send_response(response(&scripted.headers), false)?;
            while let Some(data) = self.next(&mut body).await? {
                send(&mut sink, data).await?;
            }
            let trailers = self.ended(&mut body).await?;
            return sink.send_trailers(headers(&with_status(trailers)));
        }
        if !scripted.early {
            while self.next(&mut body).await?.is_some() {}
            self.ended(&mut body).await?;
        }
        if !scripted.delay.is_zero() {
            tokio::select! {
                () = tokio::time::sleep(scripted.delay) => {}
                reset = std::future::poll_fn(|cx| reply.poll_reset(cx)) => return Err(reset?.into()),
            }
        }
        match &scripted.then {
            Then::Headers => {
                let headers = with_status(scripted.headers.clone());
                return reply.send_response(response(&headers), true).map(drop);
            }
            Then::Reset(reason) if scripted.data.is_empty() => {
                reply.send_reset(*reason);
                return Ok(());
            }
            _ => {}
        }
        let mut sink = reply.send_response(response(&scripted.headers), false)?;
        for data in scripted.data {
            send(&mut sink, data).await?;
        }
        if let Some(mut more) = scripted.more {
            let mut sent = 0;
            loop {
                let added = more.borrow_and_update()[sent..].to_vec();
                sent += added.len();
                for data in added {
                    send(&mut sink, data).await?;
                }
                tokio::select! {
                    changed = more.changed() => match changed {
                        Ok(()) => {}
                        Err(_) => break,
                    },
                    reset = std::future::poll_fn(|cx| sink.poll_reset(cx)) => return Err(reset?.into()),
                }
            }
        }
        if let Some(pause) = scripted.pause {
            pause.notified().await;
        }
        match scripted.then {
            Then::Trailers(trailers) => sink.send_trailers(headers(&with_status(trailers))),
            Then::Reset(reason) => {
                sink.send_reset(reason);
                Ok(())
            }
            _ => Err(std::future::poll_fn(|cx| sink.poll_reset(cx)).await?.into()),
        }
    }

    async fn next(&self, body: &mut RecvStream) -> Result<Option<Bytes>, h2::Error> {
        let Some(data) = body.data().await.transpose()? else { return Ok(None) };
        body.flow_control().release_capacity(data.len())?;
        self.note(|call| call.data.extend_from_slice(&data));
        Ok(Some(data))
    }

    async fn ended(&self, body: &mut RecvStream) -> Result<Headers, h2::Error> {
        let trailers = body.trailers().await?.as_ref().map(list).unwrap_or_default();
        self.note(|call| {
            call.trailers.clone_from(&trailers);
            call.end = End::Ended;
        });
        Ok(trailers)
    }

    fn note(&self, change: impl FnOnce(&mut Received)) {
        self.calls.send_modify(|calls| change(&mut calls[self.index]));
    }
}

async fn send(sink: &mut SendStream<Bytes>, mut data: Bytes) -> Result<(), h2::Error> {
    while !data.is_empty() {
        sink.reserve_capacity(data.len());
        let room = std::future::poll_fn(|cx| sink.poll_capacity(cx)).await;
        let room = room.unwrap_or_else(|| Err(Reason::CANCEL.into()))?;
        sink.send_data(data.split_to(room.min(data.len())), false)?;
    }
    Ok(())
}

fn response(fields: &Headers) -> Response<()> {
    let mut response = Response::new(());
    *response.headers_mut() = headers(fields);
    let kind = HeaderValue::from_static("application/grpc");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

fn with_status(mut fields: Headers) -> Headers {
    if !fields.iter().any(|(name, _)| name == "grpc-status") {
        fields.push(("grpc-status".to_owned(), b"0".to_vec()));
    }
    fields
}

/// Converts fields for HTTP/2.
fn headers(fields: &Headers) -> HeaderMap {
    let field = |(name, value): &(String, Vec<u8>)| {
        let name = HeaderName::try_from(name).expect("a legal name");
        (name, HeaderValue::from_bytes(value).expect("a legal value"))
    };
    let mut map = HeaderMap::new();
    for (name, value) in fields.iter().map(field) {
        map.append(name, value);
    }
    map
}

fn list(headers: &HeaderMap) -> Headers {
    let field = |(name, value): (&HeaderName, &HeaderValue)| {
        (name.as_str().to_owned(), value.as_bytes().to_vec())
    };
    headers.iter().map(field).collect()
}
