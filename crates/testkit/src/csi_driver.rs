//! A CSI driver without storage that behaves as scripted.

mod services;

use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::sync::watch;
use wharf_proto::csi::{
    ControllerGetCapabilitiesResponse, GetPluginCapabilitiesResponse, NodeGetCapabilitiesResponse,
    NodeGetInfoResponse,
};

use crate::front::Front;
pub use crate::front::Transport;
use crate::script;
pub use crate::script::Answer;
use services::Services;

/// The behaviour of a [`ScriptedDriver`].
#[derive(Clone, Debug, Default)]
pub struct DriverScript {
    /// Treatment of connections.
    pub transport: Transport,
    /// The driver's name.
    pub name: String,
    /// The driver's version.
    pub version: String,
    /// The answer to `Probe`; `None` means ready.
    pub ready: Option<bool>,
    /// The answer to `NodeGetInfo`.
    pub node: NodeGetInfoResponse,
    /// The answer to `GetPluginCapabilities`.
    pub plugin_capabilities: GetPluginCapabilitiesResponse,
    /// The answer to `NodeGetCapabilities`.
    pub node_capabilities: NodeGetCapabilitiesResponse,
    /// The answer to `ControllerGetCapabilities`.
    pub controller_capabilities: ControllerGetCapabilitiesResponse,
    /// Treatment of calls, by RPC name such as `NodeGetInfo`; other calls are answered at once.
    pub answers: BTreeMap<&'static str, Answer>,
}

impl DriverScript {
    /// A well-behaved driver on the node `node-1`.
    pub fn new(name: &str) -> Self {
        let node = NodeGetInfoResponse { node_id: "node-1".to_owned(), ..Default::default() };
        Self {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            ready: Some(true),
            node,
            ..Self::default()
        }
    }

    /// The same script with another answer to one RPC.
    #[must_use]
    pub fn with(mut self, rpc: &'static str, answer: Answer) -> Self {
        self.answers.insert(rpc, answer);
        self
    }
}

/// Serves Identity, Node and Controller on a path until it is stopped or killed; dropping it kills
/// it.
///
/// Calls without an answer in the script fail with UNIMPLEMENTED.
pub struct ScriptedDriver {
    front: Front,
    services: Services,
}

impl ScriptedDriver {
    /// Serves on the path, replacing an existing socket.
    pub fn serve(path: &Path, script: DriverScript) -> Self {
        let transport = script.transport;
        let services = Services {
            script: Arc::new(Mutex::new(script)),
            calls: Arc::new(watch::Sender::new(BTreeMap::new())),
        };
        let front = Front::serve(path, transport, services.routes());
        Self { front, services }
    }

    /// The driver's socket.
    pub fn path(&self) -> &Path {
        self.front.path()
    }

    /// Changes the script for future calls and connections.
    pub fn change(&self, change: impl FnOnce(&mut DriverScript)) {
        let mut script = self.services.script.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut script);
        self.front.treat_as(script.transport);
    }

    /// How often an RPC, such as `NodeGetInfo`, was called.
    pub fn calls(&self, rpc: &str) -> usize {
        self.services.calls.borrow().get(rpc).copied().unwrap_or_default()
    }

    /// Waits until an RPC was called `count` times in all.
    ///
    /// # Panics
    ///
    /// If that takes longer than [`DEADLINE`](crate::script::DEADLINE).
    pub async fn wait_for_calls(&self, rpc: &str, count: usize) {
        script::seen(&self.services.calls, |calls| calls.get(rpc).is_some_and(|&it| it >= count))
            .await;
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
