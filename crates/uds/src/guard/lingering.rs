//! The end of a connection that this side closes.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Sleep, sleep},
};

use crate::limits::{LINGER, LINGER_BYTES};

/// Reads and drops the bytes that a client still sends after the last answer. Ends when the client
/// closes the connection, after [`LINGER`], or after [`LINGER_BYTES`].
#[derive(Default)]
pub(super) struct Lingering {
    ends: Option<Pin<Box<Sleep>>>,
    read: usize,
}

impl Lingering {
    pub(super) fn poll_shutdown<S: AsyncRead + AsyncWrite>(
        &mut self,
        mut stream: Pin<&mut S>,
        cx: &mut Context<'_>,
    ) -> Poll<io::Result<()>> {
        let ends = match &mut self.ends {
            Some(ends) => ends,
            None => {
                ready!(stream.as_mut().poll_shutdown(cx))?;
                self.ends.insert(Box::pin(sleep(LINGER)))
            }
        };
        let mut space = [0; 4096];
        while self.read < LINGER_BYTES && ends.as_mut().poll(cx).is_pending() {
            let mut buffer = ReadBuf::new(&mut space);
            // An error is an end as well.
            let read = ready!(stream.as_mut().poll_read(cx, &mut buffer));
            match buffer.filled().len() {
                0 => break,
                count => self.read += count,
            }
            if read.is_err() {
                break;
            }
        }
        Poll::Ready(Ok(()))
    }
}
