//! The driver as CSI sees it: each trait of the SDK in terms of [`Pools`], [`Pool`] and [`NodeVolumes`].

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
use crate::pools::{Pools, ServedPool};
use crate::record::{Access, Usage};

/// Calls that change something at the same time, and as many that only look; more wait.
const PARALLEL: usize = 64;
/// Questions whether the pool can be used, which depend on no other call.
const READINESS: usize = 1;
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
    pools: Arc<Pools>,
    /// Held while a volume is attached: the limit of a node holds for all pools together.
    attaching: tokio::sync::Mutex<()>,
    disks: Arc<Semaphore>,
    looks: Arc<Semaphore>,
    readiness: Arc<Semaphore>,
}

impl Driver {
    /// A driver over its pools.
    pub fn new(identity: Identity, pools: Arc<Pools>) -> Self {
        let [disks, looks, readiness] =
            [PARALLEL, PARALLEL, READINESS].map(|count| Arc::new(Semaphore::new(count)));
        Self { identity, pools, attaching: Default::default(), disks, looks, readiness }
    }

    /// Why a pool cannot be used now, if one cannot.
    pub async fn pool_ailment(&self) -> Option<String> {
        if let Some(reason) = self.pools.absent() {
            return Some(reason);
        }
        for served in self.pools.served() {
            let found = self.with(&self.readiness, &served, |_, node| Ok(node.pool_health()));
            let found = found.await.ok().flatten();
            if let Some(ailment) = found.filter(|it| it.severity >= Severity::Inaccessible) {
                return Some(format!("pool {}: {}", served.name, ailment.message));
            }
        }
        None
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
        self.with(&self.disks, served, work).await
    }

    /// Runs a call that undoes something, which is possible also where the pool's disk is gone.
    async fn undoing(
        &self,
        served: &Arc<ServedPool>,
        work: impl FnOnce(&Pool, &NodeVolumes) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        self.with(&self.disks, served, work).await
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
        self.with(&self.looks, served, work).await
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
