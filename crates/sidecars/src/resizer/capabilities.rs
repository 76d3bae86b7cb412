use tonic::Status;
use wharf_csi::{Capabilities, Driver, NodeCapabilities};
use wharf_proto::csi::{
    controller_service_capability::rpc, node_service_capability, plugin_capability::service,
};

use super::ResizerError;

/// The driver's capabilities for existing volumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ResizerCapabilities {
    pub(super) expansion: Expansion,
    pub(super) modifies: bool,
    /// It distinguishes one writer on a node from several.
    pub(super) single_node_multi_writer: bool,
}

/// How volumes are expanded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expansion {
    None,
    /// On the node only, by the kubelet.
    Node,
    /// In the controller, and perhaps on the node after that.
    Controller,
}

impl ResizerCapabilities {
    /// Fetches the capabilities from the driver.
    pub(super) async fn of(name: &str, driver: &Driver) -> Result<Self, ResizerError> {
        let asked = driver.capabilities().await.map_err(failed("GetCapabilities"))?;
        if !asked.services.contains(&service::Type::ControllerService) {
            return Err(ResizerError::NoController(name.to_owned()));
        }
        let node = match asked.controller.contains(&rpc::Type::ExpandVolume) {
            true => NodeCapabilities::new(),
            false => driver.node_capabilities().await.or_else(absent)?,
        };
        let able = Self::from(&asked, &node);
        if able.expansion == Expansion::None && !able.modifies {
            return Err(ResizerError::Unable(name.to_owned()));
        }
        Ok(able)
    }

    fn from(asked: &Capabilities, node: &NodeCapabilities) -> Self {
        let has = |rpc| asked.controller.contains(&rpc);
        let expansion = if has(rpc::Type::ExpandVolume) {
            Expansion::Controller
        } else if node.contains(&node_service_capability::rpc::Type::ExpandVolume) {
            Expansion::Node
        } else {
            Expansion::None
        };
        Self {
            expansion,
            modifies: has(rpc::Type::ModifyVolume),
            single_node_multi_writer: has(rpc::Type::SingleNodeMultiWriter),
        }
    }
}

/// The controller service may have a socket without a node service.
fn absent(status: Status) -> Result<NodeCapabilities, ResizerError> {
    match status.code() {
        tonic::Code::Unimplemented => Ok(NodeCapabilities::new()),
        _ => Err(failed("NodeGetCapabilities")(status)),
    }
}

pub(super) fn failed(call: &'static str) -> impl Fn(Status) -> ResizerError {
    move |status| ResizerError::Driver { call, status: Box::new(status) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn volumes_grow_where_the_driver_says() {
        let on_node = NodeCapabilities::from([node_service_capability::rpc::Type::ExpandVolume]);
        let elsewhere = NodeCapabilities::new();
        for (rpcs, node, expansion, modifies) in [
            (&[][..], &elsewhere, Expansion::None, false),
            (&[rpc::Type::ModifyVolume], &elsewhere, Expansion::None, true),
            (&[], &on_node, Expansion::Node, false),
            (&[rpc::Type::ExpandVolume], &on_node, Expansion::Controller, false),
        ] {
            let controller = rpcs.iter().copied().collect();
            let asked = Capabilities { controller, ..Capabilities::default() };
            let able = ResizerCapabilities::from(&asked, node);
            assert_eq!((able.expansion, able.modifies), (expansion, modifies), "{rpcs:?}");
        }
    }
}
