//! What a driver can do about volumes and their first contents.

use wharf_csi::Capabilities;
use wharf_proto::csi::{controller_service_capability::rpc, plugin_capability::service};

use super::failure::Refusal;

/// What a driver can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Abilities {
    /// It has a controller service.
    pub(super) controller: bool,
    /// It makes and deletes volumes.
    pub(super) volumes: bool,
    /// It takes snapshots, and makes volumes of them.
    pub(super) snapshots: bool,
    /// It makes volumes of volumes.
    pub(super) clones: bool,
    /// It knows attributes that can be changed.
    pub(super) modifies: bool,
    /// It tells one writer on a node from several.
    pub(super) single_node_multi_writer: bool,
    /// Its volumes have to be attached before they are used.
    pub(super) publishes: bool,
    /// Its volumes are not to be reached from everywhere.
    pub(super) topology: bool,
    /// It tells how much it can still make.
    pub(super) capacity: bool,
    /// It tells which volumes it has.
    pub(super) lists: bool,
}

impl Abilities {
    /// As the driver says; of places only if they count.
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

    /// Whether it makes and deletes volumes at all.
    pub(super) fn check_volumes(self) -> Result<(), Refusal> {
        match (self.controller, self.volumes) {
            (false, _) => Err(Refusal::Incapable {
                of: "dynamic provisioning",
                service: "plugin",
                capability: "CONTROLLER_SERVICE",
            }),
            (true, false) => Err(incapable("dynamic provisioning", "CREATE_DELETE_VOLUME")),
            (true, true) => Ok(()),
        }
    }

    pub(super) fn check_snapshots(self) -> Result<(), Refusal> {
        check(self.snapshots, "snapshot restore", "CREATE_DELETE_SNAPSHOT")
    }

    pub(super) fn check_clones(self) -> Result<(), Refusal> {
        check(self.clones, "clone operations", "CLONE_VOLUME")
    }

    pub(super) fn check_attributes(self) -> Result<(), Refusal> {
        check(self.modifies, "VolumeAttributesClass", "MODIFY_VOLUME")
    }
}

fn check(able: bool, of: &'static str, capability: &'static str) -> Result<(), Refusal> {
    if able { Ok(()) } else { Err(incapable(of, capability)) }
}

fn incapable(of: &'static str, capability: &'static str) -> Refusal {
    Refusal::Incapable { of, service: "controller", capability }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_driver_lacks_is_named() {
        let mut able = Abilities::default();
        let said = |checked: Result<(), Refusal>| checked.unwrap_err().to_string();
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
