//! The driver as CSI sees it: each trait of the SDK in terms of [`Pool`] and [`NodeVolumes`].

mod class;
mod controller;
mod errors;
mod node;
mod plugin;
mod show;
mod snapshots;

use std::sync::Arc;

use tokio::sync::Semaphore;
use wharf_csi_sdk::types::{Capability, Topology};

use crate::error::Error;
use crate::node::{NodeVolumes, Severity};
use crate::pool::Pool;
use crate::record::{Access, Usage};

/// Calls that work on disks at the same time; more wait.
const PARALLEL: usize = 64;
/// Images are whole blocks.
const GRANULARITY: u64 = 4096;
/// What a volume gets when nothing is asked for.
const DEFAULT_SIZE: u64 = 1 << 30;
/// What is too small to hold anything.
const SMALLEST: u64 = 1 << 20;

/// Who the driver is.
#[derive(Clone, Debug)]
pub struct Identity {
    /// The driver's name, `local.csi.wharf` unless said otherwise.
    pub name: String,
    /// The node's id.
    pub node: String,
    /// How many volumes the node takes.
    pub attach_limit: u64,
}

impl Identity {
    /// The key of the node's topology.
    pub fn topology_key(&self) -> String {
        format!("topology.{}/node", self.name)
    }

    /// Where the pool's volumes can be used: here.
    pub fn topology(&self) -> Topology {
        Topology::new(self.topology_key(), &self.node)
    }
}

/// The driver, to be handed to the SDK.
#[derive(Debug)]
pub struct Driver {
    identity: Identity,
    pool: Arc<Pool>,
    node: Arc<NodeVolumes>,
    disks: Arc<Semaphore>,
}

impl Driver {
    /// A driver over a pool.
    pub fn new(identity: Identity, pool: Arc<Pool>, node: Arc<NodeVolumes>) -> Self {
        Self { identity, pool, node, disks: Arc::new(Semaphore::new(PARALLEL)) }
    }

    /// Why the pool cannot be used now, if it cannot.
    pub async fn pool_ailment(&self) -> Option<String> {
        let found = self.blocking(|_, node| Ok(node.pool_health())).await.ok().flatten();
        found
            .filter(|ailment| ailment.severity >= Severity::Inaccessible)
            .map(|ailment| ailment.message)
    }

    /// Runs what blocks, away from the event loop and not too much of it at once.
    async fn blocking<T: Send + 'static>(
        &self,
        work: impl FnOnce(&Pool, &NodeVolumes) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let permit = self.disks.clone().acquire_owned().await;
        let (pool, node) = (self.pool.clone(), self.node.clone());
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&pool, &node)
        });
        // A panic goes on in the caller's task, where the SDK makes an answer of it.
        done.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}

/// The part of a capability that is kept and compared.
fn usage(capability: Capability) -> Usage {
    use wharf_csi_sdk::types::Access as Asked;
    let access = match capability.access {
        Asked::Block => Access::Block,
        Asked::Mount { fs_type, flags, .. } => Access::Mount { filesystem: fs_type, flags },
    };
    Usage { mode: capability.mode, access }
}
