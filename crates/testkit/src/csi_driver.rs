//! A CSI driver with no storage behind it, as well or as badly as its script says.

mod services;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

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

/// What a [`ScriptedDriver`] does.
#[derive(Clone, Debug, Default)]
pub struct DriverScript {
    /// How connections are treated.
    pub transport: Transport,
    /// The driver's name.
    pub name: String,
    /// The driver's version.
    pub version: String,
    /// The answer to `Probe`; a driver that does not say is ready.
    pub ready: Option<bool>,
    /// What it knows about its node.
    pub node: NodeGetInfoResponse,
    /// What it can do at all.
    pub plugin_capabilities: GetPluginCapabilitiesResponse,
    /// What it can do on a node.
    pub node_capabilities: NodeGetCapabilitiesResponse,
    /// What it can do in the control plane.
    pub controller_capabilities: ControllerGetCapabilitiesResponse,
    /// How calls are answered, by RPC name such as `NodeGetInfo`; others are answered at once.
    pub answers: BTreeMap<&'static str, Answer>,
}

impl DriverScript {
    /// A well-behaved driver on the node `node-1`.
    pub fn new(name: &str) -> DriverScript {
        let node = NodeGetInfoResponse { node_id: "node-1".to_owned(), ..Default::default() };
        DriverScript {
            name: name.to_owned(),
            version: "1.0.0".to_owned(),
            ready: Some(true),
            node,
            ..DriverScript::default()
        }
    }

    /// The same driver, answering one RPC in another way.
    #[must_use]
    pub fn with(mut self, rpc: &'static str, answer: Answer) -> DriverScript {
        self.answers.insert(rpc, answer);
        self
    }
}

/// Serves Identity, Node and Controller on a path until it is stopped or killed; dropping it is a kill.
///
/// Calls that the script has no answer for fail with UNIMPLEMENTED.
pub struct ScriptedDriver {
    front: Front,
    services: Services,
}

impl ScriptedDriver {
    /// Serves on the path, whatever is there.
    pub fn serve(path: &Path, script: DriverScript) -> ScriptedDriver {
        let transport = script.transport;
        let services = Services {
            script: Arc::new(Mutex::new(script)),
            calls: Arc::new(watch::Sender::new(BTreeMap::new())),
        };
        let front = Front::serve(path, transport, services.routes());
        ScriptedDriver { front, services }
    }

    /// The driver's socket.
    pub fn path(&self) -> &Path {
        self.front.path()
    }

    /// Changes the script: for calls, and where they concern the transport for connections, from now on.
    pub fn change(&self, change: impl FnOnce(&mut DriverScript)) {
        let mut script = self.services.script.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut script);
        self.front.treat_as(script.transport);
    }

    /// How often an RPC, such as `NodeGetInfo`, was called.
    pub fn calls(&self, rpc: &str) -> usize {
        self.services.calls.borrow().get(rpc).copied().unwrap_or_default()
    }

    /// Waits until an RPC was called so many times in all.
    ///
    /// # Panics
    ///
    /// When that does not come to pass in time, as all waits of the test bench.
    pub async fn wait_for_calls(&self, rpc: &str, count: usize) {
        script::seen(&self.services.calls, |calls| calls.get(rpc).is_some_and(|&it| it >= count))
            .await;
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
