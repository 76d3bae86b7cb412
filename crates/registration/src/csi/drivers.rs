use std::{
    collections::BTreeMap,
    fmt,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, EncodeMetric},
    metrics::gauge::ConstGauge,
};
use serde::Serialize;
use tokio::task::JoinSet;
use wharf_csi::{Driver, NodeInfo};
use wharf_facts::version::Version;

/// The CSI drivers of this node. Clones share them.
///
/// A name may have several instances, one per endpoint: while a driver is updated, the old and the
/// new one run side by side. The newest connected instance serves; the name is removed with its
/// last instance.
#[derive(Clone, Default)]
pub struct Drivers {
    by_name: Arc<Mutex<BTreeMap<String, Vec<Instance>>>>,
}

/// A row of the driver table: one instance of a driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct DriverView {
    /// The driver's name.
    pub name: String,
    /// Its socket.
    pub endpoint: String,
    /// Whether the driver is connected.
    pub connected: bool,
    /// The driver's ID of the node.
    pub node_id: String,
    /// How many volumes fit on the node; 0 if the driver sets no limit.
    pub max_volumes: i64,
    /// The driver's topology segments of the node.
    pub topology: BTreeMap<String, String>,
}

/// One registered socket. Two may have the same endpoint, so instances are distinguished by their
/// registration socket.
pub(crate) struct Instance {
    pub(crate) socket: PathBuf,
    pub(crate) endpoint: String,
    pub(crate) version: Version,
    pub(crate) driver: Driver,
    pub(crate) info: NodeInfo,
    /// The task that follows the connection; ends with the instance.
    pub(crate) watching: JoinSet<()>,
}

impl Drivers {
    /// The serving driver of this name: the newest connected instance, or the newest if none is
    /// connected.
    pub fn get(&self, name: &str) -> Option<Driver> {
        self.with_serving(name, |instance| instance.driver.clone())
    }

    /// The registration socket of the serving instance.
    pub(crate) fn serving_socket(&self, name: &str) -> Option<PathBuf> {
        self.with_serving(name, |instance| instance.socket.clone())
    }

    /// Every instance, by name, oldest first.
    pub fn view(&self) -> Vec<DriverView> {
        let by_name = self.lock();
        let lines = by_name.iter().flat_map(|(name, instances)| {
            instances.iter().map(move |instance| DriverView {
                name: name.clone(),
                endpoint: instance.endpoint.clone(),
                connected: instance.driver.is_connected(),
                node_id: instance.info.node_id.clone(),
                max_volumes: instance.info.max_volumes,
                topology: instance.info.topology.clone(),
            })
        });
        lines.collect()
    }

    /// Whether this name has an instance.
    pub fn contains(&self, name: &str) -> bool {
        self.lock().contains_key(name)
    }

    /// The highest version among the instances of a name, and whether one of them has this
    /// endpoint.
    pub(crate) fn highest_version(&self, name: &str, endpoint: &str) -> Option<(Version, bool)> {
        let by_name = self.lock();
        let instances = by_name.get(name)?;
        let highest = instances.iter().map(|instance| instance.version.clone()).max()?;
        Some((highest, instances.iter().any(|instance| instance.endpoint == endpoint)))
    }

    pub(crate) fn add(&self, name: &str, instance: Instance) {
        self.lock().entry(name.to_owned()).or_default().push(instance);
    }

    /// Stores the task that follows the connection of an instance.
    pub(crate) fn watch(&self, name: &str, socket: &Path, watching: JoinSet<()>) {
        let mut by_name = self.lock();
        let mut instances = by_name.get_mut(name).into_iter().flatten();
        if let Some(instance) = instances.find(|instance| instance.socket == socket) {
            instance.watching = watching;
        }
    }

    pub(crate) fn instance(&self, name: &str, socket: &Path) -> Option<Driver> {
        let by_name = self.lock();
        let instance = by_name.get(name)?.iter().find(|instance| instance.socket == socket)?;
        Some(instance.driver.clone())
    }

    /// Stores new node information of an instance. Returns that of the newest instance of the name,
    /// which is the one written to the API.
    pub(crate) fn update_info(
        &self,
        name: &str,
        socket: &Path,
        info: NodeInfo,
    ) -> Option<NodeInfo> {
        let mut by_name = self.lock();
        let instances = by_name.get_mut(name)?;
        instances.iter_mut().find(|instance| instance.socket == socket)?.info = info;
        instances.last().map(|instance| instance.info.clone())
    }

    /// Removes an instance. Returns the node information of the newest one left; `None` if the name
    /// is gone or was unknown.
    pub(crate) fn remove(&self, name: &str, socket: &Path) -> Option<NodeInfo> {
        let mut by_name = self.lock();
        let instances = by_name.get_mut(name)?;
        instances.retain(|instance| instance.socket != socket);
        let left = instances.last().map(|instance| instance.info.clone());
        if left.is_none() {
            by_name.remove(name);
        }
        left
    }

    fn with_serving<T>(&self, name: &str, read: impl Fn(&Instance) -> T) -> Option<T> {
        let by_name = self.lock();
        let instances = by_name.get(name)?;
        let connected = instances.iter().rev().find(|instance| instance.driver.is_connected());
        connected.or(instances.last()).map(read)
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Instance>>> {
        self.by_name.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Drivers {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_list().entries(self.view()).finish()
    }
}

impl Collector for Drivers {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        let gauge = |connected| ConstGauge::new(i64::from(connected));
        let mut connected = encoder.encode_descriptor(
            "wharf_csi_driver_connected",
            "Whether a registered CSI driver is connected",
            None,
            gauge(true).metric_type(),
        )?;
        for line in self.view() {
            let labels = [("driver_name", line.name), ("endpoint", line.endpoint)];
            gauge(line.connected).encode(connected.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
