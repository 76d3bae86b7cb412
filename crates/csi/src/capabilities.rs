use std::collections::BTreeSet;

use wharf_proto::csi::{
    ControllerGetCapabilitiesRequest, GetPluginCapabilitiesRequest, NodeGetCapabilitiesRequest,
    controller_service_capability, node_service_capability, plugin_capability,
};

/// Capabilities of a driver's Identity and Controller services. Values unknown to this build are
/// ignored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// Services of the plugin, such as the Controller service.
    pub services: BTreeSet<plugin_capability::service::Type>,
    /// Supported modes of volume expansion.
    pub expansion: BTreeSet<plugin_capability::volume_expansion::Type>,
    /// RPCs of the Controller service; empty if the plugin has none.
    pub controller: BTreeSet<controller_service_capability::rpc::Type>,
}

/// RPCs of a driver's Node service.
pub type NodeCapabilities = BTreeSet<node_service_capability::rpc::Type>;

impl super::Driver {
    /// Returns the capabilities of the plugin and its Controller service; fetched once per
    /// connection.
    pub async fn capabilities(&self) -> Result<Capabilities, tonic::Status> {
        let (lock, ask) = (&self.fetch_locks.plugin, self.ask_capabilities());
        self.cached("GetPluginCapabilities", lock, |cache| &mut cache.plugin, ask).await
    }

    /// Returns the capabilities of the Node service; fetched once per connection.
    pub async fn node_capabilities(&self) -> Result<NodeCapabilities, tonic::Status> {
        let (lock, ask) = (&self.fetch_locks.node, self.ask_node_capabilities());
        self.cached("NodeGetCapabilities", lock, |cache| &mut cache.node, ask).await
    }

    async fn ask_capabilities(&self) -> Result<Capabilities, tonic::Status> {
        let answer = self
            .call(
                "GetPluginCapabilities",
                |request| {
                    let mut identity = self.identity();
                    async move { identity.get_plugin_capabilities(request).await }
                },
                GetPluginCapabilitiesRequest {},
            )
            .await?;
        let mut found = Capabilities::default();
        for capability in answer.capabilities {
            match capability.r#type {
                Some(plugin_capability::Type::Service(service)) => {
                    found.services.insert(service.r#type());
                }
                Some(plugin_capability::Type::VolumeExpansion(expansion)) => {
                    found.expansion.insert(expansion.r#type());
                }
                None => {}
            }
        }
        if found.services.contains(&plugin_capability::service::Type::ControllerService) {
            let answer = self
                .call(
                    "ControllerGetCapabilities",
                    |request| {
                        let mut controller = self.controller();
                        async move { controller.controller_get_capabilities(request).await }
                    },
                    ControllerGetCapabilitiesRequest {},
                )
                .await?;
            found.controller = answer
                .capabilities
                .into_iter()
                .filter_map(|capability| capability.r#type)
                .map(|controller_service_capability::Type::Rpc(rpc)| rpc.r#type())
                .collect();
        }
        Ok(found)
    }

    async fn ask_node_capabilities(&self) -> Result<NodeCapabilities, tonic::Status> {
        let answer = self
            .call(
                "NodeGetCapabilities",
                |request| {
                    let mut node = self.node();
                    async move { node.node_get_capabilities(request).await }
                },
                NodeGetCapabilitiesRequest {},
            )
            .await?;
        Ok(answer
            .capabilities
            .into_iter()
            .filter_map(|capability| capability.r#type)
            .map(|node_service_capability::Type::Rpc(rpc)| rpc.r#type())
            .collect())
    }
}
