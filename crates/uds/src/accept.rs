//! From a bound socket to connections, and their end.

use std::future::Future;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use tokio::net::UnixStream;
use tokio::task::{JoinError, JoinSet};
use tokio_util::sync::CancellationToken;

use crate::Listener;
use crate::backoff::Backoff;
use crate::guard::Guarded;
use crate::tasks::Tasks;

/// Why a server ended before it was told to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The socket itself is broken; a lack of memory or descriptors is waited out instead.
    #[error("cannot accept connections on {}", path.display())]
    Accept {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Listener {
    /// Has `attend` serve each connection, until `stop`. It gets the owner of the streams' tasks,
    /// and the token that asks a connection to finish its streams and take no new ones; what is
    /// left of them after `drain` is dropped. Of a listener that is released, the connections have
    /// until `stop` to finish, and then `drain`.
    pub(crate) async fn accept<F>(
        self,
        drain: Duration,
        stop: CancellationToken,
        attend: impl Fn(Guarded<UnixStream>, Tasks, CancellationToken) -> F,
    ) -> Result<(), ServeError>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        let streams = Tasks::default();
        let _end_on_drop = streams.guard();
        let closing = CancellationToken::new();
        let mut connections = JoinSet::new();
        let start = |stream: UnixStream| {
            let pid = stream.peer_cred().ok().and_then(|peer| peer.pid());
            let stream = Guarded::new(stream, pid, self.options.repair_authority);
            attend(stream, streams.clone(), closing.clone())
        };
        let accepted = accept(&self, start, &mut connections, &stop).await;

        let Listener { mut claim, socket, released, dismissed, .. } = self;
        let path = claim.path.clone();
        claim.file.remove &= !released.is_cancelled();
        drop(claim);
        drop(socket);
        if accepted.is_ok() && released.is_cancelled() {
            stop.run_until_cancelled(dismissed.cancelled()).await;
        }
        closing.cancel();
        // Whoever has the socket now takes new calls: nobody waits for the end of these.
        let in_own_time = async {
            let finished = finish(&mut connections, &streams);
            released.is_cancelled() && stop.run_until_cancelled(finished).await.is_some()
        };
        let drained = if in_own_time.await {
            Ok(())
        } else {
            tokio::time::timeout(drain, finish(&mut connections, &streams)).await
        };
        if drained.is_err() {
            let (open, calls) = (connections.len(), streams.len());
            let path = path.display();
            tracing::warn!(%path, ?drain, open, calls, "closing connections in use");
            connections.shutdown().await;
        }
        streams.end().await;
        accepted.map_err(|source| ServeError::Accept { path, source })
    }
}

/// Starts a task for each connection, until `stop` or an error that will not pass.
async fn accept<F>(
    listener: &Listener,
    attend: impl Fn(UnixStream) -> F,
    connections: &mut JoinSet<()>,
    stop: &CancellationToken,
) -> io::Result<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    let mut backoff = Backoff::new();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => return Ok(()),
            () = listener.released.cancelled() => return Ok(()),
            Some(ended) = connections.join_next() => {
                report(ended);
                continue;
            }
            accepted = listener.socket.accept() => accepted,
        };
        match accepted {
            Ok((stream, _)) => {
                backoff = Backoff::new();
                connections.spawn(attend(stream));
            }
            Err(error) if is_lasting(&error) => return Err(error),
            Err(error) => {
                tracing::warn!(path = %listener.path().display(), %error, "cannot accept");
                if stop.run_until_cancelled(backoff.pause()).await.is_none() {
                    return Ok(());
                }
            }
        }
    }
}

/// Waits for the end of all connections and their streams.
async fn finish(connections: &mut JoinSet<()>, streams: &Tasks) {
    while let Some(ended) = connections.join_next().await {
        report(ended);
    }
    // A call may have more to do than to answer, and its caller may have left.
    streams.finished().await;
}

/// A connection does not panic, whatever its handlers do. Should it, the others go on.
fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "the task of a connection failed");
    }
}

/// Whether accepting can never succeed again. Anything else, such as too many open files, passes.
fn is_lasting(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let lasting = [Errno::BADF, Errno::INVAL, Errno::NOTSOCK, Errno::OPNOTSUPP];
    Errno::from_io_error(error).is_some_and(|errno| lasting.contains(&errno))
}
