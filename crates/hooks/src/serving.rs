//! Serves hooks: the socket, and the file that registers it.

use std::{
    io,
    path::{Path, PathBuf},
    pin::pin,
    time::Duration,
};

use tokio::{
    signal::unix::{SignalKind, signal},
    time::sleep,
};
use tokio_util::sync::CancellationToken;
use wharf_proto::hooks::runtime_hook_service_server::RuntimeHookServiceServer;
use wharf_uds::{ListenError, ListenOptions, Listener, Routes, ServeError};

use crate::{
    config::{Config, PARTIAL},
    registration::{Registration, RegistrationError},
    server::HookServer,
    service::Service,
};

/// The largest request, in bytes: the proxy accepts as much from the kubelet.
const LARGEST: usize = 16 << 20;
/// Time between the removal of the file and that of the socket: our proxy calls the server of a
/// deleted file for another second.
const LEAVING: Duration = Duration::from_millis(1500);

impl HookServer {
    /// [Serves](HookServer::serve) until the process gets SIGTERM or SIGINT: the whole `main` of a
    /// server.
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

    /// Listens on `socket`, registers with the proxy by a file in `folder`
    /// (/etc/runtime/hookserver.d on a node), and serves until `stop`. Missing folders are made.
    ///
    /// A running server of the same name and socket is replaced without a gap: it keeps its
    /// connections until it is stopped, and this one gets the new ones. At the end the file is
    /// removed, then the socket, and running hooks get the server's drain time.
    pub async fn serve(
        &self,
        socket: &Path,
        folder: &Path,
        stop: CancellationToken,
    ) -> Result<(), ServerError> {
        let endpoint = endpoint(socket)?;
        let predecessor = Registration::new(folder, &self.settings.name, true);
        let take_over = predecessor.names(&endpoint);
        let options = ListenOptions { take_over, ..ListenOptions::default() };
        let listener = Listener::bind(Path::new(&endpoint), &options)?;
        let service = RuntimeHookServiceServer::new(Service(self.hooks.clone()))
            .max_decoding_message_size(LARGEST);
        let closed = CancellationToken::new();
        let serving = listener.serve(Routes::new(service), self.settings.drain, closed.clone());
        let mut serving = pin!(serving);

        let mut registration =
            Registration::new(folder, &self.settings.name, self.settings.stays_registered);
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
                // Never fails: the sender belongs to this server.
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
        let settings = &self.settings;
        Config {
            remote_endpoint: endpoint.to_owned(),
            failure_policy: settings.failure_policy,
            runtime_hooks: points.collect(),
            order: settings.order,
            timeout: settings.timeout,
            failure_policies: settings.failure_policies.clone(),
            answers: PARTIAL,
            details: settings.details,
        }
    }
}

/// Why a server ended before it was stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServerError {
    /// Signal handlers cannot be installed.
    #[error("cannot wait for signals")]
    Signal(#[source] io::Error),
    /// The folder of the socket cannot be made.
    #[error("cannot make the folder of the socket {}", socket.display())]
    Folder {
        /// The socket.
        socket: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The socket's path cannot be written as JSON.
    #[error("the path of the socket {} is not UTF-8: choose another path", .0.display())]
    NotText(PathBuf),
    /// The socket cannot be made.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The server's file cannot be written.
    #[error(transparent)]
    Register(#[from] RegistrationError),
    /// Serving failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
}

/// The absolute path of the socket; makes its folder.
fn endpoint(socket: &Path) -> Result<String, ServerError> {
    let failed = |source| ServerError::Folder { socket: socket.to_owned(), source };
    let path = std::path::absolute(socket).map_err(failed)?;
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder).map_err(failed)?;
    }
    let text = path.to_str().ok_or_else(|| ServerError::NotText(path.clone()))?;
    Ok(text.to_owned())
}
