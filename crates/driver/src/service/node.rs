//! Volumes on the node.

use std::sync::Arc;

use async_trait::async_trait;
use wharf_csi_sdk::Fingerprint;
use wharf_csi_sdk::driver::{Node, NodeExpansion, NodeVolumeHealth, Staging, Stats, StorageHealth};
use wharf_csi_sdk::error::{
    Failure, NodeExpandVolumeError, NodeGetVolumeHealthError, NodeGetVolumeStatsError,
    NodePublishVolumeError, NodeStageVolumeError, NodeUnpublishVolumeError, NodeUnstageVolumeError,
};
use wharf_csi_sdk::request::{
    NodeExpandVolume, NodeGetVolumeHealth, NodeGetVolumeStats, NodePublishVolume, NodeStageVolume,
    NodeUnpublishVolume, NodeUnstageVolume,
};
use wharf_csi_sdk::types::{
    CapacityRange, HealthProblem, NodeInfo, Secrets, StorageHealthStatus, StorageProblem, Usage,
    VolumeStats,
};
use wharf_facts::context;

use super::class::{Class, refuse_unsupported};
use super::show::{condition, problem};
use super::{DEFAULT_SIZE, Driver, GRANULARITY, usage};
use crate::error::Error;
use crate::limits::Limits;
use crate::node::{NodeVolumes, Publish, Severity, StageRequest, Stats as Figures};
use crate::pool::{NewVolume, Pool};
use crate::pools::{Pools, ServedPool};

#[async_trait]
impl Node for Driver {
    async fn info(&self) -> Result<NodeInfo, Failure> {
        Ok(NodeInfo {
            id: self.identity.node.as_str().into(),
            max_volumes: Some(self.identity.attach_limit),
            topology: Some(self.identity.topology()),
        })
    }

    async fn publish(&self, request: NodePublishVolume) -> Result<(), NodePublishVolumeError> {
        refuse_unsupported(std::slice::from_ref(&request.capability))?;
        let ephemeral =
            request.is_ephemeral().then(|| Class::of_inline(&request.context)).transpose()?;
        let staging_path = match (request.staging_path, &ephemeral) {
            (Some(path), _) => path,
            (None, Some(_)) => Default::default(),
            (None, None) => {
                let text =
                    "staging_target_path is empty: the volume is published from where it is staged";
                return Err(NodePublishVolumeError::NotStaged(text.to_owned()));
            }
        };
        let publish = Publish {
            volume: request.volume.to_string(),
            staging_path,
            target: request.target_path,
            usage: usage(request.capability),
            read_only: request.read_only,
            pod_uid: request.context.get(context::POD_UID).cloned(),
        };
        let done = match ephemeral {
            None => {
                let served = self.pools.of_volume(&publish.volume)?;
                self.blocking(&served, move |_, node| node.publish(&publish)).await
            }
            Some(class) => {
                let served = self.inline_pool(&publish.volume, &class)?;
                let new = inline(&publish, &class)?;
                let publish =
                    move |_: &Pool, node: &NodeVolumes| node.publish_ephemeral(new, &publish);
                self.blocking(&served, publish).await
            }
        };
        Ok(done?)
    }

    async fn unpublish(
        &self,
        request: NodeUnpublishVolume,
    ) -> Result<(), NodeUnpublishVolumeError> {
        let served = match self.pools.of_volume(&request.volume) {
            Err(Error::NotFound { .. } | Error::Unavailable(_)) => {
                let undo = move |pools: &Pools| {
                    pools.unpublish_orphan(&request.volume, &request.target_path)
                };
                return Ok(self.undo_orphan(undo).await?);
            }
            served => served?,
        };
        let undone = self
            .undoing(&served, move |_, node| node.unpublish(&request.volume, &request.target_path));
        Ok(undone.await?)
    }
}

#[async_trait]
impl Staging for Driver {
    async fn stage(&self, request: NodeStageVolume) -> Result<(), NodeStageVolumeError> {
        refuse_unsupported(std::slice::from_ref(&request.capability))?;
        let stage = StageRequest {
            volume: request.volume.into(),
            path: request.staging_path,
            usage: usage(request.capability),
        };
        let served = self.pools.of_volume(&stage.volume)?;
        Ok(self.blocking(&served, move |_, node| node.stage(&stage)).await?)
    }

    async fn unstage(&self, request: NodeUnstageVolume) -> Result<(), NodeUnstageVolumeError> {
        let served = match self.pools.of_volume(&request.volume) {
            Err(Error::NotFound { .. } | Error::Unavailable(_)) => {
                let undo = move |pools: &Pools| {
                    pools.unstage_orphan(&request.volume, &request.staging_path)
                };
                return Ok(self.undo_orphan(undo).await?);
            }
            served => served?,
        };
        let undone = self
            .undoing(&served, move |_, node| node.unstage(&request.volume, &request.staging_path));
        Ok(undone.await?)
    }
}

