//! Control protocol between commands and a running process: one question per connection, one line
//! each way.

use std::{
    future::Future,
    io::{self, BufRead, BufReader, Read, Write},
    os::unix::net::UnixStream as StdStream,
    path::Path,
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::UnixStream,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use crate::{Listener, PeerCredentials, ServeError, address};

/// The longest question in bytes.
const LONGEST_QUESTION: u64 = 4096;
/// The longest answer in bytes.
const LONGEST_ANSWER: u64 = 16 << 20;
/// How long a caller may take to ask, and to read the answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// A question from a client.
#[derive(Debug)]
pub struct LineCall {
    question: String,
    peer: PeerCredentials,
    stream: UnixStream,
}

impl LineCall {
    /// The line, without its end.
    pub fn question(&self) -> &str {
        &self.question
    }

    /// The process that asked.
    pub fn peer(&self) -> PeerCredentials {
        self.peer
    }

    /// Answers with one line.
    pub async fn answer(mut self, mut answer: String) {
        answer.push('\n');
        // The send fails if the caller has left.
        let _ = timeout(PATIENCE, self.stream.write_all(answer.as_bytes())).await;
    }

    /// The connection, if the question begins a longer conversation.
    pub fn into_stream(self) -> UnixStream {
        self.stream
    }
}

impl Listener {
    /// Passes the first line of each connection to `handler`, which answers it, until `stop`. Calls
    /// in flight then get `drain` to finish.
    ///
    /// # Errors
    /// When the listener is broken.
    pub async fn serve_lines<H, F>(
        self,
        handler: H,
        drain: Duration,
        stop: CancellationToken,
    ) -> Result<(), ServeError>
    where
        H: Fn(LineCall) -> F + Clone + Send + Sync + 'static,
        F: Future<Output = ()> + Send + 'static,
    {
        self.accept(drain, stop, |stream, _, _| {
            // Lines have limits of their own, so the guard is not needed.
            let (handler, mut stream) = (handler.clone(), stream.into_inner());
            async move {
                let Ok(peer) = stream.peer_cred().map(PeerCredentials::from) else { return };
                let question = timeout(PATIENCE, read_line(&mut stream)).await;
                let Ok(Ok(mut question)) = question else { return };
                question.truncate(question.trim_end().len());
                handler(LineCall { question, peer, stream }).await;
            }
        })
        .await
    }
}

async fn read_line(stream: &mut UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    let mut stream = stream.take(LONGEST_QUESTION);
    while !line.ends_with(b"\n") {
        if stream.read_buf(&mut line).await? == 0 {
            break;
        }
    }
    String::from_utf8(line).map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Asks the process that serves `socket`, and waits up to `patience` for its answer. Blocks.
///
/// # Errors
/// When no process serves the socket, or no answer arrives in time.
pub fn ask_line(socket: &Path, question: &str, patience: Duration) -> io::Result<String> {
    let stream = begin_ask(socket, question, patience)?;
    let mut line = String::new();
    BufReader::new(stream.take(LONGEST_ANSWER)).read_line(&mut line)?;
    if !line.ends_with('\n') {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the answer was cut short"));
    }
    Ok(line)
}

/// Sends a question and returns the connection, from which the caller reads the answer. Each read
/// and write takes at most `patience`.
///
/// # Errors
/// When no process serves the socket.
pub fn begin_ask(socket: &Path, question: &str, patience: Duration) -> io::Result<StdStream> {
    let mut stream = StdStream::from(address::connect(socket)?);
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    writeln!(stream, "{question}")?;
    Ok(stream)
}
