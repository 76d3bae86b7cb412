use std::{path::Path, time::Duration};

use async_trait::async_trait;
use tokio::{sync::watch, task::JoinSet};
use tracing::{debug, info, warn};
use wharf_csi::{CALL_TIMEOUT, Driver, DriverOptions};
use wharf_facts::{
    validation::check_driver_name,
    version::{Version, highest_supported_version},
};
use wharf_uds::{LinkState, RpcMetrics, code_name};

use super::{
    drivers::{Drivers, Instance},
    node::NodeRecord,
};
use crate::manager::{Plugin, PluginHandler, PluginRefusal};

/// Settings for the calls of a [`CsiHandler`] to drivers.
#[derive(Clone, Debug)]
pub struct CsiOptions {
    /// How long a driver may take to answer `NodeGetInfo`.
    pub timeout: Duration,
    /// Metrics of calls to drivers; `None` exports none.
    pub metrics: Option<RpcMetrics>,
}

impl Default for CsiOptions {
    fn default() -> Self {
        Self { timeout: CALL_TIMEOUT, metrics: None }
    }
}

/// Registers CSI drivers: calls `NodeGetInfo` and has the answer written to the API.
pub struct CsiHandler {
    drivers: Drivers,
    record: NodeRecord,
    options: CsiOptions,
    /// Counts registrations and deregistrations.
    changed: watch::Sender<u64>,
}

impl CsiHandler {
    /// A handler that writes to `record`.
    pub fn new(record: NodeRecord, options: CsiOptions) -> Self {
        Self { drivers: Drivers::default(), record, options, changed: watch::channel(0).0 }
    }

    /// The registered drivers.
    pub fn drivers(&self) -> Drivers {
        self.drivers.clone()
    }

    /// Changes when a driver was registered or deregistered.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// The kubelet's rule for versions, with one exception: an equal version at another endpoint is
    /// accepted, as an update in progress.
    fn check_versions(&self, caller: &str, plugin: &Plugin) -> Result<Version, PluginRefusal> {
        let Plugin { name, endpoint, versions, .. } = plugin;
        let failed = format!("kubernetes.io/csi: {caller} for CSI driver {name:?} failed.");
        if versions.is_empty() {
            return Err(PluginRefusal(format!(
                "{failed} Plugin returned an empty list for supported versions"
            )));
        }
        let version = highest_supported_version(versions).map_err(|error| {
            PluginRefusal(format!(
                "{failed} None of the versions specified {} are supported. err={error}",
                crate::text::go_list(versions)
            ))
        })?;
        if let Some((registered, same_endpoint)) = self.drivers.highest_version(name, endpoint)
            && (registered > version || (registered == version && same_endpoint))
        {
            return Err(PluginRefusal(format!(
                "{failed} Another driver with the same name is already registered with a higher supported version: {:?}",
                registered.to_string()
            )));
        }
        Ok(version)
    }

    /// Follows the connection of an instance: after a reconnection the driver may be another
    /// version.
    fn follow(&self, plugin: &Plugin, driver: &Driver) -> JoinSet<()> {
        let mut watching = JoinSet::new();
        watching.spawn(follow(
            plugin.clone(),
            driver.clone(),
            self.drivers.clone(),
            self.record.clone(),
        ));
        watching
    }

    fn announce(&self) {
        self.changed.send_modify(|count| *count += 1);
    }
}

#[async_trait]
impl PluginHandler for CsiHandler {
    async fn validate(&self, plugin: &Plugin) -> Result<(), PluginRefusal> {
        if plugin.name.is_empty() {
            return Err(PluginRefusal::new(
                "validation failed: the CSI driver's name is empty; GetInfo must return the name that GetPluginInfo returns",
            ));
        }
        check_driver_name(&plugin.name)
            .map_err(|error| PluginRefusal(format!("validation failed: {error}")))?;
        self.check_versions("ValidatePlugin", plugin).map_err(|PluginRefusal(reason)| {
            PluginRefusal(format!(
                "validation failed for CSI Driver {} at endpoint {}: {reason}",
                plugin.name, plugin.endpoint
            ))
        })?;
        Ok(())
    }

