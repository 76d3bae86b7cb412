//! The driver's capabilities for volumes and their sources.

use wharf_csi::Capabilities;
use wharf_proto::csi::{controller_service_capability::rpc, plugin_capability::service};

use super::failure::ProvisionRefusal;

/// The driver's capabilities.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ProvisionerCapabilities {
    /// It has a controller service.
    pub(super) controller: bool,
    /// It creates and deletes volumes.
    pub(super) volumes: bool,
    /// It takes snapshots, and restores volumes from them.
    pub(super) snapshots: bool,
    /// It clones volumes.
    pub(super) clones: bool,
    /// It changes attributes of volumes.
    pub(super) modifies: bool,
    /// It distinguishes one writer on a node from several.
    pub(super) single_node_multi_writer: bool,
    /// Its volumes have to be attached before they are used.
    pub(super) publishes: bool,
    /// Its volumes are not accessible from all nodes.
    pub(super) topology: bool,
    /// It reports its free capacity.
    pub(super) capacity: bool,
    /// It lists its volumes.
    pub(super) lists: bool,
}

impl ProvisionerCapabilities {
    /// From the driver's report. Topology counts only if it is enabled.
    pub(super) fn of(capabilities: &Capabilities, places: bool) -> Self {
        let controller = capabilities.services.contains(&service::Type::ControllerService);
        let has = |rpc| controller && capabilities.controller.contains(&rpc);
        Self {
            controller,
            volumes: has(rpc::Type::CreateDeleteVolume),
            snapshots: has(rpc::Type::CreateDeleteSnapshot),
            clones: has(rpc::Type::CloneVolume),
            modifies: has(rpc::Type::ModifyVolume),
            single_node_multi_writer: has(rpc::Type::SingleNodeMultiWriter),
            publishes: has(rpc::Type::PublishUnpublishVolume),
            topology: places
                && capabilities.services.contains(&service::Type::VolumeAccessibilityConstraints),
            capacity: has(rpc::Type::GetCapacity),
            lists: has(rpc::Type::ListVolumes),
        }
    }

    /// Checks that the driver creates and deletes volumes.
    pub(super) fn check_volumes(self) -> Result<(), ProvisionRefusal> {
        match (self.controller, self.volumes) {
            (false, _) => Err(ProvisionRefusal::Incapable {
                of: "dynamic provisioning",
                service: "plugin",
                capability: "CONTROLLER_SERVICE",
            }),
            (true, false) => Err(incapable("dynamic provisioning", "CREATE_DELETE_VOLUME")),
            (true, true) => Ok(()),
        }
    }

    pub(super) fn check_snapshots(self) -> Result<(), ProvisionRefusal> {
        check(self.snapshots, "snapshot restore", "CREATE_DELETE_SNAPSHOT")
    }

    pub(super) fn check_clones(self) -> Result<(), ProvisionRefusal> {
        check(self.clones, "clone operations", "CLONE_VOLUME")
    }

    pub(super) fn check_attributes(self) -> Result<(), ProvisionRefusal> {
        check(self.modifies, "VolumeAttributesClass", "MODIFY_VOLUME")
    }
}

fn check(able: bool, of: &'static str, capability: &'static str) -> Result<(), ProvisionRefusal> {
    if able { Ok(()) } else { Err(incapable(of, capability)) }
}

fn incapable(of: &'static str, capability: &'static str) -> ProvisionRefusal {
    ProvisionRefusal::Incapable { of, service: "controller", capability }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_lacks_is_named() {
        let mut able = ProvisionerCapabilities::default();
        let said = |checked: Result<(), ProvisionRefusal>| checked.unwrap_err().to_string();
        let prefix = "CSI driver does not support";
        let plugin = "plugin CONTROLLER_SERVICE capability is not reported";
        assert_eq!(said(able.check_volumes()), format!("{prefix} dynamic provisioning: {plugin}"));
        able.controller = true;
        let lacks = "controller CREATE_DELETE_VOLUME capability is not reported";
        assert_eq!(said(able.check_volumes()), format!("{prefix} dynamic provisioning: {lacks}"));
        let lacks = "controller CLONE_VOLUME capability is not reported";
        assert_eq!(said(able.check_clones()), format!("{prefix} clone operations: {lacks}"));
        able.volumes = true;
        assert_eq!(able.check_volumes(), Ok(()));
    }
}
