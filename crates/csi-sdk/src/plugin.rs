//! A plugin and its builder.

use std::{fmt, sync::Arc, time::Duration};

use wharf_facts::validation::{DriverNameError, check_driver_name};

use crate::{
    driver::{
        Attachments, CapacityReport, Expansion, GroupSnapshots, Modification, Node, NodeExpansion,
        NodeVolumeHealth, SnapshotList, SnapshotLookup, Snapshots, Staging, Stats, StorageHealth,
        VolumeHealth, VolumeList, VolumeLookup, Volumes,
    },
    metrics::DriverMetrics,
    operations::Operations,
    parts::Parts,
    readiness::Readiness,
    service::Core,
    types::Parameters,
};

const DRAIN: Duration = Duration::from_secs(30);

/// A CSI plugin, ready to be [served](Plugin::serve). Clones are handles of the same plugin.
#[derive(Clone)]
pub struct Plugin {
    pub(crate) core: Arc<Core>,
    pub(crate) drain: Duration,
}

impl Plugin {
    /// Starts to build a plugin. The name is a domain name, such as `csi.example.com`; the version
    /// is the vendor's own.
    pub fn builder(name: impl Into<String>, vendor_version: impl Into<String>) -> PluginBuilder {
        PluginBuilder {
            name: name.into(),
            vendor_version: vendor_version.into(),
            manifest: Parameters::new(),
            parts: Parts::default(),
            readiness: None,
            metrics: None,
            drain: DRAIN,
        }
    }

    /// Name of the driver.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.core.name
    }
}

impl fmt::Debug for Plugin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Plugin").field("name", &self.core.name).finish_non_exhaustive()
    }
}

/// Builder of a [`Plugin`]: pass the implementations of the driver's traits. Capabilities without
/// an implementation are not advertised, and their RPCs return UNIMPLEMENTED.
///
/// One type may implement all traits: `.volumes(driver.clone()).node(driver.clone())`.
#[must_use = "the builder does nothing until it is built"]
pub struct PluginBuilder {
    name: String,
    vendor_version: String,
    manifest: Parameters,
    parts: Parts,
    readiness: Option<Readiness>,
    metrics: Option<DriverMetrics>,
    drain: Duration,
}

macro_rules! parts {
    ($($(#[$doc:meta])+ $part:ident: $trait:ident,)+) => {$(
        $(#[$doc])+
        pub fn $part(mut self, $part: Arc<dyn $trait>) -> Self {
            self.parts.$part = Some($part);
            self
        }
    )+};
}

impl PluginBuilder {
    parts! {
        /// Creates and deletes volumes.
        volumes: Volumes,
        /// Attaches volumes to nodes.
        attachments: Attachments,
        /// Lists volumes.
        volume_list: VolumeList,
        /// Looks up one volume.
        volume_lookup: VolumeLookup,
        /// Reports free capacity.
        capacity: CapacityReport,
        /// Expands volumes.
        expansion: Expansion,
        /// Changes parameters of volumes.
        modification: Modification,
        /// Reports health of volumes.
        volume_health: VolumeHealth,
        /// Takes and deletes snapshots.
        snapshots: Snapshots,
        /// Lists snapshots.
        snapshot_list: SnapshotList,
        /// Looks up one snapshot.
        snapshot_lookup: SnapshotLookup,
        /// Takes snapshots of several volumes at one instant.
        group_snapshots: GroupSnapshots,
        /// Publishes volumes to workloads of a node.
        node: Node,
        /// Stages volumes on a node, once for all its workloads.
        staging: Staging,
        /// Reports usage of volumes.
        stats: Stats,
        /// Expands the node's part of a volume.
        node_expansion: NodeExpansion,
        /// Reports health of volumes on their node.
        node_volume_health: NodeVolumeHealth,
        /// Reports health of the storage behind a node's volumes.
        storage_health: StorageHealth,
    }

    /// Declares that not every node reaches every volume: VOLUME_ACCESSIBILITY_CONSTRAINTS, and the
    /// same for snapshots if the plugin has any. [`NodeInfo`](crate::types::NodeInfo) must then
    /// have a topology.
    pub fn topology(mut self) -> Self {
        self.parts.topology = true;
        self
    }

    /// Declares that the driver distinguishes one workload on a node from several:
    /// SINGLE_NODE_MULTI_WRITER, of both services.
    pub fn single_node_multi_writer(mut self) -> Self {
        self.parts.single_node_multi_writer = true;
        self
    }

    /// Sets the manifest that GetPluginInfo returns, for people.
    pub fn manifest(mut self, manifest: Parameters) -> Self {
        self.manifest = manifest;
        self
    }

    /// Sets the handle that decides the answer of `Probe`. Without one, the plugin is always ready.
    pub fn readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = Some(readiness);
        self
    }

    /// Sets the metrics that count each call.
    pub fn metrics(mut self, metrics: DriverMetrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// Sets how long calls and operations may take to finish when the plugin stops. Defaults to 30
    /// s.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Validates the configuration and builds the plugin.
    pub fn build(self) -> Result<Plugin, BuildError> {
        check_driver_name(&self.name)?;
        if self.vendor_version.is_empty() {
            return Err(BuildError::NoVersion);
        }
        let parts = &self.parts;
        if parts.node.is_none() {
            let on_node = parts.node_capabilities().next();
            if on_node.is_some() {
                return Err(BuildError::NoNode);
            }
            if !parts.has_controller() {
                return Err(BuildError::Empty);
            }
        }
        let core = Core {
            name: self.name,
            vendor_version: self.vendor_version,
            manifest: self.manifest,
            parts: self.parts,
            operations: Operations::default(),
            readiness: self.readiness.unwrap_or_else(|| {
                let readiness = Readiness::starting();
                readiness.set_ready();
                readiness
            }),
            metrics: self.metrics,
        };
        Ok(Plugin { core: Arc::new(core), drain: self.drain })
    }
}

/// Why a plugin cannot be built.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BuildError {
    /// The name is not a valid driver name.
    #[error(transparent)]
    Name(#[from] DriverNameError),
    /// The version is empty.
    #[error("the vendor version is empty: expected any text, such as 1.0.0")]
    NoVersion,
    /// There are capabilities of a node, but no [`Node`].
    #[error("staging, stats, expansion and health of a node need a Node: add one with .node(...)")]
    NoNode,
    /// The plugin has no capability.
    #[error(
        "the plugin has no capability: add a Node or an implementation of the Controller service"
    )]
    Empty,
}
