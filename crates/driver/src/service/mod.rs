//! The driver as CSI sees it: each trait of the SDK in terms of [`Pools`], [`Pool`] and [`NodeVolumes`].

mod class;
mod controller;
mod errors;
mod node;
mod plugin;
mod show;
mod snapshots;

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::join_all;
use tokio::sync::Semaphore;
use tokio::time::timeout;
use wharf_csi_sdk::types::{Capability, Topology};

use crate::error::Error;
use crate::node::{Ailment, NodeVolumes, Severity};
use crate::pool::Pool;
use crate::pools::{Permits, Pools, ServedPool};
use crate::record::{Access, Usage};

/// How long a disk may take to say whether its pool can be used.
const HEALTH: Duration = Duration::from_secs(5);
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

/// What is said of a pool whose disk does not answer.
fn hangs() -> String {
    format!("its disk gave no answer in {HEALTH:?}")
}

/// The driver, to be handed to the SDK.
#[derive(Debug)]
pub struct Driver {
    identity: Identity,
    pools: Arc<Pools>,
    /// For calls about volumes that no served pool knows.
    orphans: Arc<Semaphore>,
}

impl Driver {
    /// A driver over its pools.
    pub fn new(identity: Identity, pools: Arc<Pools>) -> Self {
        let orphans = Arc::new(Semaphore::new(Permits::PARALLEL));
        Self { identity, pools, orphans }
    }

    /// Why pools cannot be used now, a line for each that cannot.
    pub async fn pool_ailment(&self) -> Option<String> {
        let mut lines = self.pools.absences();
        for (pool, ailment) in self.pool_ailments().await {
            if ailment.severity >= Severity::Inaccessible {
                lines.push(format!("pool {pool}: {}", ailment.message));
            }
        }
        (!lines.is_empty()).then(|| lines.join("\n"))
    }

    /// What is wrong with each served pool. All are asked at once: one whose disk hangs keeps nobody waiting.
    async fn pool_ailments(&self) -> Vec<(String, Ailment)> {
        let ask = |served: Arc<ServedPool>| async move {
            let look = |pool: &Pool, node: &NodeVolumes| {
                pool.ensure_present()?;
                Ok(node.pool_health())
            };
            let asked = timeout(HEALTH, self.with(&served.permits.health, &served, look)).await;
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

    /// Runs a call that changes something, away from the event loop and not too many of them at once.
    async fn blocking<T: Send + 'static>(
        &self,
        served: &Arc<ServedPool>,
        work: impl FnOnce(&Pool, &NodeVolumes) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let work = |pool: &Pool, node: &NodeVolumes| {
            pool.ensure_present()?;
            work(pool, node)
        };
        self.with(&served.permits.changes, served, work).await
    }

    /// Runs a call that undoes something, which is possible also where the pool's disk is gone.
    async fn undoing(
        &self,
        served: &Arc<ServedPool>,
        work: impl FnOnce(&Pool, &NodeVolumes) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        self.with(&served.permits.changes, served, work).await
    }

    /// Runs a call that only looks: at a filesystem that hangs it may never end, and must not hold up those that unmount.
    async fn looking<T: Send + 'static>(
        &self,
        served: &Arc<ServedPool>,
        work: impl FnOnce(&Pool, &NodeVolumes) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let work = |pool: &Pool, node: &NodeVolumes| {
            pool.ensure_present()?;
            work(pool, node)
        };
        self.with(&served.permits.looks, served, work).await
    }

    async fn with<T: Send + 'static>(
        &self,
        permits: &Arc<Semaphore>,
        served: &Arc<ServedPool>,
        work: impl FnOnce(&Pool, &NodeVolumes) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let permit = permits.clone().acquire_owned().await;
        let served = served.clone();
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            served.node.record_undone_before();
            work(&served.pool, &served.node)
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

#[cfg(test)]
mod tests;
