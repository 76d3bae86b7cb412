use std::time::Duration;

use async_trait::async_trait;
use tokio::{sync::watch, task::JoinSet};
use tracing::{debug, info, warn};
use wharf_csi::{CALL_TIMEOUT, Driver, DriverOptions};
use wharf_facts::version::{Version, highest_supported_version};
use wharf_uds::{LinkState, RpcMetrics, code_name};

use super::{
    drivers::{Drivers, Instance},
    node::NodeRecord,
};
use crate::manager::{Plugin, PluginHandler, Refusal};

/// How a [`CsiHandler`] talks to drivers.
#[derive(Clone, Debug)]
pub struct CsiOptions {
    /// How long a driver may take to answer `NodeGetInfo`.
    pub timeout: Duration,
    /// Where calls to drivers are counted.
    pub metrics: Option<RpcMetrics>,
}

impl Default for CsiOptions {
    fn default() -> Self {
        Self { timeout: CALL_TIMEOUT, metrics: None }
    }
}

/// Registers CSI drivers: asks what they know of this node and has it written to the API.
pub struct CsiHandler {
    drivers: Drivers,
    record: NodeRecord,
    options: CsiOptions,
    /// Counts registrations and deregistrations, for those who follow the set of drivers.
    changed: watch::Sender<u64>,
}

impl CsiHandler {
    /// A handler that writes to the given record.
    pub fn new(record: NodeRecord, options: CsiOptions) -> Self {
        Self { drivers: Drivers::default(), record, options, changed: watch::channel(0).0 }
    }

    /// The drivers as they come and go.
    pub fn drivers(&self) -> Drivers {
        self.drivers.clone()
    }

    /// Fires when a driver came or went.
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changed.subscribe()
    }

    /// Kubelet's rule for versions, but for one thing: an equal version at another endpoint is an update under way.
    fn check_versions(&self, caller: &str, plugin: &Plugin) -> Result<Version, Refusal> {
        let Plugin { name, endpoint, versions, .. } = plugin;
        let failed = format!("kubernetes.io/csi: {caller} for CSI driver {name:?} failed.");
        if versions.is_empty() {
            return Err(Refusal(format!(
                "{failed} Plugin returned an empty list for supported versions"
            )));
        }
        let version = highest_supported_version(versions).map_err(|error| {
            Refusal(format!(
                "{failed} None of the versions specified {} are supported. err={error}",
                crate::text::go_list(versions)
            ))
        })?;
        if let Some((standing, same_endpoint)) = self.drivers.standing(name, endpoint)
            && (standing > version || (standing == version && same_endpoint))
        {
            return Err(Refusal(format!(
                "{failed} Another driver with the same name is already registered with a higher supported version: {:?}",
                standing.to_string()
            )));
        }
        Ok(version)
    }

    /// Follows the connection of an instance: a driver that comes back may be another version of itself.
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
    async fn validate(&self, plugin: &Plugin) -> Result<(), Refusal> {
        if plugin.name.is_empty() {
            return Err(Refusal::new(
                "validation failed: the CSI driver's name is empty; GetInfo must return the name that GetPluginInfo returns",
            ));
        }
        self.check_versions("ValidatePlugin", plugin).map_err(|Refusal(reason)| {
            Refusal(format!(
                "validation failed for CSI Driver {} at endpoint {}: {reason}",
                plugin.name, plugin.endpoint
            ))
        })?;
        Ok(())
    }

    async fn register(&self, plugin: &Plugin) -> Result<(), Refusal> {
        let version = self.check_versions("RegisterPlugin", plugin)?;
        let socket = wharf_csi::socket_of(&plugin.endpoint)
            .map_err(|error| Refusal(format!("kubernetes.io/csi: {error}")))?;
        let driver = Driver::new(
            socket,
            DriverOptions {
                hold: true,
                timeout: self.options.timeout,
                metrics: self.options.metrics.as_ref().map(|it| it.for_driver(&plugin.name)),
            },
        );
        let info = driver.node_info().await.map_err(|status| {
            Refusal(format!(
                "rpc error: code = {} desc = {}",
                code_name(status.code()),
                status.message()
            ))
        })?;
        // Usable from here on; whatever happens below, deregister or this function takes it out again.
        self.drivers.add(
            &plugin.name,
            Instance {
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
        self.drivers.watch(&plugin.name, &plugin.endpoint, watching);
        self.announce();
        Ok(())
    }

    async fn deregister(&self, plugin: &Plugin) {
        self.withdraw(plugin).await;
        self.announce();
    }
}

impl CsiHandler {
    /// Takes an instance out. What the cluster sees is what the newest instance left says, or nothing after the grace.
    async fn withdraw(&self, plugin: &Plugin) {
        match self.drivers.remove(&plugin.name, &plugin.endpoint) {
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
                warn!(driver = %plugin.name, endpoint = %plugin.endpoint, err = %error,
                    "CSI driver is not connected, trying again");
            }
            LinkState::Connected { generation } if generation != seen => {
                seen = generation;
                info!(driver = %plugin.name, endpoint = %plugin.endpoint, "CSI driver is connected again");
                refresh(&plugin.name, &plugin.endpoint, &drivers, &record).await;
            }
            _ => debug!(driver = %plugin.name, state = ?state, "CSI driver's connection"),
        }
    }
}

/// Asks a driver anew what it knows of this node, and has that written.
pub(super) async fn refresh(name: &str, endpoint: &str, drivers: &Drivers, record: &NodeRecord) {
    let Some(driver) = drivers.instance(name, endpoint) else { return };
    match driver.node_info().await {
        Ok(info) if info.node_id.is_empty() => {
            warn!(driver = %name, "NodeGetInfo returned no node ID, keeping the one known");
        }
        Ok(info) => {
            drivers.learned(name, endpoint, &info);
            record.update(name, info).await;
        }
        Err(status) => {
            warn!(driver = %name, code = code_name(status.code()), err = %status.message(),
                "NodeGetInfo failed, keeping what is known");
        }
    }
}
