//! The trait implementations of a plugin, and the capabilities that follow from them.

use std::sync::Arc;

use tonic::Status;
use wharf_proto::csi;

use crate::{
    driver::{
        Attachments, CapacityReport, Expansion, GroupSnapshots, Modification, Node, NodeExpansion,
        NodeVolumeHealth, SnapshotList, SnapshotLookup, Snapshots, Staging, Stats, StorageHealth,
        VolumeHealth, VolumeList, VolumeLookup, Volumes,
    },
    types::ExpansionMode,
};

/// The implementations that were passed to the builder.
#[derive(Clone, Default)]
pub(crate) struct Parts {
    pub(crate) volumes: Option<Arc<dyn Volumes>>,
    pub(crate) attachments: Option<Arc<dyn Attachments>>,
    pub(crate) volume_list: Option<Arc<dyn VolumeList>>,
    pub(crate) volume_lookup: Option<Arc<dyn VolumeLookup>>,
    pub(crate) capacity: Option<Arc<dyn CapacityReport>>,
    pub(crate) expansion: Option<Arc<dyn Expansion>>,
    pub(crate) modification: Option<Arc<dyn Modification>>,
    pub(crate) volume_health: Option<Arc<dyn VolumeHealth>>,
    pub(crate) snapshots: Option<Arc<dyn Snapshots>>,
    pub(crate) snapshot_list: Option<Arc<dyn SnapshotList>>,
    pub(crate) snapshot_lookup: Option<Arc<dyn SnapshotLookup>>,
    pub(crate) group_snapshots: Option<Arc<dyn GroupSnapshots>>,
    pub(crate) node: Option<Arc<dyn Node>>,
    pub(crate) staging: Option<Arc<dyn Staging>>,
    pub(crate) stats: Option<Arc<dyn Stats>>,
    pub(crate) node_expansion: Option<Arc<dyn NodeExpansion>>,
    pub(crate) node_volume_health: Option<Arc<dyn NodeVolumeHealth>>,
    pub(crate) storage_health: Option<Arc<dyn StorageHealth>>,
    pub(crate) single_node_multi_writer: bool,
    pub(crate) topology: bool,
}

/// Returns a part, or UNIMPLEMENTED.
pub(crate) fn offered<T: ?Sized>(part: &Option<Arc<T>>, rpc: &str) -> Result<Arc<T>, Status> {
    part.clone().ok_or_else(|| Status::unimplemented(format!("this driver does not offer {rpc}")))
}

impl Parts {
    /// Whether the plugin has a Controller service.
    pub(crate) fn has_controller(&self) -> bool {
        self.controller_capabilities().next().is_some()
    }

    pub(crate) fn controller_capabilities(
        &self,
    ) -> impl Iterator<Item = csi::controller_service_capability::rpc::Type> + use<> {
        use csi::controller_service_capability::rpc::Type;
        let volumes = self.volumes.as_ref();
        let list = self.volume_list.as_ref();
        let lookup = self.volume_lookup.as_ref();
        let volume = volumes.is_some() || self.attachments.is_some();
        [
            (volumes.is_some(), Type::CreateDeleteVolume),
            (self.attachments.is_some(), Type::PublishUnpublishVolume),
            (list.is_some(), Type::ListVolumes),
            (self.capacity.is_some(), Type::GetCapacity),
            (self.snapshots.is_some(), Type::CreateDeleteSnapshot),
            (self.snapshot_list.is_some(), Type::ListSnapshots),
            (volumes.is_some_and(|it| it.sources().volume), Type::CloneVolume),
            (
                self.attachments.as_ref().is_some_and(|it| it.honors_read_only()),
                Type::PublishReadonly,
            ),
            (self.expansion.is_some(), Type::ExpandVolume),
            (self.lists_published_nodes(), Type::ListVolumesPublishedNodes),
            (
                list.is_some_and(|it| it.shows_condition())
                    || lookup.is_some_and(|it| it.shows_condition()),
                Type::VolumeCondition,
            ),
            (lookup.is_some(), Type::GetVolume),
            (self.single_node_multi_writer && volume, Type::SingleNodeMultiWriter),
            (self.modification.is_some(), Type::ModifyVolume),
            (self.snapshot_lookup.is_some(), Type::GetSnapshot),
            (self.volume_health.is_some(), Type::GetVolumeHealth),
            (self.volume_health.is_some(), Type::ListVolumeHealth),
        ]
        .into_iter()
        .filter_map(|(on, capability)| on.then_some(capability))
    }

    /// Whether lists show the nodes that volumes are published to, which requires [`Attachments`].
    pub(crate) fn lists_published_nodes(&self) -> bool {
        let shown = self.volume_list.as_ref().is_some_and(|list| list.shows_published_nodes());
        shown && self.attachments.is_some()
    }

    pub(crate) fn node_capabilities(
        &self,
    ) -> impl Iterator<Item = csi::node_service_capability::rpc::Type> + use<> {
        use csi::node_service_capability::rpc::Type;
        [
            (self.staging.is_some(), Type::StageUnstageVolume),
            (self.stats.is_some(), Type::GetVolumeStats),
            (self.node_expansion.is_some(), Type::ExpandVolume),
            (self.stats.as_ref().is_some_and(|it| it.shows_condition()), Type::VolumeCondition),
            (self.single_node_multi_writer && self.node.is_some(), Type::SingleNodeMultiWriter),
            (self.node.as_ref().is_some_and(|it| it.mount_group()), Type::VolumeMountGroup),
            (self.node_volume_health.is_some(), Type::GetVolumeHealth),
            (self.storage_health.is_some(), Type::GetStorageHealth),
        ]
        .into_iter()
        .filter_map(|(on, capability)| on.then_some(capability))
    }

    pub(crate) fn services(&self) -> impl Iterator<Item = csi::plugin_capability::service::Type> {
        use csi::plugin_capability::service::Type;
        [
            (self.has_controller(), Type::ControllerService),
            (self.topology, Type::VolumeAccessibilityConstraints),
            (self.group_snapshots.is_some(), Type::GroupControllerService),
            (self.topology && self.snapshots.is_some(), Type::SnapshotAccessibilityConstraints),
        ]
        .into_iter()
        .filter_map(|(on, service)| on.then_some(service))
    }

    pub(crate) fn volume_expansion(&self) -> Option<ExpansionMode> {
        let controller = self.expansion.as_ref().map(|expansion| expansion.mode());
        controller.or_else(|| self.node_expansion.as_ref().map(|expansion| expansion.mode()))
    }
}
