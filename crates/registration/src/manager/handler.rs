use std::{collections::HashMap, path::PathBuf, sync::Arc};

use async_trait::async_trait;

/// A plugin as it introduced itself in `GetInfo`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Plugin {
    /// The type, which chooses the handler: `CSIPlugin`, `DevicePlugin`, `DRAPlugin` or one of your own.
    pub kind: String,
    /// The name that the plugin is known by: a CSI driver's name, a device plugin's resource.
    pub name: String,
    /// Where the plugin serves its own protocol; the registration socket if it named nothing else.
    pub endpoint: String,
    /// The versions it says it supports, in its own order.
    pub versions: Vec<String>,
    /// The registration socket that it was found at.
    pub socket: PathBuf,
}

/// Why a handler does not take a plugin. The text reaches the plugin and its log, so it says what to mend.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refusal(pub String);

impl Refusal {
    /// A refusal for the given reason.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }
}

/// One type of plugin.
///
/// The manager calls `validate`, `register` and `deregister` in this order, and never two of them at once for the same
/// socket. Two sockets may carry plugins of one name; a handler tells them apart by (name, endpoint).
///
/// `register` may be dropped at any `await`: when the socket goes or is re-made meanwhile, or after five minutes.
/// `deregister` follows then, as it follows a `register` that finished or panicked. After a `register` that returned an
/// error nothing follows: it cleans up itself. `deregister` is left to finish, for as long.
#[async_trait]
pub trait PluginHandler: Send + Sync + 'static {
    /// Whether the plugin may be registered; changes nothing.
    async fn validate(&self, plugin: &Plugin) -> Result<(), Refusal>;

    /// Takes the plugin into use.
    async fn register(&self, plugin: &Plugin) -> Result<(), Refusal>;

    /// Takes the plugin out of use. The plugin may be long gone: this must not wait for it.
    async fn deregister(&self, plugin: &Plugin);
}

/// The handlers by plugin type.
#[derive(Clone, Default)]
pub struct Handlers(HashMap<String, Arc<dyn PluginHandler>>);

impl Handlers {
    /// No handlers: every plugin is refused.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the handler of a type; a second one for the type replaces the first.
    #[must_use]
    pub fn with(mut self, kind: impl Into<String>, handler: Arc<dyn PluginHandler>) -> Self {
        self.0.insert(kind.into(), handler);
        self
    }

    pub(crate) fn get(&self, kind: &str) -> Option<Arc<dyn PluginHandler>> {
        self.0.get(kind).cloned()
    }
}
