//! The Node service of the in-memory driver, with folders and files as volumes.

use wharf_csi_sdk::prelude::*;

use crate::driver::{MAX_VOLUMES, Memory, NODE, place};

#[async_trait]
impl Node for Memory {
    async fn info(&self) -> Result<NodeInfo, Failure> {
        let (max_volumes, topology) = (Some(MAX_VOLUMES), place().pop());
        Ok(NodeInfo { id: NODE.into(), max_volumes, topology })
    }

    async fn publish(&self, request: NodePublishVolume) -> Result<(), NodePublishVolumeError> {
        use NodePublishVolumeError::{ExceedsCapabilities, Incompatible, NotFound, NotStaged};
        let NodePublishVolume { volume, target_path, capability, read_only, .. } = request;
        let mut state = self.state();
        if state.size(&volume).is_none() {
            return Err(NotFound(volume.into()));
        }
        if !state.staged.contains(&volume) {
            return Err(NotStaged(volume.into()));
        }
        let mut held = state.targets.iter().filter(|(_, it)| it.0 == volume);
        let wanted = (volume.clone(), capability, read_only);
        if let Some((_, held)) = held.clone().find(|(path, _)| **path == target_path) {
            let same = (*held == wanted).then_some(());
            return same.ok_or_else(|| Incompatible("published in another way".into()));
        }
        let several = wanted.1.mode != AccessMode::SingleNodeSingleWriter;
        if let Some((path, _)) = held.next().filter(|_| !several) {
            return Err(ExceedsCapabilities(format!("published at {}", path.display())));
        }
        let made = match wanted.1.access.is_block() {
            true => std::fs::write(&target_path, ""),
            false => std::fs::create_dir_all(&target_path),
        };
        made.map_err(|error| Failure::caused_by("target", &error))?;
        state.targets.insert(target_path, wanted);
        Ok(())
    }

    async fn unpublish(
        &self,
        request: NodeUnpublishVolume,
    ) -> Result<(), NodeUnpublishVolumeError> {
        let target = request.target_path;
        let removed = match std::fs::metadata(&target) {
            Ok(found) if found.is_dir() => std::fs::remove_dir(&target),
            Ok(_) => std::fs::remove_file(&target),
            Err(_) => Ok(()),
        };
        removed.map_err(|error| Failure::caused_by("target", &error))?;
        self.state().targets.remove(&target);
        Ok(())
    }
}

#[async_trait]
impl Staging for Memory {
    async fn stage(&self, request: NodeStageVolume) -> Result<(), NodeStageVolumeError> {
        let mut state = self.state();
        if state.size(&request.volume).is_none() {
            return Err(NodeStageVolumeError::NotFound(request.volume.into()));
        }
        state.staged.insert(request.volume);
        Ok(())
    }

    async fn unstage(&self, request: NodeUnstageVolume) -> Result<(), NodeUnstageVolumeError> {
        self.state().staged.remove(&request.volume);
        Ok(())
    }
}

#[async_trait]
impl Stats for Memory {
    fn shows_condition(&self) -> bool {
        true
    }

    async fn stats(
        &self,
        request: NodeGetVolumeStats,
    ) -> Result<VolumeStats, NodeGetVolumeStatsError> {
        let state = self.state();
        match state.targets.get(&request.volume_path) {
            Some((volume, ..)) if *volume == request.volume => {
                let total = state.size(volume).unwrap_or_default();
                let bytes = Some(Usage { total, used: 0, available: total });
                Ok(VolumeStats { bytes, ..VolumeStats::default() })
            }
            _ => Err(NodeGetVolumeStatsError::NotFound("not there".into())),
        }
    }
}

#[async_trait]
impl NodeExpansion for Memory {
    async fn expand(&self, request: NodeExpandVolume) -> Result<u64, NodeExpandVolumeError> {
        let absent = || NodeExpandVolumeError::NotFound(request.volume.to_string());
        self.state().size(&request.volume).ok_or_else(absent)
    }
}

#[async_trait]
impl NodeVolumeHealth for Memory {
    async fn health(
        &self,
        request: NodeGetVolumeHealth,
    ) -> Result<Vec<HealthProblem>, NodeGetVolumeHealthError> {
        match self.state().size(&request.volume) {
            Some(_) => Ok(Vec::new()),
            None => Err(NodeGetVolumeHealthError::NotFound(request.volume.into())),
        }
    }
}

#[async_trait]
impl StorageHealth for Memory {
    async fn health(&self, _: Secrets) -> Result<Vec<StorageProblem>, Failure> {
        Ok(Vec::new())
    }
}
