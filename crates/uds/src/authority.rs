//! Making the `:authority` of kubelet-style clients legal.
//!
//! Kubelet's plugin manager dials a bare path, and gRPC clients then send that path,
//! percent-encoded, as `:authority`. h2 resets such a stream because `%` is not legal there. No
//! setting helps, so [`Repaired`] wraps the accepted stream and changes the illegal bytes on their
//! way in ([`hpack`] says how); nothing that it passes changes its length.
//!
//! Left alone, and so reset by h2: an authority in a CONTINUATION frame or one whose name is a
//! dynamic index, which no known client sends.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use self::frames::Walker;

mod frames;
mod hpack;
mod huffman;
#[cfg(test)]
mod tests;

/// A server's stream whose reads pass the repair.
pub(crate) struct Repaired<S> {
    stream: S,
    walker: Walker,
    /// A frame that was held and may go on.
    released: Bytes,
}

impl<S> Repaired<S> {
    pub(crate) fn new(stream: S) -> Repaired<S> {
        Repaired { stream, walker: Walker::default(), released: Bytes::new() }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Repaired<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // To return nothing is to say that the stream has ended: go on until there is something.
        loop {
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
            buffer.set_filled(start + passed);
            if passed > 0 || read == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Repaired<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
