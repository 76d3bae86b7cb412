//! Moves much data in few system calls.
//!
//! h2 writes and flushes each frame of 16 KiB separately, and reads it in two pieces. Each takes a
//! system call and a wake-up of the other side, and the kernel copies slowly from the unaligned
//! addresses that frames begin at. [`Bulk`] copies frames into one buffer, which is cheap while
//! they are in the processor's cache, and gives the kernel few large buffers. Small writes, and so
//! most calls, are not copied.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

#[cfg(test)]
mod tests;

/// The size of a buffer.
const ROOM: usize = 64 << 10;
/// Alignment from which the kernel copies fastest.
const PAGE: usize = 4096;
/// Less than this is not worth a copy.
const SMALL: usize = 4 << 10;

/// A stream whose large reads and writes go through buffers, which are there only while data flows.
///
/// A large write is sent at a flush that follows no further write, or when the buffer is full. The
/// task that flushes is woken to flush again, and an h2 connection flushes whenever it is polled.
pub(super) struct Bulk<S> {
    stream: S,
    ahead: Ahead,
    behind: Behind,
}

impl<S> Bulk<S> {
    pub(super) fn new(stream: S) -> Bulk<S> {
        Bulk { stream, ahead: Ahead::default(), behind: Behind::default() }
    }
}

/// Bytes that were read and not requested yet.
#[derive(Default)]
struct Ahead {
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    /// Whether the last read was large, so that the next is worth the buffer.
    flows: bool,
}

/// Bytes that were written and not sent yet.
#[derive(Default)]
struct Behind {
    buffer: Vec<u8>,
    start: usize,
    /// Whether something was added since the last flush.
    grown: bool,
}

impl Behind {
    fn is_empty(&self) -> bool {
        self.start == self.buffer.len()
    }

    fn room(&self) -> usize {
        ROOM + PAGE - self.buffer.len()
    }

    /// Takes as many bytes as there is room for, and returns their number.
    fn add(&mut self, bytes: &[u8]) -> usize {
        if self.buffer.capacity() == 0 {
            self.buffer = Vec::with_capacity(ROOM + PAGE);
            self.clear();
        }
        let count = bytes.len().min(self.room());
        self.buffer.extend_from_slice(&bytes[..count]);
        count
    }

    fn clear(&mut self) {
        self.start = self.buffer.as_ptr().align_offset(PAGE).min(PAGE);
        self.buffer.clear();
        self.buffer.resize(self.start, 0);
    }
}

impl<S: AsyncWrite + Unpin> Bulk<S> {
    fn poll_drain(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Bulk { stream, behind, .. } = self;
        if behind.is_empty() {
            return Poll::Ready(Ok(()));
        }
        while !behind.is_empty() {
            match ready!(Pin::new(&mut *stream).poll_write(cx, &behind.buffer[behind.start..]))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => behind.start += count,
            }
        }
        behind.clear();
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Bulk<S> {
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
        let length: usize = slices.iter().map(|slice| slice.len()).sum();
        if this.behind.is_empty() && length < SMALL {
            this.behind = Behind::default();
            return Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        }
        if this.behind.room() == 0 {
            ready!(this.poll_drain(cx))?;
        }
        this.behind.grown = true;
        Poll::Ready(Ok(slices.iter().map(|slice| this.behind.add(slice)).sum()))
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if std::mem::take(&mut this.behind.grown) {
            cx.waker().wake_by_ref();
            return Poll::Ready(Ok(()));
        }
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_drain(cx))?;
        Pin::new(&mut this.stream).poll_shutdown(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Bulk<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let Bulk { stream, ahead, .. } = self.get_mut();
        let stream = Pin::new(stream);
        if ahead.start == ahead.end {
            if !ahead.flows {
                *ahead = Ahead::default();
                let before = buffer.filled().len();
                ready!(stream.poll_read(cx, buffer))?;
                ahead.flows = buffer.filled().len() - before >= SMALL;
                return Poll::Ready(Ok(()));
            }
            ahead.buffer.resize(ROOM, 0);
            let mut space = ReadBuf::new(&mut ahead.buffer);
            ready!(stream.poll_read(cx, &mut space))?;
            (ahead.start, ahead.end) = (0, space.filled().len());
            ahead.flows = ahead.end >= SMALL;
        }
        let end = ahead.end.min(ahead.start + buffer.remaining());
        buffer.put_slice(&ahead.buffer[ahead.start..end]);
        ahead.start = end;
        Poll::Ready(Ok(()))
    }
}
