use std::{
    collections::BTreeMap,
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;
use serde::Serialize;
use wharf_facts::validation::{MAX_DRIVER_NAME, is_subdomain};
use wharf_uds::{Channel, ChannelOptions, LinkState};

use crate::{
    manager::{Plugin, PluginHandler, PluginRefusal},
    text::readable,
};

/// Services that a plugin may list as versions, from the kubelet.
const SERVICES: [&str; 2] = [wharf_proto::dra::v1::SERVICE, wharf_proto::dra::v1beta1::SERVICE];

/// One endpoint of a driver.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct DraView {
    /// The driver.
    pub name: String,
    /// Its socket.
    pub endpoint: String,
    /// The service that is called on it.
    pub service: &'static str,
    /// Whether it is connected.
    pub connected: bool,
}

/// Registers DRA drivers, and keeps a connection to each endpoint. Clones share them.
#[derive(Clone, Default)]
pub struct DraHandler {
    drivers: Arc<Mutex<BTreeMap<String, Vec<Endpoint>>>>,
}

struct Endpoint {
    socket: String,
    service: &'static str,
    channel: Channel,
}

impl DraHandler {
    /// The connection and service of a driver's newest connected endpoint, or of its newest if none
    /// is connected.
    pub fn get(&self, name: &str) -> Option<(Channel, &'static str)> {
        let drivers = self.lock();
        let endpoints = drivers.get(name)?;
        let chosen = endpoints.iter().rev().find(|it| it.connected()).or(endpoints.last())?;
        Some((chosen.channel.clone(), chosen.service))
    }

    /// Every endpoint, by driver, oldest first.
    pub fn view(&self) -> Vec<DraView> {
        let drivers = self.lock();
        let lines = drivers.iter().flat_map(|(name, endpoints)| {
            endpoints.iter().map(move |endpoint| DraView {
                name: name.clone(),
                endpoint: endpoint.socket.clone(),
                service: endpoint.service,
                connected: endpoint.connected(),
            })
        });
        lines.collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Endpoint>>> {
        self.drivers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl PluginHandler for DraHandler {
    async fn validate(&self, plugin: &Plugin) -> Result<(), PluginRefusal> {
        choose_service(plugin)?;
        Ok(())
    }

    async fn register(&self, plugin: &Plugin) -> Result<(), PluginRefusal> {
        let Plugin { name, endpoint, .. } = plugin;
        let service = choose_service(plugin)?;
        let mut drivers = self.lock();
        let endpoints = drivers.entry(name.clone()).or_default();
        if endpoints.iter().any(|known| known.socket == *endpoint) {
            return Err(PluginRefusal(format!(
                "endpoint {endpoint} already registered for DRA driver plugin {name}"
            )));
        }
        let channel =
            Channel::new(endpoint, ChannelOptions { hold: true, ..ChannelOptions::default() });
        endpoints.push(Endpoint { socket: endpoint.clone(), service, channel });
        Ok(())
    }

    async fn deregister(&self, plugin: &Plugin) {
        let mut drivers = self.lock();
        if let Some(endpoints) = drivers.get_mut(&plugin.name) {
            endpoints.retain(|endpoint| endpoint.socket != plugin.endpoint);
            if endpoints.is_empty() {
                drivers.remove(&plugin.name);
            }
        }
    }
}

impl Endpoint {
    fn connected(&self) -> bool {
        matches!(*self.channel.link().borrow(), LinkState::Connected { .. })
    }
}

/// The first service of the plugin's own list that is supported.
fn choose_service(plugin: &Plugin) -> Result<&'static str, PluginRefusal> {
    let Plugin { name, endpoint, versions, .. } = plugin;
    let invalid = |reason: String| {
        PluginRefusal(format!(
            "invalid supported gRPC versions of DRA driver plugin {name} at endpoint {endpoint}: {reason}"
        ))
    };
    if name.is_empty() {
        return Err(PluginRefusal::new("the DRA driver's name is empty: GetInfo must return it"));
    }
    if name.len() > MAX_DRIVER_NAME || !is_subdomain(name) {
        return Err(PluginRefusal(format!(
            "the DRA driver's name {:?} is not domain-like: expected at most {MAX_DRIVER_NAME} lower-case letters, digits, '-' \
             and '.', each part between dots beginning and ending with a letter or digit",
            readable(name)
        )));
    }
    if !Path::new(endpoint).is_absolute() {
        return Err(PluginRefusal(format!(
            "endpoint {endpoint:?} of DRA driver plugin {name} is relative: expected an absolute path of a unix socket"
        )));
    }
    if versions.is_empty() {
        return Err(invalid(
            "empty list of supported gRPC services (aka supported versions)".to_owned(),
        ));
    }
    let known = versions.iter().find_map(|version| SERVICES.into_iter().find(|it| it == version));
    known.ok_or_else(|| {
        invalid(format!(
            "none of services supported by the plugin ({}) are supported by the kubelet ({})",
            crate::text::go_list(versions),
            crate::text::go_list(&SERVICES)
        ))
    })
}
