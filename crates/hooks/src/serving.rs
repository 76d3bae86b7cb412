//! Serving hooks: a socket, the file that names it, and their end.

use std::io;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::time::Duration;

use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use wharf_proto::hooks::runtime_hook_service_server::RuntimeHookServiceServer;
use wharf_uds::{ListenError, ListenOptions, Listener, Routes, ServeError};

use crate::config::{Config, PARTIAL};
use crate::registration::{Registration, RegistrationError};
use crate::server::HookServer;
use crate::service::Service;

/// The largest request: a proxy takes as much from kubelet.
const LARGEST: usize = 16 << 20;
/// Between the file's end and the socket's: our proxy asks the server of a deleted file for another second.
const LEAVING: Duration = Duration::from_millis(1500);

impl HookServer {
    /// Serves until the process is told to end, by SIGTERM or SIGINT: a server's whole `main`. Otherwise as
    /// [`serve`](HookServer::serve).
    pub async fn run(&self, socket: &Path, folder: &Path) -> Result<(), ServerError> {
        let mut terminate = signal(SignalKind::terminate()).map_err(ServerError::Signal)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(ServerError::Signal)?;
        let stop = CancellationToken::new();
        let mut serving = pin!(self.serve(socket, folder, stop.clone()));
        tokio::select! {
            served = &mut serving => return served,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
        serving.await
    }

    /// Listens on `socket`, tells the proxy by a file in `folder` (/etc/runtime/hookserver.d on a node), and serves until
    /// `stop`. A running server of the same name and socket is replaced without a gap: it keeps the connections that it
    /// has until it is stopped, and new ones come to this one. At the end the file goes, the socket goes, and hooks that still run get the server's drain time. Folders that are
    /// not there are made.
    pub async fn serve(
        &self,
        socket: &Path,
        folder: &Path,
        stop: CancellationToken,
    ) -> Result<(), ServerError> {
        let endpoint = endpoint(socket)?;
        let predecessor = Registration::new(folder, &self.terms.name, true);
        let take_over = predecessor.names(&endpoint);
        let options = ListenOptions { take_over, ..ListenOptions::default() };
        let listener = Listener::bind(Path::new(&endpoint), &options)?;
        let service = RuntimeHookServiceServer::new(Service(self.hooks.clone()))
            .max_decoding_message_size(LARGEST);
        let closed = CancellationToken::new();
        let serving = listener.serve(Routes::new(service), self.terms.drain, closed.clone());
        let mut serving = pin!(serving);

        let mut registration =
            Registration::new(folder, &self.terms.name, self.terms.stays_registered);
        let mut wanted = self.wanted.subscribe();
        loop {
            let config = self.config(&endpoint, wanted.borrow_and_update().iter().copied());
            registration.put(&config).await?;
            tracing::info!(
                socket = endpoint,
                file = %registration.path().display(),
                hooks = ?config.runtime_hooks,
                "serving hooks"
            );
            tokio::select! {
                biased;
                () = stop.cancelled() => break,
                served = &mut serving => return Ok(served?),
                // The sender is this server's own.
                _ = wanted.changed() => {}
            }
        }
        if !registration.stays() {
            registration.remove();
            tokio::select! {
                served = &mut serving => return Ok(served?),
                () = sleep(LEAVING) => {}
            }
        }
        closed.cancel();
        Ok(serving.await?)
    }

    fn config(&self, endpoint: &str, points: impl Iterator<Item = crate::HookPoint>) -> Config {
        let terms = &self.terms;
        Config {
            remote_endpoint: endpoint.to_owned(),
            failure_policy: terms.failure_policy,
            runtime_hooks: points.collect(),
            order: terms.order,
            timeout: terms.timeout,
            failure_policies: terms.failure_policies.clone(),
            answers: PARTIAL,
            details: terms.details,
        }
    }
}

/// Why a server was not served, or ended before it was told to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// The process cannot be told to end.
    #[error("cannot wait for signals")]
    Signal(#[source] io::Error),
    /// The socket has no place.
    #[error("cannot make the folder of the socket {}", socket.display())]
    Folder {
        /// The socket.
        socket: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The socket's path cannot be written into a file of JSON.
    #[error("the path of the socket {} is not UTF-8: choose another one", .0.display())]
    NotText(PathBuf),
    /// The socket cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The proxy cannot be told.
    #[error(transparent)]
    Register(#[from] RegistrationError),
    /// The socket broke.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// The socket's path as others find it, with its folder made.
fn endpoint(socket: &Path) -> Result<String, ServerError> {
    let failed = |source| ServerError::Folder { socket: socket.to_owned(), source };
    let path = std::path::absolute(socket).map_err(failed)?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let text = path.to_str().ok_or_else(|| ServerError::NotText(path.clone()))?;
    Ok(text.to_owned())
}
