//! Serving a plugin on its sockets.

use std::io;

use tokio::signal::unix::{SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use wharf_proto::csi::controller_server::ControllerServer;
use wharf_proto::csi::group_controller_server::GroupControllerServer;
use wharf_proto::csi::identity_server::IdentityServer;
use wharf_proto::csi::node_server::NodeServer;
use wharf_uds::{ListenError, ListenOptions, Listener, Routes, ServeError};

use crate::endpoint::Endpoint;
use crate::plugin::Plugin;
use crate::service::{ControllerService, GroupControllerService, IdentityService, NodeService};

/// What a socket serves beside Identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Services {
    /// Everything.
    All,
    /// Controller and GroupController.
    Controller,
    /// Node.
    Node,
}

/// A socket to be served.
#[derive(Clone, Debug)]
pub struct Socket {
    /// Where.
    pub endpoint: Endpoint,
    /// What.
    pub services: Services,
    /// Who may connect.
    pub options: ListenOptions,
}

impl Socket {
    /// A socket that only root may connect to.
    #[must_use]
    pub fn new(endpoint: Endpoint, services: Services) -> Self {
        Self { endpoint, services, options: ListenOptions::default() }
    }
}

impl Plugin {
    /// Serves everything on one socket until `stop`; then calls and operations get time to finish.
    pub async fn serve(
        &self,
        endpoint: Endpoint,
        stop: CancellationToken,
    ) -> Result<(), ServerError> {
        let server = self.bind([Socket::new(endpoint, Services::All)])?;
        Ok(server.run(stop).await?)
    }

    /// Serves everything on one socket until the process is told to end, by SIGTERM or SIGINT: a driver's whole `main`.
    pub async fn run(&self, endpoint: Endpoint) -> Result<(), ServerError> {
        let mut terminate = signal(SignalKind::terminate()).map_err(ServerError::Signal)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(ServerError::Signal)?;
        let stop = CancellationToken::new();
        let mut serving = std::pin::pin!(self.serve(endpoint, stop.clone()));
        tokio::select! {
            served = &mut serving => return served,
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stop.cancel();
        serving.await
    }

    /// Listens on all sockets, such as one for the controller and one for the node. A socket that nobody serves is
    /// replaced. Needs to be called inside a tokio runtime.
    pub fn bind(&self, sockets: impl IntoIterator<Item = Socket>) -> Result<Server, ListenError> {
        let bind = |socket: Socket| {
            let listener = Listener::bind(socket.endpoint.path(), &socket.options)?;
            Ok((listener, self.routes(socket.services)))
        };
        let listeners = sockets.into_iter().map(bind).collect::<Result<_, _>>()?;
        Ok(Server { plugin: self.clone(), listeners })
    }

    /// The services, to be served together with others on a listener of one's own. What still runs when that listener
    /// ends is waited for by [`drained`](Plugin::drained).
    #[must_use]
    pub fn routes(&self, services: Services) -> Routes {
        let core = || self.core.clone();
        let mut routes = Routes::new(IdentityServer::new(IdentityService(core())));
        if services != Services::Node {
            routes = routes
                .add_service(ControllerServer::new(ControllerService(core())))
                .add_service(GroupControllerServer::new(GroupControllerService(core())));
        }
        if services != Services::Controller {
            routes = routes.add_service(NodeServer::new(NodeService(core())));
        }
        routes
    }

    /// Waits until no operation runs any more, no longer than the plugin's drain time.
    pub async fn drained(&self) {
        self.core.operations.drain(self.drain).await;
    }
}

/// A plugin whose sockets listen; clients may connect already, and are answered once it runs.
#[derive(Debug)]
pub struct Server {
    plugin: Plugin,
    listeners: Vec<(Listener, Routes)>,
}

impl Server {
    /// Serves until `stop`. Then no connection is accepted any more, and calls and operations get the plugin's drain
    /// time to finish: at most twice that in all.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ServeError> {
        // One broken socket ends the others, too: half a driver is none.
        let stop = stop.child_token();
        let mut serving = JoinSet::new();
        for (listener, routes) in self.listeners {
            let path = listener.path().display().to_string();
            tracing::info!(driver = self.plugin.name(), path, "serving");
            serving.spawn(listener.serve(routes, self.plugin.drain, stop.clone()));
        }
        let mut result = Ok(());
        while let Some(ended) = serving.join_next().await {
            stop.cancel();
            match ended {
                Ok(served) => result = result.and(served),
                Err(error) => tracing::error!(%error, "the task of a socket failed"),
            }
        }
        self.plugin.drained().await;
        result
    }
}

/// Why a plugin was not served, or ended before it was told to.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The process cannot be told to end.
    #[error("cannot wait for signals")]
    Signal(#[source] io::Error),
    /// The socket cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The socket broke.
    #[error(transparent)]
    Serve(#[from] ServeError),
}
