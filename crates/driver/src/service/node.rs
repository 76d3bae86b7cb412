//! Volumes on the node.

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
use crate::node::{Publish, Severity, StageRequest, Stats as Figures};
use crate::pool::NewVolume;

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
        let staging_path = match (request.staging_path, ephemeral) {
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
            None => self.blocking(move |_, node| node.publish(&publish)).await,
            Some(class) => {
                let new = inline(&publish, class)?;
                self.blocking(move |_, node| node.publish_ephemeral(new, &publish)).await
            }
        };
        Ok(done?)
    }

    async fn unpublish(
        &self,
        request: NodeUnpublishVolume,
    ) -> Result<(), NodeUnpublishVolumeError> {
        let undone =
            self.blocking(move |_, node| node.unpublish(&request.volume, &request.target_path));
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
        Ok(self.blocking(move |_, node| node.stage(&stage)).await?)
    }

    async fn unstage(&self, request: NodeUnstageVolume) -> Result<(), NodeUnstageVolumeError> {
        let undone =
            self.blocking(move |_, node| node.unstage(&request.volume, &request.staging_path));
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
        let found = self.looking(move |_, node| {
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
        let volume = self.pool.whole_volume(&request.volume)?;
        let to = self.grown_size(&volume, request.capacity).await?;
        let grown =
            self.blocking(move |_, node| node.expand(&request.volume, &request.volume_path, to));
        Ok(grown.await?)
    }
}

#[async_trait]
impl NodeVolumeHealth for Driver {
    async fn health(
        &self,
        request: NodeGetVolumeHealth,
    ) -> Result<Vec<HealthProblem>, NodeGetVolumeHealthError> {
        let found = self.looking(move |_, node| node.volume_health(&request.volume)).await?;
        Ok(found.into_iter().map(problem).collect())
    }
}

#[async_trait]
impl StorageHealth for Driver {
    async fn health(&self, _: Secrets) -> Result<Vec<StorageProblem>, Failure> {
        let found = self.looking(|_, node| Ok(node.pool_health())).await?;
        let problem = found.map(|ailment| StorageProblem {
            status: match ailment.severity {
                Severity::Degraded => StorageHealthStatus::Degraded,
                Severity::Inaccessible | Severity::DataLoss => StorageHealthStatus::Unreachable,
            },
            reason: ailment.reason.to_owned(),
            message: ailment.message,
            concerns: None,
        });
        Ok(problem.into_iter().collect())
    }
}

/// The volume that an inline publication brings with it. Its id is the orchestrator's, and so is its name.
fn inline(publish: &Publish, class: Class) -> Result<NewVolume, Error> {
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
