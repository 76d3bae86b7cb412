//! A plugin, served by this process, that records its notifications and their times.

use std::{
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use anyhow::{Context, Result, bail};
use tokio::{sync::mpsc, task::JoinSet};
use tokio_util::sync::CancellationToken;
use tonic::{Request, Response, Status};
use wharf_proto::pluginregistration::{
    CSI_PLUGIN, InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
    registration_server::{Registration, RegistrationServer},
};
use wharf_uds::{ListenOptions, Listener, Routes};

/// Longer than any registration, including a second attempt of a kubelet.
const PATIENCE: Duration = Duration::from_secs(20);

/// The answer to `GetInfo` of a CSI driver at `endpoint`.
pub(super) fn csi(name: &str, endpoint: &Path) -> PluginInfo {
    PluginInfo {
        r#type: CSI_PLUGIN.to_owned(),
        name: name.to_owned(),
        endpoint: endpoint.display().to_string(),
        supported_versions: vec!["1.0.0".to_owned()],
    }
}

/// One registration socket. Dropping it closes its connections.
pub(super) struct Plugin {
    /// Time at which `listen()` had returned.
    pub(super) listening: Instant,
    path: PathBuf,
    verdicts: mpsc::UnboundedReceiver<Verdict>,
    _serving: JoinSet<()>,
}

/// A notification.
struct Verdict {
    at: Instant,
    status: RegistrationStatus,
}

impl Plugin {
    /// Listens at `path`.
    pub(super) fn listen(path: &Path, info: PluginInfo) -> Result<Self> {
        let listener = Listener::bind(path, &ListenOptions::default())?;
        let listening = Instant::now();
        let (sender, verdicts) = mpsc::unbounded_channel();
        let routes = Routes::new(RegistrationServer::new(Service { info, sender }));
        let mut serving = JoinSet::new();
        serving.spawn(async move {
            // It runs until it is dropped; an error shows as a plugin without notifications.
            let _ = listener.serve(routes, Duration::ZERO, CancellationToken::new()).await;
        });
        Ok(Self { listening, path: path.to_owned(), verdicts, _serving: serving })
    }

    /// Waits for `Notify(true)` and returns its time.
    pub(super) async fn registered(&mut self) -> Result<Instant> {
        let verdict = tokio::time::timeout(PATIENCE, self.verdicts.recv()).await;
        let path = self.path.display();
        let verdict = verdict.with_context(|| format!("{path} heard nothing in {PATIENCE:?}"))?;
        let Verdict { at, status } = verdict.with_context(|| format!("{path} is not served"))?;
        if !status.plugin_registered {
            bail!("{path} was refused: {}", status.error);
        }
        Ok(at)
    }

    /// Removes the socket, like a plugin that ends.
    pub(super) fn unlink(&self) -> Result<()> {
        std::fs::remove_file(&self.path).with_context(|| self.path.display().to_string())
    }

    /// Number of notifications beyond the awaited one.
    pub(super) fn surplus(mut self) -> usize {
        let mut count = 0;
        while let Ok(verdict) = self.verdicts.try_recv() {
            count += usize::from(verdict.status.plugin_registered);
        }
        count
    }
}

struct Service {
    info: PluginInfo,
    sender: mpsc::UnboundedSender<Verdict>,
}

#[async_trait::async_trait]
impl Registration for Service {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        let verdict = Verdict { at: Instant::now(), status: request.into_inner() };
        // Fails if the plugin is being dropped.
        let _ = self.sender.send(verdict);
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
