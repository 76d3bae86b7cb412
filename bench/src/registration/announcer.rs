//! CSI drivers that register with whoever watches a folder, be it wharf or a kubelet.

use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::Result;

use super::plugin::{self, Plugin};
use crate::sample::Sample;

/// How fast CSI drivers are registered.
#[derive(Default)]
pub(super) struct Registrations {
    /// `listen()` to `Notify(true)`.
    pub(super) comes: Sample,
    /// Unlink and `listen()` to `Notify(true)`.
    pub(super) comes_again: Sample,
}

/// A registration socket and the driver that it announces, each time under a new name.
pub(super) struct Announcer<'a> {
    folder: &'a Path,
    driver: &'a Path,
    count: usize,
}

/// A driver that is registered.
pub(super) struct Announced {
    plugin: Plugin,
    path: PathBuf,
    name: String,
}

impl<'a> Announcer<'a> {
    /// Announces the driver at the socket `driver` in `folder`.
    pub(super) fn new(folder: &'a Path, driver: &'a Path) -> Self {
        Self { folder, driver, count: 0 }
    }

    /// A driver comes.
    pub(super) async fn come(&mut self, sample: &mut Sample) -> Result<Announced> {
        let name = format!("bench-{}.csi.wharf.dev", self.count);
        self.count += 1;
        let path = self.folder.join(format!("{name}-reg.sock"));
        let mut plugin = Plugin::listen(&path, plugin::csi(&name, self.driver))?;
        sample.add(plugin.registered().await? - plugin.listening);
        Ok(Announced { plugin, path, name })
    }

    /// A driver that is there is replaced.
    pub(super) async fn come_again(
        &self,
        announced: &mut Announced,
        sample: &mut Sample,
    ) -> Result<()> {
        let started = Instant::now();
        announced.plugin.unlink()?;
        let info = plugin::csi(&announced.name, self.driver);
        let mut plugin = Plugin::listen(&announced.path, info)?;
        sample.add(plugin.registered().await? - started);
        announced.plugin = plugin;
        Ok(())
    }
}

impl Announced {
    /// The driver goes.
    pub(super) fn go(self) -> Result<()> {
        self.plugin.unlink()
    }
}
