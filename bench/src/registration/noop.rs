//! A plugin type whose handler does nothing but tell when it was called: what is left is the manager's own time.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use async_trait::async_trait;
use tokio::sync::mpsc;
use wharf_proto::pluginregistration::PluginInfo;
use wharf_registration::manager::{Handlers, Plugin, PluginHandler, Refusal};

/// A type of our own.
pub(super) const KIND: &str = "BenchPlugin";
const PATIENCE: Duration = Duration::from_secs(20);

/// What `GetInfo` of a plugin of type [`KIND`] answers.
pub(super) fn info(name: &str) -> PluginInfo {
    PluginInfo {
        r#type: KIND.to_owned(),
        name: name.to_owned(),
        endpoint: String::new(),
        supported_versions: vec!["1.0.0".to_owned()],
    }
}

struct Noop(mpsc::UnboundedSender<(Call, PathBuf, Instant)>);

/// The calls that are of interest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    /// `ValidatePlugin`, so the plugin has answered `GetInfo`.
    Validate,
    /// `DeRegisterPlugin`.
    Deregister,
}

/// The calls in the order in which they came.
pub(super) struct Calls(mpsc::UnboundedReceiver<(Call, PathBuf, Instant)>);

/// Handlers that do nothing for plugins of the type `kind`.
pub(super) fn handlers(kind: &str) -> (Handlers, Calls) {
    let (sender, calls) = mpsc::unbounded_channel();
    (Handlers::new().with(kind, Arc::new(Noop(sender))), Calls(calls))
}

impl Calls {
    /// Waits for the next `call`s of `count` plugins and gives their times by socket; other calls are passed over.
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
        // At the end of a measurement nobody listens any more.
        let _ = self.0.send((call, plugin.socket.clone(), Instant::now()));
    }
}

#[async_trait]
impl PluginHandler for Noop {
    async fn validate(&self, plugin: &Plugin) -> Result<(), Refusal> {
        self.note(Call::Validate, plugin);
        Ok(())
    }

    async fn register(&self, _: &Plugin) -> Result<(), Refusal> {
        Ok(())
    }

    async fn deregister(&self, plugin: &Plugin) {
        self.note(Call::Deregister, plugin);
    }
}
