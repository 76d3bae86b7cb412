use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use serde::Serialize;
use tokio::sync::watch;
use wharf_proto::deviceplugin::{Device as WireDevice, DevicePluginOptions, HEALTHY};

/// A device, from its plugin's list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Device {
    /// Whether it can be allocated.
    pub healthy: bool,
    /// NUMA nodes next to the device.
    pub numa_nodes: Vec<i64>,
}

/// The devices of one resource.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceView {
    /// The resource, such as `example.com/gpu`.
    pub resource: String,
    /// The endpoint whose list counts: the newest that is connected. `None` without a connected
    /// plugin; then the last devices are listed as unhealthy until the resource is dropped.
    pub endpoint: Option<String>,
    /// Devices by ID.
    pub devices: BTreeMap<String, Device>,
}

/// The resources of this node. Clones share them.
#[derive(Clone)]
pub struct Inventory {
    resources: Arc<Mutex<BTreeMap<String, Resource>>>,
    changed: Arc<watch::Sender<u64>>,
}

#[derive(Default)]
struct Resource {
    /// Oldest first.
    endpoints: Vec<Endpoint>,
    /// The last devices, listed while no plugin is connected.
    last: BTreeMap<String, Device>,
    /// Counts how often the last endpoint left, so that an old grace period does not end a new one.
    departures: u64,
}

struct Endpoint {
    socket: String,
    options: DevicePluginOptions,
    devices: Option<BTreeMap<String, Device>>,
}

impl Default for Inventory {
    fn default() -> Self {
        Self { resources: Arc::default(), changed: Arc::new(watch::channel(0).0) }
    }
}

impl Inventory {
    /// The resources, by name.
    pub fn view(&self) -> Vec<ResourceView> {
        let resources = self.lock();
        resources.iter().map(|(name, resource)| resource.view(name)).collect()
    }

    /// Changes when [`Inventory::view`] may have changed.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The options that the serving plugin of a resource returned.
    pub fn options(&self, resource: &str) -> Option<DevicePluginOptions> {
        self.lock().get(resource)?.serving().map(|endpoint| endpoint.options)
    }

    /// Adds an endpoint. False if the resource has it already.
    pub(super) fn connect(
        &self,
        resource: &str,
        socket: &str,
        options: DevicePluginOptions,
    ) -> bool {
        let mut resources = self.lock();
        let entry = resources.entry(resource.to_owned()).or_default();
        if entry.endpoints.iter().any(|endpoint| endpoint.socket == socket) {
            return false;
        }
        entry.endpoints.push(Endpoint { socket: socket.to_owned(), options, devices: None });
        drop(resources);
        self.announce();
        true
    }

    pub(super) fn contains(&self, resource: &str, socket: &str) -> bool {
        let resources = self.lock();
        resources.get(resource).is_some_and(|it| it.endpoints.iter().any(|e| e.socket == socket))
    }

    pub(super) fn report(&self, resource: &str, socket: &str, devices: Vec<WireDevice>) {
        let devices: BTreeMap<_, _> = devices.into_iter().map(from_wire).collect();
        let mut resources = self.lock();
        let Some(entry) = resources.get_mut(resource) else { return };
        let Some(endpoint) = entry.endpoints.iter_mut().find(|it| it.socket == socket) else {
            return;
        };
        endpoint.devices = Some(devices);
        if let Some(serving) = entry.serving().and_then(|endpoint| endpoint.devices.clone()) {
            entry.last = serving;
        }
        drop(resources);
        self.announce();
    }

    /// Removes an endpoint. Returns a departure number, for [`Inventory::expire`], if it was the
    /// last one.
    pub(super) fn disconnect(&self, resource: &str, socket: &str) -> Option<u64> {
        let mut resources = self.lock();
        let entry = resources.get_mut(resource)?;
        let before = entry.endpoints.len();
        entry.endpoints.retain(|endpoint| endpoint.socket != socket);
        let gone = before > 0 && entry.endpoints.is_empty();
        if gone {
            entry.departures += 1;
        }
        let departure = gone.then_some(entry.departures);
        drop(resources);
        self.announce();
        departure
    }

