//! A CSI driver in memory: it creates, lists and publishes volumes, and forgets them when it ends.
//!
//! Run it with `CSI_ENDPOINT=unix:///run/memory.sock example-driver`. It passes csi-sanity and
//! works with a kubelet.

use std::{collections::BTreeMap, path::PathBuf, sync::Arc};

use tokio::sync::Mutex;
use wharf_csi_sdk::prelude::*;

const MIB: u64 = 1 << 20;
const POOL: u64 = 1 << 40;

#[tokio::main(flavor = "current_thread")]
async fn main() -> anyhow::Result<()> {
    let memory = Arc::new(Memory::default());
    let plugin = Plugin::builder("memory.csi.example.com", "1.0.0")
        .volumes(memory.clone())
        .volume_list(memory.clone())
        .capacity(memory.clone())
        .node(memory)
        .build()?;
    Ok(plugin.run(Endpoint::from_env()?).await?)
}

#[derive(Default)]
struct Memory(Mutex<State>);

#[derive(Default)]
struct State {
    made: u64,
    volumes: BTreeMap<VolumeId, (String, Existing<Volume>)>,
    targets: BTreeMap<PathBuf, (VolumeId, Capability, bool)>,
}

impl State {
    fn free(&self) -> u64 {
        POOL - self.volumes.values().map(|(_, it)| it.object.capacity).sum::<u64>()
    }
}

#[async_trait]
impl Volumes for Memory {
    async fn existing(&self, name: &str) -> Result<Option<Existing<Volume>>, Failure> {
        let state = self.0.lock().await;
        Ok(state.volumes.values().find(|(own, _)| own == name).map(|(_, it)| it.clone()))
    }

    async fn create(&self, request: CreateVolume) -> Result<Volume, CreateVolumeError> {
        let mut state = self.0.lock().await;
        let capacity = request.capacity.fit(MIB, MIB, state.free())?;
        state.made += 1;
        let volume = Volume::new(format!("memory-{:08}", state.made), capacity);
        let made = Existing { fingerprint: request.fingerprint, object: volume.clone() };
        state.volumes.insert(volume.id.clone(), (request.name, made));
        Ok(volume)
    }

    async fn delete(&self, request: DeleteVolume) -> Result<(), DeleteVolumeError> {
        let mut state = self.0.lock().await;
        if let Some((target, _)) = state.targets.iter().find(|(_, it)| it.0 == request.volume) {
            return Err(DeleteVolumeError::InUse(format!("published at {}", target.display())));
        }
        state.volumes.remove(&request.volume);
        Ok(())
    }

    async fn validate(
        &self,
        request: ValidateVolumeCapabilities,
    ) -> Result<Validation, ValidateVolumeCapabilitiesError> {
        if !self.0.lock().await.volumes.contains_key(&request.volume) {
            return Err(ValidateVolumeCapabilitiesError::NotFound(request.volume.into()));
        }
        Ok(Validation::Confirmed)
    }
}

#[async_trait]
impl VolumeList for Memory {
    async fn list(
        &self,
        after: Option<VolumeId>,
        limit: usize,
    ) -> Result<Vec<VolumeEntry>, Failure> {
        let state = self.0.lock().await;
        let later = state.volumes.iter().filter(|(id, _)| after.as_ref().is_none_or(|it| *id > it));
        Ok(later.take(limit).map(|(_, (_, it))| it.object.clone().into()).collect())
    }
}

#[async_trait]
impl CapacityReport for Memory {
    async fn available(&self, _: GetCapacity) -> Result<AvailableCapacity, Failure> {
        Ok(AvailableCapacity {
            available: self.0.lock().await.free(),
            ..AvailableCapacity::default()
        })
    }
}

#[async_trait]
impl Node for Memory {
    async fn info(&self) -> Result<NodeInfo, Failure> {
        Ok(NodeInfo::new("node-1"))
    }

    async fn publish(&self, request: NodePublishVolume) -> Result<(), NodePublishVolumeError> {
        use NodePublishVolumeError::{ExceedsCapabilities, Incompatible, NotFound};
        let NodePublishVolume { target_path: target, volume, capability, read_only, .. } = request;
        let block = capability.access.is_block();
        let entry = (volume.clone(), capability, read_only);
        let mut state = self.0.lock().await;
        if !state.volumes.contains_key(&volume) {
            return Err(NotFound(volume.into()));
        }
        for (used, other) in state.targets.iter().filter(|(_, it)| it.0 == volume) {
            if *used != target && !entry.1.mode.is_multi_target() {
                return Err(ExceedsCapabilities(format!("published at {}", used.display())));
            }
            if *used == target && *other != entry {
                return Err(Incompatible("published there in another way".to_owned()));
            }
        }
        state.targets.insert(target.clone(), entry);
        let made = match block {
            true => tokio::fs::write(&target, "").await,
            false => tokio::fs::create_dir_all(&target).await,
        };
        Ok(made.map_err(|error| Failure::caused_by(target.display(), &error))?)
    }

    async fn unpublish(
        &self,
        request: NodeUnpublishVolume,
    ) -> Result<(), NodeUnpublishVolumeError> {
        let target = request.target_path;
        let removed = match tokio::fs::metadata(&target).await {
            Ok(found) if found.is_dir() => tokio::fs::remove_dir(&target).await,
            Ok(_) => tokio::fs::remove_file(&target).await,
            Err(_) => Ok(()),
        };
        removed.map_err(|error| Failure::caused_by(target.display(), &error))?;
        self.0.lock().await.targets.remove(&target);
        Ok(())
    }
}
