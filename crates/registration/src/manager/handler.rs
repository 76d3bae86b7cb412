use std::{collections::HashMap, path::PathBuf, sync::Arc};

use async_trait::async_trait;

/// A plugin, from its answer to `GetInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// The type, which selects the handler: `CSIPlugin`, `DevicePlugin`, `DRAPlugin` or a custom
    /// one.
    pub kind: String,
    /// The plugin's name: a CSI driver's name, a device plugin's resource.
    pub name: String,
    /// The socket of the plugin's own service; the registration socket if `GetInfo` returned none.
    pub endpoint: String,
    /// The versions that the plugin supports, in its own order.
    pub versions: Vec<String>,
    /// The registration socket.
    pub socket: PathBuf,
}

/// Why a handler rejects a plugin. The plugin gets the text and may log it, so it says what to
/// correct.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PluginRefusal(pub String);

impl PluginRefusal {
    /// A refusal for this reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// Registers plugins of one type.
///
/// The manager calls `validate`, `register` and `deregister` in this order, and for one socket
/// never two of them at once. Plugins of two sockets may have one name; a handler distinguishes
/// them by (name, endpoint).
///
/// `register` may be dropped at any `await`: when the socket is removed or made again, or after
/// five minutes. Then `deregister` follows, as it follows a `register` that returned `Ok` or
/// panicked. A `register` that returns an error must clean up itself. `deregister` is dropped after
/// five minutes.
#[async_trait]
pub trait PluginHandler: Send + Sync + 'static {
    /// Checks whether the plugin may be registered; changes nothing.
    async fn validate(&self, plugin: &Plugin) -> Result<(), PluginRefusal>;

    /// Registers the plugin.
    async fn register(&self, plugin: &Plugin) -> Result<(), PluginRefusal>;

    /// Deregisters the plugin. Its process may have ended long ago: this must not wait for it.
    async fn deregister(&self, plugin: &Plugin);
}

/// The handlers by plugin type.
#[derive(Clone, Default)]
pub struct Handlers(HashMap<String, Arc<dyn PluginHandler>>);

impl Handlers {
    /// A set without handlers: every plugin is rejected.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the handler of a type; replaces an earlier one of that type.
    #[must_use]
    pub fn with(mut self, kind: impl Into<String>, handler: Arc<dyn PluginHandler>) -> Self {
        self.0.insert(kind.into(), handler);
        self
    }

    pub(crate) fn get(&self, kind: &str) -> Option<Arc<dyn PluginHandler>> {
        self.0.get(kind).cloned()
    }
}
