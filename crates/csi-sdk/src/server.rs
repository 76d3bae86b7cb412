//! Serves a plugin on its sockets.

use std::io;

use tokio::{
    signal::unix::{SignalKind, signal},
    task::JoinSet,
};
use tokio_util::sync::CancellationToken;
use wharf_proto::csi::{
    controller_server::ControllerServer, group_controller_server::GroupControllerServer,
    identity_server::IdentityServer, node_server::NodeServer,
};
use wharf_uds::{ListenError, ListenOptions, Listener, Routes, ServeError};

use crate::{
    endpoint::Endpoint,
    plugin::Plugin,
    service::{ControllerService, GroupControllerService, IdentityService, NodeService},
};

/// Services of a socket, besides Identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Services {
    /// Everything.
    All,
    /// Controller and GroupController.
    Controller,
    /// Node.
    Node,
}

/// A socket to serve.
#[derive(Clone, Debug)]
pub struct Socket {
    /// Address of the socket.
    pub endpoint: Endpoint,
    /// Services of the socket.
    pub services: Services,
    /// Mode and owner of the socket.
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
    /// Serves all services on one socket until `stop`, then lets calls and operations finish.
    pub async fn serve(
        &self,
        endpoint: Endpoint,
        stop: CancellationToken,
    ) -> Result<(), ServerError> {
        let server = self.bind([Socket::new(endpoint, Services::All)])?;
        Ok(server.run(stop).await?)
    }

    /// Serves all services on one socket until SIGTERM or SIGINT: the whole `main` of a driver.
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

    /// Listens on all sockets, such as one for the Controller and one for the Node service.
    /// Replaces a socket that no process serves. Must be called inside a tokio runtime.
    pub fn bind(&self, sockets: impl IntoIterator<Item = Socket>) -> Result<Server, ListenError> {
        let bind = |socket: Socket| {
            let listener = Listener::bind(socket.endpoint.path(), &socket.options)?;
            Ok((listener, self.routes(socket.services)))
        };
        let listeners = sockets.into_iter().map(bind).collect::<Result<_, _>>()?;
        Ok(Server { plugin: self.clone(), listeners })
    }

    /// Returns the services, to be served with others on the caller's own listener. When that
    /// listener has ended, call [`drained`](Plugin::drained) to wait for running operations.
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

    /// Waits until no operation runs, at most for the plugin's drain time.
    pub async fn drained(&self) {
        self.core.operations.drain(self.drain).await;
    }
}

/// A plugin whose sockets listen. Clients can connect, and get answers once [`run`](Server::run) is
/// called.
#[derive(Debug)]
pub struct Server {
    plugin: Plugin,
    listeners: Vec<(Listener, Routes)>,
}

impl Server {
    /// Serves until `stop`. Then it accepts no more connections and gives calls, and then
    /// operations, the plugin's drain time to finish.
    pub async fn run(self, stop: CancellationToken) -> Result<(), ServeError> {
        // If one socket fails, stop the others: the orchestrator needs both.
        let stop = stop.child_token();
        let mut serving = JoinSet::new();
        for (listener, routes) in self.listeners {
            let path = listener.path().display().to_string();
            tracing::info!(driver = self.plugin.name(), socket = path, "serving CSI driver");
            serving.spawn(listener.serve(routes, self.plugin.drain, stop.clone()));
        }
        let mut result = Ok(());
        while let Some(ended) = serving.join_next().await {
            stop.cancel();
            match ended {
                Ok(served) => result = result.and(served),
                Err(error) => tracing::error!(%error, "server task failed"),
            }
        }
        self.plugin.drained().await;
        result
    }
}

/// Why a plugin could not be served.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// Signal handlers cannot be installed.
    #[error("failed to install signal handlers")]
    Signal(#[source] io::Error),
    /// The socket cannot be created.
    #[error(transparent)]
    Listen(#[from] ListenError),
    /// The server of a socket failed.
    #[error(transparent)]
    Serve(#[from] ServeError),
}
