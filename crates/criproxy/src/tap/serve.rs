//! A tap over the control socket.

use std::{io, time::Duration};

use tokio::{
    io::{AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::UnixStream,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

use super::{Calls, TapEnd, TapLine};
use crate::handover;

/// The proxy closes the connection of a reader that reads nothing for this long: it would keep one
/// of the few places for ever.
const STALLED: Duration = Duration::from_secs(60);
/// The last lines of a tap that ends take no longer: nothing waits for a reader.
const LAST_LINES: Duration = Duration::from_millis(500);

/// What ends a tap, besides its reader.
pub(crate) struct Ending {
    /// The calls of this process, which a successor may take over.
    pub(crate) calls: handover::Calls,
    /// Cancelled when the proxy stops.
    pub(crate) stop: CancellationToken,
}

impl Ending {
    async fn wait(&self) -> TapEnd {
        tokio::select! {
            biased;
            () = self.calls.passed() => TapEnd::Replaced,
            () = self.stop.cancelled() => TapEnd::Stopping,
        }
    }
}

impl Calls {
    /// Writes lines to a reader until it leaves, or the tap ends. `accepted` is the first line.
    pub(crate) async fn serve(mut self, stream: UnixStream, accepted: String, ending: Ending) {
        let (mut reader, mut writer) = stream.into_split();
        // A reader that has left needs nothing more.
        let lines = async {
            write(&mut writer, accepted).await?;
            loop {
                let line = self.next().await;
                write(&mut writer, encode(&line)).await?;
            }
        };
        let end = tokio::select! {
            biased;
            end = ending.wait() => end,
            () = left(&mut reader) => return,
            error = lines => {
                let error: Result<(), io::Error> = error;
                tracing::debug!(?error, "a tap is over");
                return;
            }
        };
        let last = async {
            while let Some(line) = self.try_next() {
                write(&mut writer, encode(&line)).await?;
            }
            write(&mut writer, encode(&TapLine::End(end))).await
        };
        // One that does not read is told nothing.
        let _ = timeout(LAST_LINES, last).await;
    }
}

async fn write(writer: &mut (impl AsyncWrite + Unpin), mut line: String) -> io::Result<()> {
    line.push('\n');
    timeout(STALLED, writer.write_all(line.as_bytes())).await?
}

/// Waits until the reader has closed its end.
async fn left(reader: &mut (impl AsyncReadExt + Unpin)) {
    let mut ignored = [0; 64];
    while matches!(reader.read(&mut ignored).await, Ok(1..)) {}
}

fn encode(line: &TapLine) -> String {
    serde_json::to_string(line).unwrap_or_else(|error| error.to_string())
}
