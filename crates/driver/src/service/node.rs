//! The Node service.

use std::sync::Arc;

use async_trait::async_trait;
use wharf_csi_sdk::{
    Fingerprint,
    driver::{Node, NodeExpansion, NodeVolumeHealth, Staging, Stats, StorageHealth},
    error::{
        Failure, NodeExpandVolumeError, NodeGetVolumeHealthError, NodeGetVolumeStatsError,
        NodePublishVolumeError, NodeStageVolumeError, NodeUnpublishVolumeError,
        NodeUnstageVolumeError,
    },
    request::{
        NodeExpandVolume, NodeGetVolumeHealth, NodeGetVolumeStats, NodePublishVolume,
        NodeStageVolume, NodeUnpublishVolume, NodeUnstageVolume,
    },
    types::{
        CapacityRange, HealthProblem, NodeInfo, Secrets, StorageHealthStatus, StorageProblem,
        Usage, VolumeStats,
    },
};
use wharf_facts::context;

use super::{
    DEFAULT_SIZE, Driver, GRANULARITY,
    class::{Class, refuse_unsupported},
    show::{condition, problem},
    usage,
};
use crate::{
    error::Error,
    limits::Limits,
    node::{NodeVolumes, Publish, Severity, StageRequest, Stats as Figures},
    pool::{NewVolume, Pool},
    pools::{Pools, ServedPool},
};

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
                self.run_change(&served, move |_, node| node.publish(&publish)).await
            }
            Some(class) => {
                let served = self.inline_pool(&publish.volume, &class)?;
                let new = inline(&publish, &class)?;
                let publish =
                    move |_: &Pool, node: &NodeVolumes| node.publish_ephemeral(new, &publish);
                self.run_change(&served, publish).await
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
        let undone = self.run_undo(&served, move |_, node| {
            node.unpublish(&request.volume, &request.target_path)
        });
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
        Ok(self.run_change(&served, move |_, node| node.stage(&stage)).await?)
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
            .run_undo(&served, move |_, node| node.unstage(&request.volume, &request.staging_path));
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
        let found = self.run_read(&served, move |_, node| {
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
        Ok(self.run_change(&served, expand).await?)
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
        let found = self.run_read(&served, health).await?;
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
    /// Returns the pool of an inline volume: the one it is on, or the one that the pod selects.
    fn inline_pool(&self, id: &str, class: &Class) -> Result<Arc<ServedPool>, Error> {
        match self.pools.of_volume(id) {
            // The ID does not name a pool: a missing pool must not keep pods from the others.
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

    /// Runs a teardown of a volume that no served pool knows.
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

/// Builds the volume of an inline publication. Both its ID and its name are the orchestrator's
/// volume ID.
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
