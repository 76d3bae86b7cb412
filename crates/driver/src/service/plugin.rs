//! Builds the SDK plugin: one line per capability.

use std::sync::Arc;

use wharf_csi_sdk::{Plugin, PluginBuilder};

use super::Driver;

impl Driver {
    /// Returns a builder with all capabilities. With `attach`, the controller publishes volumes to
    /// nodes first.
    pub fn plugin(self: &Arc<Self>, version: &str, attach: bool) -> PluginBuilder {
        let plugin = Plugin::builder(self.identity.name.clone(), version)
            .topology()
            .single_node_multi_writer()
            .volumes(self.clone())
            .volume_list(self.clone())
            .volume_lookup(self.clone())
            .volume_health(self.clone())
            .capacity(self.clone())
            .expansion(self.clone())
            .modification(self.clone())
            .snapshots(self.clone())
            .snapshot_list(self.clone())
            .snapshot_lookup(self.clone())
            .group_snapshots(self.clone())
            .node(self.clone())
            .staging(self.clone())
            .stats(self.clone())
            .node_expansion(self.clone())
            .node_volume_health(self.clone())
            .storage_health(self.clone());
        if attach { plugin.attachments(self.clone()) } else { plugin }
    }
}
