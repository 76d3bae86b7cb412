//! The server side: streams of a listener.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use h2::server::{Builder, Connection};
use hyper::rt::Executor;
use tokio::io::Interest;
use tokio::net::UnixStream;
use tokio::time::{sleep, timeout};
use tokio_util::sync::CancellationToken;

use super::RawCall;
use super::bulk::Bulk;
use crate::admission::HeaderRoom;
use crate::chain::Chain;
use crate::clients::Client;
use crate::guard::Guarded;
use crate::tasks::Tasks;
use crate::{Listener, ServeError, limits};

type Stream = Bulk<Guarded<UnixStream>>;

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
        let (room, clients) = (HeaderRoom::new(), self.clients.clone());
        self.accept(drain, stop, |stream, streams, closing| {
            let (handler, room) = (handler.clone(), room.clone());
            let client = clients.connect(stream.pid());
            Calls { handler, room, client, streams, closing }.attend(stream)
        })
        .await
    }
}

/// The calls of one connection.
struct Calls<H> {
    handler: H,
    room: HeaderRoom,
    client: Client,
    streams: Tasks,
    closing: CancellationToken,
}

impl<H, F> Calls<H>
where
    H: Fn(RawCall) -> F,
    F: Future<Output = ()> + Send + 'static,
{
    async fn attend(self, stream: Guarded<UnixStream>) {
        if self.client.is_restrained() && !self.is_admitted(&stream).await {
            tracing::debug!(pid = stream.pid(), "closing connection of a restrained client");
            return;
        }
        let handshake = Builder::new()
            .max_concurrent_streams(limits::STREAMS)
            .max_header_list_size(limits::REQUEST_HEADERS)
            .max_frame_size(limits::FRAME)
            .max_concurrent_reset_streams(limits::RESETS as usize)
            .max_pending_accept_reset_streams(limits::RESETS as usize)
            .max_local_error_reset_streams(Some(limits::ERRORS))
            .initial_window_size(limits::STREAM_WINDOW)
            .initial_connection_window_size(limits::CONNECTION_WINDOW)
            .handshake(Bulk::new(stream));
        // Whoever connects and says nothing would hold a descriptor and a task for ever. A client that
        // has just connected is told in good order that this end is closing: one that is cut off
        // takes it for a failure of its calls.
        let silence = async {
            let closing = timeout(limits::HANDSHAKE, self.closing.cancelled()).await.is_ok();
            if closing {
                sleep(limits::LAST_HANDSHAKE).await;
            }
        };
        let ended = tokio::select! {
            biased;
            connection = handshake => match connection {
                Ok(connection) => self.take(connection).await,
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

    /// Waits until a client that gives up too many calls may call again. False if it has too many connections that wait, or
    /// has closed this one meanwhile: nobody waits for the answers to its calls.
    async fn is_admitted(&self, stream: &Guarded<UnixStream>) -> bool {
        let admitted = tokio::select! {
            admitted = self.client.admitted() => admitted,
            // The handshake says that this end is closing.
            () = self.closing.cancelled() => true,
        };
        admitted && !has_left(stream.get_ref())
    }

    /// Takes calls until the connection ends. To wait for the next one is what moves the others.
    async fn take(&self, mut connection: Connection<Stream, Bytes>) -> Result<(), h2::Error> {
        let mut closing = pin!(self.closing.cancelled());
        let mut draining = false;
        loop {
            // Not a select: once the task has used up its steps, a select leaves what was read with h2, where it adds up.
            let accepted = poll_fn(|cx| {
                if !draining && closing.as_mut().poll(cx).is_ready() {
                    connection.graceful_shutdown();
                    draining = true;
                }
                pin!(connection.accept()).poll(cx)
            });
            let Some(accepted) = accepted.await else { return Ok(()) };
            let (request, reply) = accepted?;
            if let Some(call) = RawCall::admit(request, reply, &self.client, &self.room) {
                self.streams.execute((self.handler)(call));
            }
        }
    }
}

/// Whether the client has closed its end, with or without bytes that are still to be read.
fn has_left(stream: &UnixStream) -> bool {
    let mut ready = pin!(stream.ready(Interest::READABLE));
    let polled = ready.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(Ok(ready)) if ready.is_read_closed())
}
