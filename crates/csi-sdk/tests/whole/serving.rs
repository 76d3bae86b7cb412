//! Serves a plugin on sockets in a temporary folder, for one test.

use std::{path::PathBuf, time::Duration};

use tempfile::TempDir;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use wharf_csi_sdk::{Endpoint, Plugin, Services, Socket};
use wharf_uds::{Channel, ChannelOptions, ServeError};

pub(crate) struct Serving {
    pub(crate) folder: TempDir,
    pub(crate) stop: CancellationToken,
    task: JoinHandle<Result<(), ServeError>>,
}

impl Serving {
    pub(crate) fn start(plugin: &Plugin, sockets: &[(&str, Services)]) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = |(name, services): &(&str, Services)| {
            let path = folder.path().join(name).display().to_string();
            Socket::new(path.parse::<Endpoint>().unwrap(), *services)
        };
        let server = plugin.bind(sockets.iter().map(socket)).unwrap();
        let stop = CancellationToken::new();
        let task = tokio_util::task::TaskTracker::new().spawn(server.run(stop.clone()));
        Self { folder, stop, task }
    }

    pub(crate) fn all(plugin: &Plugin) -> Self {
        Self::start(plugin, &[("csi.sock", Services::All)])
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    pub(crate) fn channel(&self, name: &str) -> Channel {
        Channel::new(self.path(name), ChannelOptions::default())
    }

    pub(crate) async fn end(self) {
        self.stop.cancel();
        tokio::time::timeout(Duration::from_secs(20), self.task).await.unwrap().unwrap().unwrap();
    }
}