    /// Ends a grace period: drops the resource if no plugin came back since that departure.
    pub(super) fn expire(&self, resource: &str, departure: u64) {
        let mut resources = self.lock();
        let over = resources
            .get(resource)
            .is_some_and(|it| it.endpoints.is_empty() && it.departures == departure);
        if over {
            resources.remove(resource);
            drop(resources);
            self.announce();
        }
    }

    fn announce(&self) {
        self.changed.send_modify(|count| *count += 1);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Resource>> {
        self.resources.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Resource {
    /// The newest endpoint that sent a list, or the newest at all.
    fn serving(&self) -> Option<&Endpoint> {
        let listed = self.endpoints.iter().rev().find(|endpoint| endpoint.devices.is_some());
        listed.or(self.endpoints.last())
    }

    fn view(&self, name: &str) -> ResourceView {
        let serving = self.serving();
        let devices = match serving {
            Some(endpoint) => endpoint.devices.clone().unwrap_or_default(),
            None => self
                .last
                .iter()
                .map(|(id, device)| (id.clone(), Device { healthy: false, ..device.clone() }))
                .collect(),
        };
        ResourceView {
            resource: name.to_owned(),
            endpoint: serving.map(|endpoint| endpoint.socket.clone()),
            devices,
        }
    }
}

fn from_wire(device: WireDevice) -> (String, Device) {
    let nodes = device.topology.map(|topology| topology.nodes).unwrap_or_default();
    let healthy = device.health == HEALTHY;
    (device.id, Device { healthy, numa_nodes: nodes.into_iter().map(|node| node.id).collect() })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(id: &str, health: &str) -> WireDevice {
        WireDevice { id: id.into(), health: health.into(), topology: None }
    }

    fn healthy(inventory: &Inventory) -> Vec<(String, bool)> {
        let view = inventory.view();
        let devices = view.into_iter().flat_map(|resource| resource.devices);
        devices.map(|(id, device)| (id, device.healthy)).collect()
    }

    #[test]
    fn the_newest_list_counts_and_an_older_one_takes_over() {
        let inventory = Inventory::default();
        assert!(inventory.connect("x/y", "/a", DevicePluginOptions::default()));
        assert!(!inventory.connect("x/y", "/a", DevicePluginOptions::default()));
        inventory.report("x/y", "/a", vec![device("1", "Healthy"), device("2", "Unhealthy")]);
        assert_eq!(healthy(&inventory), [("1".into(), true), ("2".into(), false)]);
        assert!(inventory.connect("x/y", "/b", DevicePluginOptions::default()));
        assert_eq!(inventory.view()[0].endpoint.as_deref(), Some("/a"), "/b has sent no list yet");
        inventory.report("x/y", "/b", vec![device("3", "Healthy")]);
        assert_eq!(healthy(&inventory), [("3".into(), true)]);
        assert_eq!(inventory.disconnect("x/y", "/b"), None);
        assert_eq!(inventory.view()[0].endpoint.as_deref(), Some("/a"));
    }

    #[test]
    fn devices_of_a_plugin_that_left_are_unhealthy_until_the_grace_ends() {
        let inventory = Inventory::default();
        inventory.connect("x/y", "/a", DevicePluginOptions::default());
        inventory.report("x/y", "/a", vec![device("1", "Healthy")]);
        let first = inventory.disconnect("x/y", "/a").expect("it was the last");
        assert_eq!(healthy(&inventory), [("1".into(), false)]);
        inventory.connect("x/y", "/a", DevicePluginOptions::default());
        let second = inventory.disconnect("x/y", "/a").expect("it was the last again");
        inventory.expire("x/y", first);
        assert_eq!(inventory.view().len(), 1, "an old grace period ends nothing");
        inventory.expire("x/y", second);
        assert!(inventory.view().is_empty());
    }
}
