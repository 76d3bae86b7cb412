//! Checks on the bytes of a client before h2 reads them.
//!
//! Every accepted stream is [`Guarded`], so that these limits hold for every listener:
//!
//! - A client that resets too many calls is sent GOAWAY with ENHANCE_YOUR_CALM and loses its
//!   connection before h2 has seen what it sent last. h2 counts only resets of calls that nobody
//!   has accepted yet, and each call that is accepted costs a task here and a stream at the server
//!   behind a proxy.
//! - A connection that this end closes is read until the client closes it: a client that writes to
//!   a closed connection may fail before it has read its last answers.
//! - A client that sends many small frames yields the thread to other tasks after some of them.
//!
//! The [authority](crate::authority) of requests is repaired here as well.

use std::{
    fmt,
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    task::coop::{has_budget_remaining, poll_proceed},
};

use self::{frames::Walker, lingering::Lingering, resets::Resets, written::Written};
use crate::limits;

mod frames;
mod lingering;
mod resets;
#[cfg(test)]
mod tests;
mod written;

/// A server's stream whose reads are checked.
pub(crate) struct Guarded<S> {
    stream: S,
    walker: Walker,
    /// A frame that was held and may be read now.
    released: Bytes,
    written: Written,
    resets: Resets,
    /// Set once the connection must be closed.
    expelled: bool,
    lingering: Lingering,
    /// The client's process, for the log.
    pid: Option<i32>,
}

impl<S> Guarded<S> {
    /// Guards the stream of the client `pid`; `repair` says whether authorities are repaired.
    pub(crate) fn new(stream: S, pid: Option<i32>, repair: bool) -> Self {
        Self {
            stream,
            walker: Walker::new(repair),
            released: Bytes::new(),
            written: Written::default(),
            resets: Resets::default(),
            expelled: false,
            lingering: Lingering::default(),
            pid,
        }
    }

    /// The client's process, if the kernel can name it.
    pub(crate) fn pid(&self) -> Option<i32> {
        self.pid
    }

    pub(crate) fn get_ref(&self) -> &S {
        &self.stream
    }

    pub(crate) fn into_inner(self) -> S {
        self.stream
    }
}

/// Why a client lost its connection.
#[derive(Debug)]
struct TooManyResets;

impl fmt::Display for TooManyResets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the client reset more than {} calls in a short time", limits::RESETS)
    }
}

impl std::error::Error for TooManyResets {}

impl<S: AsyncWrite + Unpin> Guarded<S> {
    /// Checks what the walker has counted since the last check.
    fn check(&mut self, cx: &mut Context<'_>) {
        for _ in 0..self.walker.take_resets() {
            self.expelled |= !self.resets.allow();
        }
        for _ in 0..self.walker.take_steps() {
            match poll_proceed(cx) {
                Poll::Ready(step) => step.made_progress(),
                Poll::Pending => return,
            }
        }
    }

    /// Sends GOAWAY if that is possible now. A client that does not read loses its connection
    /// without.
    fn poll_expel(&mut self, cx: &mut Context<'_>) -> Poll<io::Error> {
        if self.written.is_whole() {
            let frame = written::go_away(self.walker.last_stream());
            let sent = Pin::new(&mut self.stream).poll_write(cx, &frame);
            if sent.is_pending() && !has_budget_remaining() {
                return Poll::Pending;
            }
        }
        tracing::warn!(pid = self.pid, error = %TooManyResets, "closing connection of a client");
        Poll::Ready(io::Error::other(TooManyResets))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Guarded<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // Returning no bytes would mean end of stream: continue until there are some.
        loop {
            if this.expelled {
                return Poll::Ready(Err(ready!(this.poll_expel(cx))));
            }
            if this.released.has_remaining() {
                let count = this.released.len().min(buffer.remaining());
                buffer.put_slice(&this.released.split_to(count));
                return Poll::Ready(Ok(()));
            }
            if let Some(space) = this.walker.missing() {
                let mut space = ReadBuf::new(space);
                ready!(Pin::new(&mut this.stream).poll_read(cx, &mut space))?;
                this.released = match space.filled().len() {
                    0 => this.walker.end(),
                    count => this.walker.fill(count),
                };
                continue;
            }
            let start = buffer.filled().len();
            ready!(Pin::new(&mut this.stream).poll_read(cx, buffer))?;
            let chunk = &mut buffer.filled_mut()[start..];
            let (read, passed) = (chunk.len(), this.walker.walk(chunk));
            this.check(cx);
            if this.expelled {
                buffer.set_filled(start);
                continue;
            }
            buffer.set_filled(start + passed);
            if passed > 0 || read == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Guarded<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.poll_write_vectored(cx, &[IoSlice::new(bytes)])
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let count = ready!(Pin::new(&mut this.stream).poll_write_vectored(cx, slices))?;
        this.written.add(slices, count);
        Poll::Ready(Ok(count))
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.lingering.poll_shutdown(Pin::new(&mut this.stream), cx)
    }
}
