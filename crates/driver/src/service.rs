//! Implements the SDK's traits with [`Pools`], [`Pool`] and [`NodeVolumes`].

mod class;
mod controller;
mod errors;
mod node;
mod plugin;
mod show;
mod snapshots;

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use tokio::{sync::Semaphore, time::timeout};
use wharf_csi_sdk::types::{Capability, Topology};

use crate::{
    error::Error,
    node::{Ailment, NodeVolumes, Severity},
    pool::Pool,
    pools::{Permits, Pools, ServedPool},
    record::{Access, Usage},
};

/// Maximum wait for a disk in a health query.
const HEALTH_TIMEOUT: Duration = Duration::from_secs(5);
/// Granularity of sizes: images are whole blocks.
const GRANULARITY: u64 = 4096;
/// Size of a volume whose request has none.
const DEFAULT_SIZE: u64 = 1 << 30;
/// Minimum size of a volume.
const MIN_SIZE: u64 = 1 << 20;

/// Identity of the driver and its node.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Name of the driver, by default `local.csi.wharf`.
    pub name: String,
    /// ID of the node.
    pub node: String,
    /// Maximum number of volumes on the node.
    pub attach_limit: u64,
}

impl Identity {
    /// Key of the node's topology.
    pub fn topology_key(&self) -> String {
        format!("topology.{}/node", self.name)
    }

    /// Topology of the pools' volumes: this node.
    pub fn topology(&self) -> Topology {
        Topology::new(self.topology_key(), &self.node)
    }
}

/// Message about a pool whose disk does not respond.
fn hangs() -> String {
    format!("its disk gave no answer in {HEALTH_TIMEOUT:?}")
}

/// The driver, which implements the SDK's traits.
#[derive(Debug)]
pub struct Driver {
    identity: Identity,
    pools: Arc<Pools>,
    /// Limits concurrent calls about volumes that no served pool knows.
    orphans: Arc<Semaphore>,
}

impl Driver {
    /// Creates a driver over its pools.
    pub fn new(identity: Identity, pools: Arc<Pools>) -> Self {
        let orphans = Arc::new(Semaphore::new(Permits::PARALLEL));
        Self { identity, pools, orphans }
    }

    /// Returns why pools cannot be used, one line per pool; `None` if all can.
    pub async fn pool_ailment(&self) -> Option<String> {
        let mut lines = self.pools.absences();
        for (pool, ailment) in self.pool_ailments().await {
            if ailment.severity >= Severity::Inaccessible {
                lines.push(format!("pool {pool}: {}", ailment.message));
            }
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// Returns the problems of the served pools. Queries them in parallel: one whose disk hangs
    /// delays no other.
    async fn pool_ailments(&self) -> Vec<(String, Ailment)> {
        let ask = |served: Arc<ServedPool>| async move {
            let look = |pool: &Pool, node: &NodeVolumes| {
                pool.ensure_present()?;
                Ok(node.pool_health())
            };
            let asked =
                timeout(HEALTH_TIMEOUT, self.run(&served.permits.health, &served, look)).await;
            let unreachable = |reason, message| {
                Some(Ailment { severity: Severity::Inaccessible, reason, message })
            };
            let ailment = match asked {
                Ok(Ok(ailment)) => ailment,
                Ok(Err(error)) => unreachable("PoolMissing", error.to_string()),
                Err(_) => unreachable("PoolHangs", hangs()),
            };
            Some((served.name.clone(), ailment?))
        };
        join_all(self.pools.served().into_iter().map(ask)).await.into_iter().flatten().collect()
    }

    /// Runs a call that changes something on a blocking thread, with a limit of concurrent calls.
    async fn run_change<T: Send + 'static>(
        &self,
        served: &Arc<ServedPool>,
        work: impl FnOnce(&Pool, &NodeVolumes) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let work = |pool: &Pool, node: &NodeVolumes| {
            pool.ensure_present()?;
            work(pool, node)
        };
        self.run(&served.permits.changes, served, work).await
    }

    /// Runs a call that undoes something, which is possible even if the pool's disk is missing.
    async fn run_undo(
        &self,
        served: &Arc<ServedPool>,
        work: impl FnOnce(&Pool, &NodeVolumes) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        self.run(&served.permits.changes, served, work).await
    }

    /// Runs a call that only reads. On a filesystem that hangs it may never end, so it must not
    /// block calls that unmount.
    async fn run_read<T: Send + 'static>(
        &self,
        served: &Arc<ServedPool>,
        work: impl FnOnce(&Pool, &NodeVolumes) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let work = |pool: &Pool, node: &NodeVolumes| {
            pool.ensure_present()?;
            work(pool, node)
        };
        self.run(&served.permits.reads, served, work).await
    }

    async fn run<T: Send + 'static>(
        &self,
        permits: &Arc<Semaphore>,
        served: &Arc<ServedPool>,
        work: impl FnOnce(&Pool, &NodeVolumes) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let permit = permits.clone().acquire_owned().await;
        let served = served.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            served.node.record_pending_undos();
            work(&served.pool, &served.node)
        });
        // Propagate a panic to the caller's task, where the SDK answers it.
        done.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}

/// Returns the part of a capability that is recorded and compared.
fn usage(capability: Capability) -> Usage {
    use wharf_csi_sdk::types::Access as Asked;
    let access = match capability.access {
        Asked::Block => Access::Block,
        Asked::Mount { fs_type, flags, .. } => Access::Mount { filesystem: fs_type, flags },
    };
    Usage { mode: capability.mode, access }
}

#[cfg(test)]
mod tests;