#[async_trait]
impl Stats for Driver {
    fn shows_condition(&self) -> bool {
        true
    }

    async fn stats(
        &self,
        request: NodeGetVolumeStats,
    ) -> Result<VolumeStats, NodeGetVolumeStatsError> {
        let served = self.pools.of_volume(&request.volume)?;
        let found = self.looking(&served, move |_, node| {
            let figures = node.stats(&request.volume, &request.volume_path)?;
            Ok((figures, node.volume_health(&request.volume)?))
        });
        let (figures, ailments) = found.await?;
        let (bytes, inodes) = match figures {
            Figures::Device { size } => (Usage { total: size, ..Usage::default() }, None),
            Figures::Filesystem(usage) => (
                Usage { total: usage.total, used: usage.used, available: usage.available },
                Some(Usage {
                    total: usage.inodes_total,
                    used: usage.inodes_used,
                    available: usage.inodes_free,
                }),
            ),
        };
        Ok(VolumeStats { bytes: Some(bytes), inodes, condition: Some(condition(&ailments)) })
    }
}

#[async_trait]
impl NodeExpansion for Driver {
    async fn expand(&self, request: NodeExpandVolume) -> Result<u64, NodeExpandVolumeError> {
        let served = self.pools.of_volume(&request.volume)?;
        let volume = served.pool.whole_volume(&request.volume)?;
        let to = self.grown_size(&served, &volume, request.capacity).await?;
        let expand = move |_: &Pool, node: &NodeVolumes| {
            node.expand(&request.volume, &request.volume_path, to)
        };
        Ok(self.blocking(&served, expand).await?)
    }
}

#[async_trait]
impl NodeVolumeHealth for Driver {
    async fn health(
        &self,
        request: NodeGetVolumeHealth,
    ) -> Result<Vec<HealthProblem>, NodeGetVolumeHealthError> {
        let served = self.pools.of_volume(&request.volume)?;
        let health = move |_: &Pool, node: &NodeVolumes| node.volume_health(&request.volume);
        let found = self.looking(&served, health).await?;
        Ok(found.into_iter().map(problem).collect())
    }
}

#[async_trait]
impl StorageHealth for Driver {
    async fn health(&self, _: Secrets) -> Result<Vec<StorageProblem>, Failure> {
        let mut problems = Vec::new();
        for message in self.pools.absences() {
            problems.push(StorageProblem {
                status: StorageHealthStatus::Unreachable,
                reason: "PoolMissing".to_owned(),
                message,
                concerns: None,
            });
        }
        for (pool, ailment) in self.pool_ailments().await {
            problems.push(StorageProblem {
                status: match ailment.severity {
                    Severity::Degraded => StorageHealthStatus::Degraded,
                    Severity::Inaccessible | Severity::DataLoss => StorageHealthStatus::Unreachable,
                },
                reason: ailment.reason.to_owned(),
                message: format!("pool {pool}: {}", ailment.message),
                concerns: None,
            });
        }
        Ok(problems)
    }
}

impl Driver {
    /// The pool of an inline volume: where it is already, or the one that the pod picks.
    fn inline_pool(&self, id: &str, class: &Class) -> Result<Arc<ServedPool>, Error> {
        match self.pools.of_volume(id) {
            // The id carries no pool: one that is missing does not keep pods from a pool that is there.
            Err(Error::NotFound { .. } | Error::Unavailable(_)) => {
                let picked = self.pools.picked(class.pool.as_deref());
                let picked = picked.map_err(|error| match error {
                    Error::Invalid { expected, .. } => {
                        Error::invalid("volume_context.pool", expected)
                    }
                    error => error,
                })?;
                picked.refuse_drained(id)?;
                Ok(picked)
            }
            known => known,
        }
    }

    /// Undoes something of a volume that no served pool knows.
    async fn undo_orphan(
        &self,
        work: impl FnOnce(&Pools) -> Result<(), Error> + Send + 'static,
    ) -> Result<(), Error> {
        let (permit, pools) = (self.orphans.clone().acquire_owned().await, self.pools.clone());
        let done = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            work(&pools)
        });
        done.await.unwrap_or_else(|error| std::panic::resume_unwind(error.into_panic()))
    }
}

/// The volume that an inline publication brings with it. Its id is the orchestrator's, and so is its name.
fn inline(publish: &Publish, class: &Class) -> Result<NewVolume, Error> {
    let size = CapacityRange { required: class.size.unwrap_or(DEFAULT_SIZE), limit: None };
    let capacity = size.fit(GRANULARITY, GRANULARITY, u64::MAX);
    let capacity = capacity
        .map_err(|_| Error::invalid("volume_context.size", "a size that a disk can have"))?;
    Ok(NewVolume {
        id: Some(publish.volume.clone()),
        name: publish.volume.clone(),
        fingerprint: Fingerprint::default(),
        backend: class.backend,
        capacity,
        thin: class.thin,
        filesystem: class.filesystem,
        source: None,
        limits: Limits::default(),
        ephemeral: true,
    })
}
