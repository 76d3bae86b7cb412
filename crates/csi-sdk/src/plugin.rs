//! A plugin, and how it is built.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use wharf_facts::validation::{DriverNameError, check_driver_name};

use crate::driver::{
    Attachments, CapacityReport, Expansion, GroupSnapshots, Modification, Node, NodeExpansion,
    NodeVolumeHealth, SnapshotList, SnapshotLookup, Snapshots, Staging, Stats, StorageHealth,
    VolumeHealth, VolumeList, VolumeLookup, Volumes,
};
use crate::metrics::DriverMetrics;
use crate::operations::Operations;
use crate::parts::Parts;
use crate::readiness::Readiness;
use crate::service::Core;
use crate::types::Parameters;

const DRAIN: Duration = Duration::from_secs(30);

/// A CSI plugin, ready to be [served](Plugin::serve). Clones are the same plugin.
#[derive(Clone)]
pub struct Plugin {
    pub(crate) core: Arc<Core>,
    pub(crate) drain: Duration,
}

impl Plugin {
    /// Starts to build a plugin. The name is domain-like, such as `csi.example.com`; the version is the vendor's own.
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

    /// The driver's name.
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

/// A plugin to be: hand in what the driver can do. What is not handed in is not advertised, and answers UNIMPLEMENTED.
///
/// One type may implement all of it: `.volumes(driver.clone()).node(driver.clone())`.
#[must_use = "nothing happens until it is built"]
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
        /// Makes and deletes volumes.
        volumes: Volumes,
        /// Makes volumes available on nodes.
        attachments: Attachments,
        /// Lists volumes.
        volume_list: VolumeList,
        /// Looks a volume up.
        volume_lookup: VolumeLookup,
        /// Tells how much more can be stored.
        capacity: CapacityReport,
        /// Makes volumes larger.
        expansion: Expansion,
        /// Changes volumes.
        modification: Modification,
        /// Tells how volumes do.
        volume_health: VolumeHealth,
        /// Cuts and deletes snapshots.
        snapshots: Snapshots,
        /// Lists snapshots.
        snapshot_list: SnapshotList,
        /// Looks a snapshot up.
        snapshot_lookup: SnapshotLookup,
        /// Cuts snapshots of several volumes at one instant.
        group_snapshots: GroupSnapshots,
        /// Shows volumes to workloads of a node.
        node: Node,
        /// Brings volumes to a node, once for all its workloads.
        staging: Staging,
        /// Tells how full a volume is.
        stats: Stats,
        /// Makes the node's part of a volume larger.
        node_expansion: NodeExpansion,
        /// Tells how a volume does on its node.
        node_volume_health: NodeVolumeHealth,
        /// Tells how the storage behind a node's volumes does.
        storage_health: StorageHealth,
    }

    /// Not every node reaches every volume: VOLUME_ACCESSIBILITY_CONSTRAINTS, and the same for snapshots if there are
    /// any. [`NodeInfo`](crate::types::NodeInfo) then tells where the node stands.
    pub fn topology(mut self) -> Self {
        self.parts.topology = true;
        self
    }

    /// The driver tells one workload on a node from many: SINGLE_NODE_MULTI_WRITER, on both sides.
    pub fn single_node_multi_writer(mut self) -> Self {
        self.parts.single_node_multi_writer = true;
        self
    }

    /// Says more about the plugin, for people.
    pub fn manifest(mut self, manifest: Parameters) -> Self {
        self.manifest = manifest;
        self
    }

    /// `Probe` answers what this handle says. Without one, the plugin is ready at once.
    pub fn readiness(mut self, readiness: Readiness) -> Self {
        self.readiness = Some(readiness);
        self
    }

    /// Every call is counted there.
    pub fn metrics(mut self, metrics: DriverMetrics) -> Self {
        self.metrics = Some(metrics);
        self
    }

    /// How long calls and operations may take to finish when the plugin stops; 30 s unless said.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Checks what was handed in, and puts it together.
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
    /// The name is not one that orchestrators take.
    #[error(transparent)]
    Name(#[from] DriverNameError),
    /// The version is empty.
    #[error("the vendor's version is empty: expected any text, such as 1.0.0")]
    NoVersion,
    /// There are parts for the node, and no node.
    #[error(
        "staging, stats, expansion and health of a node need a node: hand one in with .node(...)"
    )]
    NoNode,
    /// Nothing was handed in.
    #[error("a plugin needs a node or something of a controller: hand in at least one part")]
    Empty,
}
