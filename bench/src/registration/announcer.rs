//! CSI drivers that register with wharf or a kubelet, whichever watches the folder.

use std::{
    path::{Path, PathBuf},
    time::Instant,
};

use anyhow::Result;

use super::plugin::{self, Plugin};
use crate::sample::Sample;

/// Registration times of CSI drivers.
#[derive(Default)]
pub(super) struct Registrations {
    /// From `listen()` to `Notify(true)`.
    pub(super) comes: Sample,
    /// From unlink and `listen()` to `Notify(true)`.
    pub(super) comes_again: Sample,
}

/// A registration socket and its driver, with a new name each time.
pub(super) struct Announcer<'a> {
    folder: &'a Path,
    driver: &'a Path,
    count: usize,
}

/// A registered driver.
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

    /// Registers a driver.
    pub(super) async fn come(&mut self, sample: &mut Sample) -> Result<Announced> {
        let name = format!("bench-{}.csi.wharf.dev", self.count);
        self.count += 1;
        let path = self.folder.join(format!("{name}-reg.sock"));
        let mut plugin = Plugin::listen(&path, plugin::csi(&name, self.driver))?;
        sample.add(plugin.registered().await? - plugin.listening);
        Ok(Announced { plugin, path, name })
    }

    /// Replaces a registered driver.
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
    /// Removes the driver.
    pub(super) fn go(self) -> Result<()> {
        self.plugin.unlink()
    }
}
