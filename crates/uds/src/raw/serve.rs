//! The server side: streams of a listener.

use std::{
    future::{Future, poll_fn},
    pin::pin,
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use h2::server::{Builder, Connection};
use hyper::rt::Executor;
use tokio::{
    io::Interest,
    net::UnixStream,
    time::{sleep, timeout},
};
use tokio_util::sync::CancellationToken;

use super::{RawCall, bulk::Bulk};
use crate::{
    Listener, ServeError, admission::HeaderRoom, chain::Chain, clients::Client, guard::Guarded,
    limits, tasks::Tasks,
};

type Stream = Bulk<Guarded<UnixStream>>;

impl Listener {
    /// Passes every call of every service to `handler`, in a task of its own, until `stop`. Then as
    /// with [`serve`](Listener::serve): calls in flight get `drain` to finish.
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
            Calls { handler, room, client, streams, closing }.dispatch(stream)
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
    async fn dispatch(self, stream: Guarded<UnixStream>) {
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
        // A client that connects and sends nothing would hold a descriptor and a task for ever. A
        // client that has just connected gets a GOAWAY: if it were cut off, its calls would fail.
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
                tracing::debug!("closing connection of a silent client");
                Ok(())
            }
        };
        if let Err(error) = ended {
            tracing::debug!(error = %Chain(&error), "connection ended");
        }
    }

    /// Waits until a client that gives up too many calls may call again. False if too many of its
    /// connections wait, or it has closed this one, so that its calls need no answers.
    async fn is_admitted(&self, stream: &Guarded<UnixStream>) -> bool {
        let admitted = tokio::select! {
            admitted = self.client.admitted() => admitted,
            // The handshake sends GOAWAY.
            () = self.closing.cancelled() => true,
        };
        admitted && !has_left(stream.get_ref())
    }

    /// Accepts calls until the connection ends. Waiting for the next call also drives the others.
    async fn take(&self, mut connection: Connection<Stream, Bytes>) -> Result<(), h2::Error> {
        let mut closing = pin!(self.closing.cancelled());
        let mut draining = false;
        loop {
            // Not a select: once the task has used up its tokio budget, a select would leave
            // accepted streams in h2, where they accumulate.
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

/// Whether the client has closed its end; bytes may be left to read.
fn has_left(stream: &UnixStream) -> bool {
    let mut ready = pin!(stream.ready(Interest::READABLE));
    let polled = ready.as_mut().poll(&mut Context::from_waker(Waker::noop()));
    matches!(polled, Poll::Ready(Ok(ready)) if ready.is_read_closed())
}
