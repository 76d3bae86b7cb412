//! Lines of JSON both ways.

use std::{io, marker::PhantomData, time::Duration};

use serde::{Serialize, de::DeserializeOwned};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{
        UnixStream,
        unix::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::timeout,
};

/// The longest line: a record holds at most what a call could bring.
const LONGEST_LINE: u64 = 64 << 20;
/// How long the other end may take to read a line.
const PATIENCE: Duration = Duration::from_secs(5);

/// Lines that come in.
#[derive(Debug)]
pub(super) struct Reader<T> {
    lines: BufReader<OwnedReadHalf>,
    partial: Vec<u8>,
    kind: PhantomData<fn() -> T>,
}

/// Lines that go out.
#[derive(Debug)]
pub(super) struct Writer<T> {
    stream: OwnedWriteHalf,
    kind: PhantomData<fn(T)>,
}

/// Both directions of a connection.
pub(super) fn lines<I, O>(stream: UnixStream) -> (Reader<I>, Writer<O>) {
    let (read, write) = stream.into_split();
    let reader = Reader { lines: BufReader::new(read), partial: Vec::new(), kind: PhantomData };
    (reader, Writer { stream: write, kind: PhantomData })
}

impl<T: DeserializeOwned> Reader<T> {
    /// The next line; `None` once the other end is gone. May be dropped and called again: what has
    /// arrived of a line is kept.
    pub(super) async fn next(&mut self) -> io::Result<Option<T>> {
        let left = LONGEST_LINE.saturating_sub(self.partial.len() as u64);
        let read = (&mut self.lines).take(left).read_until(b'\n', &mut self.partial).await;
        match read {
            // A process that is killed takes back what we have sent it and it has not read.
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => return Ok(None),
            read => drop(read?),
        }
        if !self.partial.ends_with(b"\n") {
            if left == 0 {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "the line is too long"));
            }
            // The end in the middle of a line is an end.
            return Ok(None);
        }
        let line = std::mem::take(&mut self.partial);
        serde_json::from_slice(&line).map(Some).map_err(io::Error::from)
    }

    /// The same as lines of another kind.
    pub(super) fn then<U>(self) -> Reader<U> {
        Reader { lines: self.lines, partial: self.partial, kind: PhantomData }
    }
}

impl<T: Serialize> Writer<T> {
    pub(super) async fn send(&mut self, message: &T) -> io::Result<()> {
        let mut line = serde_json::to_vec(message).map_err(io::Error::from)?;
        line.push(b'\n');
        let sent = timeout(PATIENCE, self.stream.write_all(&line)).await;
        sent.unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "it does not read")))
    }
}
