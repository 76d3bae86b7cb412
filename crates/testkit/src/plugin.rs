//! A node plugin that registers itself and behaves as scripted.

use std::{
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::watch;
use tonic::{Request, Response, Status};
use wharf_proto::pluginregistration::{
    CSI_PLUGIN, InfoRequest, PluginInfo, RegistrationStatus, RegistrationStatusResponse,
    registration_server::{Registration, RegistrationServer},
};
use wharf_uds::Routes;

use crate::front::Front;
pub use crate::front::Transport;
use crate::script;
pub use crate::script::Answer;

/// The behaviour of a [`ScriptedPlugin`].
#[derive(Clone, Debug, Default)]
pub struct PluginScript {
    /// Treatment of connections.
    pub transport: Transport,
    /// The answer to `GetInfo`.
    pub info: PluginInfo,
    /// Treatment of `GetInfo` calls.
    pub get_info: Answer,
    /// Treatment of `NotifyRegistrationStatus` calls.
    pub notify: Answer,
}

impl PluginScript {
    /// A well-behaved CSI plugin whose endpoint is its registration socket.
    pub fn csi(name: &str) -> Self {
        Self::of(CSI_PLUGIN, name, &["1.0.0"])
    }

    /// A well-behaved plugin whose endpoint is its registration socket.
    pub fn of(kind: &str, name: &str, versions: &[&str]) -> Self {
        let info = PluginInfo {
            r#type: kind.to_owned(),
            name: name.to_owned(),
            endpoint: String::new(),
            supported_versions: versions.iter().map(|&version| version.to_owned()).collect(),
        };
        Self { info, ..Self::default() }
    }
}

/// The calls of a plugin so far.
#[derive(Clone, Debug, Default)]
pub struct PluginCalls {
    /// Calls of `GetInfo`.
    pub get_info: usize,
    /// Verdicts, oldest first, including those that the script answers with an error or not at all.
    pub verdicts: Vec<RegistrationStatus>,
}

/// Serves `Registration` on a path until it is stopped or killed; dropping it kills it.
pub struct ScriptedPlugin {
    front: Front,
    service: Service,
}

impl ScriptedPlugin {
    /// Serves on the path, replacing an existing socket.
    pub fn serve(path: &Path, script: PluginScript) -> Self {
        let transport = script.transport;
        let service = Service { script: Arc::new(Mutex::new(script)), calls: Arc::default() };
        let routes = Routes::new(RegistrationServer::new(service.clone()));
        Self { front: Front::serve(path, transport, routes), service }
    }

    /// The registration socket.
    pub fn path(&self) -> &Path {
        self.front.path()
    }

    /// Changes the script for future calls and connections.
    pub fn change(&self, change: impl FnOnce(&mut PluginScript)) {
        let mut script = self.service.script();
        change(&mut script);
        self.front.treat_as(script.transport);
    }

    /// The calls so far.
    pub fn calls(&self) -> PluginCalls {
        self.service.calls.borrow().clone()
    }

    /// Waits until the calls satisfy `wanted`.
    ///
    /// # Panics
    ///
    /// If they do not within [`DEADLINE`](crate::script::DEADLINE).
    pub async fn wait_for(&self, wanted: impl FnMut(&PluginCalls) -> bool) -> PluginCalls {
        script::seen(&self.service.calls, wanted).await
    }

    /// Waits for a notification that it is registered, or is not, and returns its text.
    pub async fn wait_for_verdict(&self, registered: bool) -> String {
        let is_it = |verdict: &&RegistrationStatus| verdict.plugin_registered == registered;
        let calls = self.wait_for(|calls| calls.verdicts.iter().any(|it| is_it(&it))).await;
        let verdict = calls.verdicts.iter().rev().find(is_it).expect("it was waited for");
        verdict.error.clone()
    }

    /// Ends like after kill -9: the socket file stays, without a listener.
    pub async fn kill(self) {
        self.front.kill().await;
    }

    /// Removes the socket and ends.
    pub async fn stop(self) {
        self.front.stop().await;
    }
}

#[derive(Clone)]
struct Service {
    script: Arc<Mutex<PluginScript>>,
    calls: Arc<watch::Sender<PluginCalls>>,
}

impl Service {
    fn script(&self) -> MutexGuard<'_, PluginScript> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[tonic::async_trait]
impl Registration for Service {
    async fn get_info(&self, _: Request<InfoRequest>) -> Result<Response<PluginInfo>, Status> {
        self.calls.send_modify(|calls| calls.get_info += 1);
        let PluginScript { info, get_info, .. } = self.script().clone();
        get_info.given().await?;
        Ok(Response::new(info))
    }

    async fn notify_registration_status(
        &self,
        request: Request<RegistrationStatus>,
    ) -> Result<Response<RegistrationStatusResponse>, Status> {
        self.calls.send_modify(|calls| calls.verdicts.push(request.into_inner()));
        let answer = self.script().notify.clone();
        answer.given().await?;
        Ok(Response::new(RegistrationStatusResponse {}))
    }
}