    async fn register(&self, plugin: &Plugin) -> Result<(), PluginRefusal> {
        let version = self.check_versions("RegisterPlugin", plugin)?;
        let socket = wharf_uds::socket_of(&plugin.endpoint)
            .map_err(|error| PluginRefusal(format!("kubernetes.io/csi: {error}")))?;
        let driver = Driver::new(
            socket,
            DriverOptions {
                hold: true,
                timeout: self.options.timeout,
                metrics: self.options.metrics.as_ref().map(|it| it.for_driver(&plugin.name)),
            },
        );
        let info = driver.node_info().await.map_err(|status| {
            PluginRefusal(format!(
                "rpc error: code = {} desc = {}",
                code_name(status.code()),
                status.message()
            ))
        })?;
        // From here on the driver can be used; `deregister` or the failure below removes it.
        self.drivers.add(
            &plugin.name,
            Instance {
                socket: plugin.socket.clone(),
                endpoint: plugin.endpoint.clone(),
                version,
                driver: driver.clone(),
                info: info.clone(),
                watching: JoinSet::new(),
            },
        );
        if let Err(refusal) = self.record.install(&plugin.name, info).await {
            self.withdraw(plugin).await;
            return Err(refusal);
        }
        let watching = self.follow(plugin, &driver);
        self.drivers.watch(&plugin.name, &plugin.socket, watching);
        self.announce();
        Ok(())
    }

    async fn deregister(&self, plugin: &Plugin) {
        self.withdraw(plugin).await;
        self.announce();
    }
}

impl CsiHandler {
    /// Removes an instance. The API shows the newest instance left, or no driver after the grace
    /// period.
    async fn withdraw(&self, plugin: &Plugin) {
        match self.drivers.remove(&plugin.name, &plugin.socket) {
            Some(left) => self.record.update(&plugin.name, left).await,
            None => self.record.leave(&plugin.name).await,
        }
    }
}

async fn follow(plugin: Plugin, driver: Driver, drivers: Drivers, record: NodeRecord) {
    let mut link = driver.link();
    let mut seen = match *link.borrow_and_update() {
        LinkState::Connected { generation } => generation,
        _ => 0,
    };
    while link.changed().await.is_ok() {
        let state = link.borrow_and_update().clone();
        match state {
            LinkState::Down { error } => {
                warn!(driver = %plugin.name, endpoint = %plugin.endpoint, %error,
                    "lost connection to CSI driver, retrying");
            }
            LinkState::Connected { generation } if generation != seen => {
                seen = generation;
                info!(driver = %plugin.name, endpoint = %plugin.endpoint, "reconnected to CSI driver");
                refresh(&plugin.name, &plugin.socket, &drivers, &record).await;
            }
            _ => debug!(driver = %plugin.name, state = ?state, "connection of CSI driver changed"),
        }
    }
}

/// Calls `NodeGetInfo` again and has the answer written to the API.
pub(super) async fn refresh(name: &str, socket: &Path, drivers: &Drivers, record: &NodeRecord) {
    let Some(driver) = drivers.instance(name, socket) else { return };
    match driver.node_info().await {
        Ok(info) if info.node_id.is_empty() => {
            warn!(driver = %name, "NodeGetInfo returned no node ID, keeping the former one");
        }
        Ok(info) => {
            if let Some(shown) = drivers.update_info(name, socket, info) {
                record.update(name, shown).await;
            }
        }
        Err(status) => {
            warn!(driver = %name, code = code_name(status.code()), error = %status.message(),
                "NodeGetInfo failed, keeping the former answer");
        }
    }
}

#[cfg(test)]
mod tests;
