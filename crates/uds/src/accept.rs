//! Accepts connections on a bound socket, and drains them at the end.

use std::{future::Future, io, path::PathBuf, time::Duration};

use tokio::{
    net::UnixStream,
    task::{JoinError, JoinSet},
};
use tokio_util::sync::CancellationToken;

use crate::{Listener, backoff::Backoff, guard::Guarded, tasks::Tasks};

/// Why a server ended before it was stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServeError {
    /// The socket is broken. A lack of memory or descriptors is not an error: accepting waits until
    /// it has passed.
    #[error("cannot accept connections on {}", path.display())]
    Accept {
        /// The socket.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl Listener {
    /// Serves each connection with `serve`, until `stop`. `serve` gets the owner of the streams'
    /// tasks, and the token that asks a connection to finish its streams and accept no new ones.
    /// Streams that are left after `drain` are dropped. Connections of a released listener have
    /// until `stop`, and then `drain`, to finish.
    pub(crate) async fn accept<F>(
        self,
        drain: Duration,
        stop: CancellationToken,
        serve: impl Fn(Guarded<UnixStream>, Tasks, CancellationToken) -> F,
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
            serve(stream, streams.clone(), closing.clone())
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
        // Another process serves new calls now: nothing waits for the end of these.
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
            tracing::warn!(socket = %path, ?drain, open, calls, "closing connections in use");
            connections.shutdown().await;
        }
        streams.end().await;
        accepted.map_err(|source| ServeError::Accept { path, source })
    }
}

/// Starts a task for each connection, until `stop` or a permanent error.
async fn accept<F>(
    listener: &Listener,
    serve: impl Fn(UnixStream) -> F,
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
                connections.spawn(serve(stream));
            }
            Err(error) if is_lasting(&error) => return Err(error),
            Err(error) => {
                let socket = listener.path().display();
                tracing::warn!(%socket, %error, "failed to accept a connection, retrying");
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
    // A handler may work on after its answer, or after its caller has left.
    streams.finished().await;
}

/// Handlers cannot make the task of a connection panic. If one panics nevertheless, the others
/// continue.
fn report(ended: Result<(), JoinError>) {
    if let Err(error) = ended {
        tracing::error!(%error, "task of a connection failed");
    }
}

/// Whether accepting can never succeed again. Anything else, such as too many open files, passes.
fn is_lasting(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let lasting = [Errno::BADF, Errno::INVAL, Errno::NOTSOCK, Errno::OPNOTSUPP];
    Errno::from_io_error(error).is_some_and(|errno| lasting.contains(&errno))
}
