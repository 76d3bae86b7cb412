use std::{
    io,
    os::unix::fs::FileTypeExt,
    path::{Path, PathBuf},
    time::Duration,
};

use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use tracing::{info, warn};
use wharf_facts::{paths::DEVICE_PLUGIN_SOCKET, validation::is_extended_resource_name};
use wharf_proto::deviceplugin::{
    Empty, RegisterRequest, VERSION,
    registration_server::{Registration, RegistrationServer},
};
use wharf_uds::{ListenError, ListenOptions, Listener, Routes};

use super::DeviceHandler;

const DRAIN: Duration = Duration::from_secs(1);

/// Why the legacy registration service cannot be served.
#[derive(Debug, thiserror::Error)]
pub enum LegacyError {
    /// The folder cannot be prepared.
    #[error("device-plugins folder {path}: cannot be made or cleaned")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The socket cannot be listened on.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// Serves `v1beta1.Registration` on `kubelet.sock`, for plugins that register by a call.
pub struct LegacyServer {
    stop: CancellationToken,
    serving: JoinSet<()>,
}

impl LegacyServer {
    /// Deletes the sockets in the folder, which makes plugins register again, and serves.
    pub fn start(folder: &Path, handler: DeviceHandler) -> Result<Self, LegacyError> {
        let failed = |source| LegacyError::Folder { path: folder.to_owned(), source };
        std::fs::create_dir_all(folder).map_err(failed)?;
        let own = folder.join(DEVICE_PLUGIN_SOCKET);
        for entry in std::fs::read_dir(folder).map_err(failed)? {
            let path = entry.map_err(failed)?.path();
            // The listener takes over our own socket, and refuses if a running kubelet serves it.
            let is_socket = path.metadata().is_ok_and(|it| it.file_type().is_socket());
            if is_socket && path != own {
                std::fs::remove_file(&path).map_err(failed)?;
            }
        }
        let listener = Listener::bind(&own, &ListenOptions::default())?;
        info!(socket = %own.display(), "serving device plugin registration");
        let service = Service { folder: folder.to_owned(), handler };
        let routes = Routes::new(RegistrationServer::new(service));
        let stop = CancellationToken::new();
        let mut serving = JoinSet::new();
        let stopping = stop.clone();
        serving.spawn(async move {
            if let Err(error) = listener.serve(routes, DRAIN, stopping).await {
                warn!(%error, "failed to serve device plugin registration");
            }
        });
        Ok(Self { stop, serving })
    }

    /// Stops serving and removes the socket.
    pub async fn stop(mut self) {
        self.stop.cancel();
        while self.serving.join_next().await.is_some() {}
    }
}

struct Service {
    folder: PathBuf,
    handler: DeviceHandler,
}

#[tonic::async_trait]
impl Registration for Service {
    async fn register(&self, request: Request<RegisterRequest>) -> Result<Response<Empty>, Status> {
        let RegisterRequest { version, endpoint, resource_name, .. } = request.into_inner();
        info!(resource = %resource_name, endpoint = %endpoint, "registering device plugin");
        if version != VERSION {
            return Err(Status::unknown(format!(
                "requested API version {version:?} is not supported by kubelet. Supported version is [{VERSION:?}]"
            )));
        }
        if !is_extended_resource_name(&resource_name) {
            return Err(Status::unknown(format!("the ResourceName {resource_name:?} is invalid")));
        }
        if endpoint.is_empty() || endpoint.contains('/') {
            return Err(Status::unknown(format!(
                "endpoint {endpoint:?} is not the name of a socket in {}",
                self.folder.display()
            )));
        }
        let socket = self.folder.join(endpoint).display().to_string();
        // The task outlives a plugin that cancels its call: a half-made connection would block its
        // next registration.
        let (handler, mut connecting) = (self.handler.clone(), JoinSet::new());
        connecting.spawn(async move { handler.connect(&resource_name, &socket).await });
        match connecting.join_next().await {
            Some(Ok(Ok(()))) => Ok(Response::new(Empty {})),
            Some(Ok(Err(refusal))) => Err(Status::unknown(refusal.0)),
            _ => Err(Status::internal("registration was interrupted")),
        }
    }
}
