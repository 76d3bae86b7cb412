//! A CSI driver that attaches, expands and snapshots volumes that have only a name and a size.

use std::{
    collections::HashMap,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::SystemTime,
};

use anyhow::{Context, Result};
use wharf_csi_sdk::prelude::*;

const MIB: u64 = 1 << 20;
const LARGEST: u64 = 1 << 40;

/// Serves the driver `name` on `socket`, with one thread.
pub(super) fn serve(name: &str, socket: &Path) -> Result<()> {
    let memory = Arc::new(Memory::default());
    let plugin = Plugin::builder(name, "1.0.0")
        .volumes(memory.clone())
        .attachments(memory.clone())
        .expansion(memory.clone())
        .snapshots(memory)
        .build()?;
    let endpoint: Endpoint = socket.to_str().context("the socket's path is text")?.parse()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    Ok(runtime.block_on(plugin.run(endpoint))?)
}

/// The objects by name. The name is also the ID.
#[derive(Default)]
struct Memory {
    volumes: Table<Volume>,
    snapshots: Table<Snapshot>,
}

struct Table<T>(Mutex<HashMap<String, Existing<T>>>);

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self(Mutex::default())
    }
}

impl<T: Clone> Table<T> {
    fn get(&self, name: &str) -> Option<Existing<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).get(name).cloned()
    }

    fn put(&self, name: String, fingerprint: Fingerprint, object: T) -> T {
        let existing = Existing { fingerprint, object: object.clone() };
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(name, existing);
        object
    }

    fn remove(&self, name: &str) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(name);
    }
}

#[async_trait]
impl Volumes for Memory {
    async fn existing(&self, name: &str) -> Result<Option<Existing<Volume>>, Failure> {
        Ok(self.volumes.get(name))
    }

    async fn create(&self, request: CreateVolume) -> Result<Volume, CreateVolumeError> {
        let volume = Volume::new(request.name.clone(), request.capacity.fit(MIB, MIB, LARGEST)?);
        Ok(self.volumes.put(request.name, request.fingerprint, volume))
    }

    async fn delete(&self, request: DeleteVolume) -> Result<(), DeleteVolumeError> {
        self.volumes.remove(&request.volume);
        Ok(())
    }

    async fn validate(
        &self,
        _: ValidateVolumeCapabilities,
    ) -> Result<Validation, ValidateVolumeCapabilitiesError> {
        Ok(Validation::Confirmed)
    }
}

#[async_trait]
impl Attachments for Memory {
    async fn publish(
        &self,
        _: ControllerPublishVolume,
    ) -> Result<Parameters, ControllerPublishVolumeError> {
        Ok(Parameters::new())
    }

    async fn unpublish(
        &self,
        _: ControllerUnpublishVolume,
    ) -> Result<(), ControllerUnpublishVolumeError> {
        Ok(())
    }
}

#[async_trait]
impl Expansion for Memory {
    fn mode(&self) -> ExpansionMode {
        ExpansionMode::Online
    }

    async fn expand(
        &self,
        request: ControllerExpandVolume,
    ) -> Result<Expanded, ControllerExpandVolumeError> {
        let capacity = request.capacity.fit(MIB, MIB, LARGEST)?;
        Ok(Expanded { capacity, node_expansion_required: false })
    }
}

#[async_trait]
impl Snapshots for Memory {
    async fn existing(&self, name: &str) -> Result<Option<Existing<Snapshot>>, Failure> {
        Ok(self.snapshots.get(name))
    }

    async fn create(&self, request: CreateSnapshot) -> Result<Snapshot, CreateSnapshotError> {
        let snapshot = Snapshot {
            id: request.name.clone().into(),
            source: request.source,
            size: MIB,
            created: SystemTime::now(),
            ready: true,
            group: None,
            topology: Vec::new(),
        };
        Ok(self.snapshots.put(request.name, request.fingerprint, snapshot))
    }

    async fn delete(&self, request: DeleteSnapshot) -> Result<(), DeleteSnapshotError> {
        self.snapshots.remove(&request.snapshot);
        Ok(())
    }
}
