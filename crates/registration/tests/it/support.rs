//! A plugin manager on its own folder, and waits with deadlines.

use std::{
    future::Future,
    io::{self, Write},
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
};

use tempfile::TempDir;
use tokio::{sync::broadcast, time::timeout};
use tracing_subscriber::layer::SubscriberExt;
use wharf_cli::LogOptions;
use wharf_proto::pluginregistration::CSI_PLUGIN;
use wharf_registration::manager::{
    EventKind, Handlers, ManagerOptions, PluginEvent, PluginManager, PluginView, State,
};
use wharf_testkit::plugin::{PluginScript, ScriptedPlugin};
pub(crate) use wharf_testkit::script::DEADLINE;

use crate::recording::RecordingHandler;

/// Waits with a deadline.
pub(crate) async fn soon<T>(future: impl Future<Output = T>) -> T {
    timeout(DEADLINE, future).await.expect("in time")
}

pub(crate) fn folder() -> TempDir {
    tempfile::tempdir().unwrap()
}

/// A manager with a recording handler for CSI plugins.
pub(crate) struct Fixture {
    folder: TempDir,
    pub(crate) handler: RecordingHandler,
    pub(crate) manager: PluginManager,
    events: broadcast::Receiver<PluginEvent>,
}

impl Fixture {
    /// On an empty folder, after the first scan.
    pub(crate) async fn start() -> Self {
        Self::start_with(Handlers::new()).await
    }

    /// The same with further handlers.
    pub(crate) async fn start_with(handlers: Handlers) -> Self {
        Self::start_on(folder(), handlers).await
    }

    /// On a folder in which `registry` may exist already.
    pub(crate) async fn start_on(folder: TempDir, handlers: Handlers) -> Self {
        let handler = RecordingHandler::default();
        let handlers = handlers.with(CSI_PLUGIN, Arc::new(handler.clone()));
        let options = ManagerOptions::new(folder.path().join("registry"));
        let manager = PluginManager::start(options, handlers);
        let events = manager.events();
        let fixture = Self { folder, handler, manager, events };
        fixture.synced().await;
        fixture
    }

    /// Drops this manager without a stop, and starts another with a new handler on its folder.
    pub(crate) async fn killed_and_started_again(self) -> Self {
        let Self { folder, manager, .. } = self;
        drop(manager);
        Self::start_on(folder, Handlers::new()).await
    }

    pub(crate) async fn synced(&self) {
        soon(self.manager.synced().wait_for(|synced| *synced)).await.unwrap();
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().join("registry")
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// A plugin in the folder.
    pub(crate) fn plugin(&self, socket: &str, script: PluginScript) -> ScriptedPlugin {
        ScriptedPlugin::serve(&self.path(socket), script)
    }

    /// A well-behaved plugin, after it was notified of its registration.
    pub(crate) async fn registered(&self, socket: &str, name: &str) -> ScriptedPlugin {
        let plugin = self.plugin(socket, PluginScript::csi(name));
        plugin.wait_for_verdict(true).await;
        plugin
    }

    /// Waits until the plugin table is as `wanted`, looking after each event.
    pub(crate) async fn settled(&mut self, wanted: impl Fn(&[PluginView]) -> bool) {
        let settled = async {
            while !wanted(&self.manager.plugins()) {
                match self.events.recv().await {
                    Ok(_) | Err(broadcast::error::RecvError::Lagged(_)) => {}
                    Err(error) => panic!("{error}"),
                }
            }
        };
        // Some faults show only after the ten seconds that a new plugin has.
        if timeout(2 * DEADLINE, settled).await.is_err() {
            panic!("never settled, but is {:#?}", self.manager.plugins());
        }
    }

    /// Waits until exactly these plugins are registered, by name.
    pub(crate) async fn settled_with(&mut self, names: &[&str]) {
        self.settled(|plugins| {
            let mut there: Vec<_> = plugins.iter().filter_map(|it| it.name.as_deref()).collect();
            there.sort_unstable();
            there == names && plugins.iter().all(|it| it.state == State::Registered)
        })
        .await;
        soon(self.manager.idle()).await;
    }

    /// Waits for an event of a socket.
    pub(crate) async fn event(&mut self, socket: &Path, wanted: &EventKind) {
        soon(async {
            loop {
                let event = self.events.recv().await.unwrap();
                if event.socket == socket && event.kind == *wanted {
                    return;
                }
            }
        })
        .await;
    }

    pub(crate) fn view(&self, socket: &str) -> Option<PluginView> {
        let path = self.path(socket);
        self.manager.plugins().into_iter().find(|view| view.socket == path)
    }
}

/// The log of this thread, while this value lives.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u8>>>);

impl Log {
    pub(crate) fn start() -> (Self, tracing::subscriber::DefaultGuard) {
        let log = Self::default();
        let layer = LogOptions::default().layer_for(log.clone());
        let subscriber = tracing_subscriber::registry().with(layer);
        (log, tracing::subscriber::set_default(subscriber))
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

impl Write for Log {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
