//! The server side: streams of a listener.

use std::future::Future;
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection};
use hyper::rt::Executor;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_util::sync::CancellationToken;

use super::RawCall;
use super::bulk::Bulk;
use crate::authority::Repaired;
use crate::chain::Chain;
use crate::tasks::Tasks;
use crate::{Listener, ServeError, limits};

impl Listener {
    /// Gives every call, of whatever service, to `handler`, in a task of its own, until `stop`.
    /// Then as with [`serve`](Listener::serve): calls in flight get `drain` to finish.
    pub async fn serve_raw<H, F>(
        self,
        handler: H,
        drain: Duration,
        stop: CancellationToken,
    ) -> Result<(), ServeError>
    where
        H: Fn(RawCall) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        let repair = self.options.repair_authority;
        self.accept(drain, stop, |stream, streams, closing| {
            let handler = handler.clone();
            async move {
                if repair {
                    attend(Repaired::new(stream), &handler, &streams, &closing).await;
                } else {
                    attend(stream, &handler, &streams, &closing).await;
                }
            }
        })
        .await
    }
}

async fn attend<S, H, F>(stream: S, handler: &H, streams: &Tasks, closing: &CancellationToken)
where
    S: AsyncRead + AsyncWrite + Send + Unpin,
    H: Fn(RawCall) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let handshake = Builder::new()
        .max_concurrent_streams(limits::STREAMS)
        .max_header_list_size(limits::HEADER_LIST)
        .max_frame_size(limits::FRAME)
        .max_concurrent_reset_streams(limits::PENDING_RESETS)
        .max_pending_accept_reset_streams(limits::PENDING_RESETS)
        .max_local_error_reset_streams(Some(limits::PENDING_RESETS))
        .initial_window_size(limits::STREAM_WINDOW)
        .initial_connection_window_size(limits::CONNECTION_WINDOW)
        .handshake(Bulk::new(stream));
    // Whoever connects and says nothing would hold a descriptor and a task for ever. A client that
    // has just connected is told in good order that this end is closing: one that is cut off
    // takes it for a failure of its calls.
    let silence = async {
        let closing = tokio::time::timeout(limits::HANDSHAKE, closing.cancelled()).await.is_ok();
        if closing {
            tokio::time::sleep(limits::LAST_HANDSHAKE).await;
        }
    };
    let ended = tokio::select! {
        biased;
        connection = handshake => match connection {
            Ok(connection) => take_calls(connection, handler, streams, closing).await,
            Err(error) => Err(error),
        },
        () = silence => {
            tracing::debug!("a client said nothing: hung up");
            Ok(())
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = %Chain(&error), "connection ended");
    }
}

/// Takes calls until the connection ends. To wait for the next one is what moves the others.
async fn take_calls<S, H, F>(
    mut connection: Connection<S, Bytes>,
    handler: &H,
    streams: &Tasks,
    closing: &CancellationToken,
) -> Result<(), h2::Error>
where
    S: AsyncRead + AsyncWrite + Unpin,
    H: Fn(RawCall) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    let mut draining = false;
    loop {
        tokio::select! {
            accepted = connection.accept() => match accepted {
                Some(Ok((request, reply))) => {
                    streams.execute(handler(RawCall::new(request, reply)));
                }
                Some(Err(error)) => return Err(error),
                None => return Ok(()),
            },
            () = closing.cancelled(), if !draining => {
                connection.graceful_shutdown();
                draining = true;
            }
        }
    }
}
