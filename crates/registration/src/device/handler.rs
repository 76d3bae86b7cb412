use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use tokio::task::{AbortHandle, Id, JoinSet};
use tracing::{info, warn};
use wharf_facts::validation::is_extended_resource_name;
use wharf_proto::deviceplugin::{Empty, VERSION, device_plugin_client::DevicePluginClient};
use wharf_uds::{Channel, ChannelOptions, code_name};

use super::Inventory;
use crate::manager::{Plugin, PluginHandler, PluginRefusal};

/// Kubelet's limit for connecting to a device plugin.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a resource without a plugin is kept, with unhealthy devices.
const GRACE: Duration = Duration::from_mins(5);

/// Registers device plugins and follows their device lists. Clones share them.
#[derive(Clone)]
pub struct DeviceHandler {
    inventory: Inventory,
    grace: Duration,
    tasks: Arc<Mutex<Tasks>>,
}

#[derive(Default)]
struct Tasks {
    running: JoinSet<()>,
    following: HashMap<(String, String), AbortHandle>,
}

impl Default for DeviceHandler {
    fn default() -> Self {
        Self::new(GRACE)
    }
}

impl DeviceHandler {
    /// A handler that drops a resource `grace` after its last plugin left.
    pub fn new(grace: Duration) -> Self {
        Self { inventory: Inventory::default(), grace, tasks: Arc::default() }
    }

    /// The devices of the registered plugins.
    pub fn inventory(&self) -> Inventory {
        self.inventory.clone()
    }

    /// Connects to a plugin and follows its device list.
    pub(super) async fn connect(&self, resource: &str, socket: &str) -> Result<(), PluginRefusal> {
        if self.inventory.contains(resource, socket) {
            return Err(already(socket));
        }
        let channel = Channel::new(socket, ChannelOptions::default());
        channel
            .connected(DIAL_TIMEOUT)
            .await
            .map_err(|error| PluginRefusal(format!("failed to dial device plugin: {error}")))?;
        let mut client = DevicePluginClient::new(channel);
        let asked = client.get_device_plugin_options(Empty {});
        let options = wharf_uds::within(DIAL_TIMEOUT, "GetDevicePluginOptions", asked)
            .await
            .map_err(|status| {
                PluginRefusal(format!(
                    "failed to get device plugin options: rpc error: code = {} desc = {}",
                    code_name(status.code()),
                    status.message()
                ))
            })?
            .into_inner();
        if !self.inventory.connect(resource, socket, options) {
            return Err(already(socket));
        }
        info!(resource, socket, "device plugin connected");
        self.follow(resource.to_owned(), socket.to_owned(), client);
        Ok(())
    }

    /// Removes a plugin; its resource stays for the grace period if it was the last.
    pub(super) fn disconnect(&self, resource: &str, socket: &str) {
        self.leave(resource, socket, |_| true);
    }

    /// Removes a plugin if the task that follows its list is the expected one.
    fn leave(&self, resource: &str, socket: &str, expected: impl FnOnce(Option<Id>) -> bool) {
        let key = (resource.to_owned(), socket.to_owned());
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if !expected(tasks.following.get(&key).map(AbortHandle::id)) {
            return;
        }
        if let Some(following) = tasks.following.remove(&key) {
            following.abort();
        }
        // Finished tasks are joined whenever tasks are started or ended.
        while tasks.running.try_join_next().is_some() {}
        if let Some(departure) = self.inventory.disconnect(resource, socket) {
            let (inventory, grace) = (self.inventory.clone(), self.grace);
            let resource = resource.to_owned();
            tasks.running.spawn(async move {
                tokio::time::sleep(grace).await;
                inventory.expire(&resource, departure);
            });
        }
    }

    fn follow(&self, resource: String, socket: String, client: DevicePluginClient<Channel>) {
        let key = (resource.clone(), socket.clone());
        let (inventory, grace) = (self.inventory.clone(), self.grace);
        // The handler owns the task, so the task must not keep the handler alive.
        let owner = Arc::downgrade(&self.tasks);
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let following = tasks.running.spawn(async move {
            let ended = list_and_watch(&inventory, &resource, &socket, client).await;
            warn!(resource, socket, error = %ended, "ListAndWatch ended, devices become unhealthy");
            if let Some(tasks) = owner.upgrade() {
                // The plugin may have connected again since, followed by another task.
                let this = tokio::task::id();
                Self { inventory, grace, tasks }
                    .leave(&resource, &socket, |follower| follower == Some(this));
            }
        });
        tasks.following.insert(key, following);
    }
}

#[async_trait]
impl PluginHandler for DeviceHandler {
    async fn validate(&self, plugin: &Plugin) -> Result<(), PluginRefusal> {
        if !plugin.versions.iter().any(|version| version == VERSION) {
            return Err(PluginRefusal(format!(
                "manager version, {VERSION}, is not among plugin supported versions [{}]",
                plugin.versions.join(" ")
            )));
        }
        if !is_extended_resource_name(&plugin.name) {
            return Err(PluginRefusal(format!(
                "invalid name of device plugin socket: the ResourceName {:?} is invalid",
                plugin.name
            )));
        }
        Ok(())
    }

    async fn register(&self, plugin: &Plugin) -> Result<(), PluginRefusal> {
        if !Path::new(&plugin.endpoint).is_absolute() {
            return Err(PluginRefusal(format!(
                "endpoint {:?} of the device plugin is relative: expected an absolute path of a unix socket",
                plugin.endpoint
            )));
        }
        self.connect(&plugin.name, &plugin.endpoint).await
    }

    async fn deregister(&self, plugin: &Plugin) {
        self.disconnect(&plugin.name, &plugin.endpoint);
    }
}

async fn list_and_watch(
    inventory: &Inventory,
    resource: &str,
    socket: &str,
    mut client: DevicePluginClient<Channel>,
) -> tonic::Status {
    let mut lists = match client.list_and_watch(Empty {}).await {
        Ok(answer) => answer.into_inner(),
        Err(status) => return status,
    };
    loop {
        match lists.message().await {
            Ok(Some(list)) => inventory.report(resource, socket, list.devices),
            Ok(None) => return tonic::Status::unavailable("the plugin ended the stream"),
            Err(status) => return status,
        }
    }
}

fn already(socket: &str) -> PluginRefusal {
    PluginRefusal(format!("device plugin already connected: {socket}"))
}
