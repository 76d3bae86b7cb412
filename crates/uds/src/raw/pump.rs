//! One direction of a stream.

use std::task::Poll;

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use tonic::Code;

use crate::call::grpc_status;

/// Why a direction ended early.
pub(super) enum Broken {
    /// The sending side reset the stream or disconnected.
    Source(h2::Error),
    /// The receiving side did.
    Sink(h2::Error),
}

/// Passes data and trailers from `source` to `sink`, to the end of the stream. Returns the code of
/// the trailers, if they carry one.
pub(super) async fn pump(
    source: &mut RecvStream,
    sink: &mut SendStream<Bytes>,
) -> Result<Option<Code>, Broken> {
    let mut first = true;
    while let Some(data) = next(source, sink).await? {
        let length = data.len();
        let ends = source.is_end_stream();
        if std::mem::take(&mut first) {
            // A stream has no room before its headers are written. Queueing the first frame in h2
            // regardless lets both leave in one write, which is the whole of most calls.
            sink.send_data(data, ends).map_err(Broken::Sink)?;
        } else {
            pass(data, ends, sink).await?;
        }
        // Only now may the sender send as much again. Fails if the stream was reset meanwhile,
        // which is handled above.
        let _ = source.flow_control().release_capacity(length);
        if ends {
            return Ok(None);
        }
    }
    match source.trailers().await.map_err(Broken::Source)? {
        Some(trailers) => {
            let code = grpc_status(&trailers);
            sink.send_trailers(trailers).map_err(Broken::Sink)?;
            Ok(code)
        }
        None => {
            sink.send_data(Bytes::new(), true).map_err(Broken::Sink)?;
            Ok(None)
        }
    }
}

/// The next piece, or `None` at the end of data. The receiver may give up meanwhile.
async fn next(
    source: &mut RecvStream,
    sink: &mut SendStream<Bytes>,
) -> Result<Option<Bytes>, Broken> {
    std::future::poll_fn(|cx| {
        if let Poll::Ready(data) = source.poll_data(cx) {
            return Poll::Ready(data.transpose().map_err(Broken::Source));
        }
        sink.poll_reset(cx).map(|reset| Err(Broken::Sink(reset.map_or_else(|e| e, Into::into))))
    })
    .await
}

/// Sends a piece as the receiver makes room for it.
async fn pass(mut data: Bytes, ends: bool, sink: &mut SendStream<Bytes>) -> Result<(), Broken> {
    loop {
        let room = if data.is_empty() { 0 } else { room(data.len(), sink).await? };
        let part = data.split_to(room.min(data.len()));
        sink.send_data(part, ends && data.is_empty()).map_err(Broken::Sink)?;
        if data.is_empty() {
            return Ok(());
        }
    }
}

async fn room(wanted: usize, sink: &mut SendStream<Bytes>) -> Result<usize, Broken> {
    sink.reserve_capacity(wanted);
    std::future::poll_fn(|cx| {
        loop {
            match sink.capacity() {
                0 => match std::task::ready!(sink.poll_capacity(cx)) {
                    Some(Ok(_)) => {}
                    Some(Err(error)) => return Poll::Ready(Err(Broken::Sink(error))),
                    None => return Poll::Ready(Err(Broken::Sink(h2::Reason::CANCEL.into()))),
                },
                room => return Poll::Ready(Ok(room)),
            }
        }
    })
    .await
}
