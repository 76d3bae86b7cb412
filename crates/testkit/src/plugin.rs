//! A node plugin that registers itself, as well or as badly as its script says.

use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

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

/// What a [`ScriptedPlugin`] does.
#[derive(Clone, Debug, Default)]
pub struct PluginScript {
    /// How connections are treated.
    pub transport: Transport,
    /// What it says of itself.
    pub info: PluginInfo,
    /// How it says so.
    pub get_info: Answer,
    /// How it takes the node's verdict.
    pub notify: Answer,
}

impl PluginScript {
    /// A well-behaved CSI plugin whose endpoint is its registration socket.
    pub fn csi(name: &str) -> PluginScript {
        PluginScript::of(CSI_PLUGIN, name, &["1.0.0"])
    }

    /// A well-behaved plugin whose endpoint is its registration socket.
    pub fn of(kind: &str, name: &str, versions: &[&str]) -> PluginScript {
        let info = PluginInfo {
            r#type: kind.to_owned(),
            name: name.to_owned(),
            endpoint: String::new(),
            supported_versions: versions.iter().map(|&version| version.to_owned()).collect(),
        };
        PluginScript { info, ..PluginScript::default() }
    }
}

/// What a plugin was asked and told so far.
#[derive(Clone, Debug, Default)]
pub struct PluginCalls {
    /// Calls of `GetInfo`.
    pub get_info: usize,
    /// Verdicts, oldest first; also those that the script answers with an error or not at all.
    pub verdicts: Vec<RegistrationStatus>,
}

/// Serves `Registration` on a path until it is stopped or killed; dropping it is a kill.
pub struct ScriptedPlugin {
    front: Front,
    service: Service,
}

impl ScriptedPlugin {
    /// Serves on the path, whatever is there.
    pub fn serve(path: &Path, script: PluginScript) -> ScriptedPlugin {
        let transport = script.transport;
        let service = Service { script: Arc::new(Mutex::new(script)), calls: Arc::default() };
        let routes = Routes::new(RegistrationServer::new(service.clone()));
        ScriptedPlugin { front: Front::serve(path, transport, routes), service }
    }

    /// The registration socket.
    pub fn path(&self) -> &Path {
        self.front.path()
    }

    /// Changes the script: for calls, and where they concern the transport for connections, from now on.
    pub fn change(&self, change: impl FnOnce(&mut PluginScript)) {
        let mut script = self.service.script();
        change(&mut script);
        self.front.treat_as(script.transport);
    }

    /// What it was asked and told so far.
    pub fn calls(&self) -> PluginCalls {
        self.service.calls.borrow().clone()
    }

    /// Waits until the calls are as `wanted`.
    ///
    /// # Panics
    ///
    /// When that does not come to pass in time, as all waits of the test bench.
    pub async fn wait_for(&self, wanted: impl FnMut(&PluginCalls) -> bool) -> PluginCalls {
        script::seen(&self.service.calls, wanted).await
    }

    /// Waits until it was told that it is registered, or is not, and returns the text that came with it.
    pub async fn wait_for_verdict(&self, registered: bool) -> String {
        let is_it = |verdict: &&RegistrationStatus| verdict.plugin_registered == registered;
        let calls = self.wait_for(|calls| calls.verdicts.iter().any(|it| is_it(&it))).await;
        let verdict = calls.verdicts.iter().rev().find(is_it).expect("it was waited for");
        verdict.error.clone()
    }

    /// Ends as by kill -9: the socket stays, and nobody listens on it.
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
