//! A plugin type with a handler that only records its calls, to measure the manager's own time.

use std::{
    collections::HashMap,
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use async_trait::async_trait;
use tokio::sync::mpsc;
use wharf_proto::pluginregistration::PluginInfo;
use wharf_registration::manager::{Handlers, Plugin, PluginHandler, PluginRefusal};

/// A plugin type of the bench.
pub(super) const KIND: &str = "BenchPlugin";
const PATIENCE: Duration = Duration::from_secs(20);

/// The answer to `GetInfo` of a plugin of type [`KIND`].
pub(super) fn info(name: &str) -> PluginInfo {
    PluginInfo {
        r#type: KIND.to_owned(),
        name: name.to_owned(),
        endpoint: String::new(),
        supported_versions: vec!["1.0.0".to_owned()],
    }
}

struct Noop(mpsc::UnboundedSender<(Call, PathBuf, Instant)>);

/// Recorded handler calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// `ValidatePlugin`: the plugin has answered `GetInfo`.
    Validate,
    /// `DeRegisterPlugin`.
    Deregister,
}

/// The calls in their order.
pub(super) struct Calls(mpsc::UnboundedReceiver<(Call, PathBuf, Instant)>);

/// Recording handlers for plugins of the type `kind`.
pub(super) fn handlers(kind: &str) -> (Handlers, Calls) {
    let (sender, calls) = mpsc::unbounded_channel();
    (Handlers::new().with(kind, Arc::new(Noop(sender))), Calls(calls))
}

impl Calls {
    /// Waits for the next `call`s of `count` plugins and returns their times by socket; skips other
    /// calls.
    pub(super) async fn next(
        &mut self,
        call: Call,
        count: usize,
    ) -> Result<HashMap<PathBuf, Instant>> {
        let collect = async {
            let mut seen = HashMap::new();
            while seen.len() < count {
                let (found, socket, at) = self.0.recv().await.context("the manager is gone")?;
                if found == call {
                    seen.insert(socket, at);
                }
            }
            Ok(seen)
        };
        let collected = tokio::time::timeout(PATIENCE, collect).await;
        collected.with_context(|| format!("{count} times {call:?} within {PATIENCE:?}"))?
    }
}

impl Noop {
    fn note(&self, call: Call, plugin: &Plugin) {
        // Fails at the end of a measurement, when nothing receives calls.
        let _ = self.0.send((call, plugin.socket.clone(), Instant::now()));
    }
}

#[async_trait]
impl PluginHandler for Noop {
    async fn validate(&self, plugin: &Plugin) -> Result<(), PluginRefusal> {
        self.note(Call::Validate, plugin);
        Ok(())
    }

    async fn register(&self, _: &Plugin) -> Result<(), PluginRefusal> {
        Ok(())
    }

    async fn deregister(&self, plugin: &Plugin) {
        self.note(Call::Deregister, plugin);
    }
}
