//! The calls of the driver.

use std::time::SystemTime;

use wharf_csi_sdk::prelude::*;

use super::Service;

const MIB: u64 = 1 << 20;
const TIB: u64 = 1 << 40;

#[async_trait]
impl Volumes for Service {
    fn sources(&self) -> Sources {
        Sources { snapshot: true, volume: false }
    }

    async fn existing(&self, name: &str) -> Result<Option<Existing<Volume>>, Failure> {
        let entries = self.called("CreateVolume", name)?;
        Ok(entries.volumes.values().find(|(own, _)| own == name).map(|(_, it)| it.clone()))
    }

    async fn create(&self, request: CreateVolume) -> Result<Volume, CreateVolumeError> {
        self.proven("CreateVolume", &request.secrets);
        let volume = {
            let mut entries = self.ledger.entries();
            if let Some(ContentSource::Snapshot(id)) = &request.source
                && !entries.snapshots.contains_key(id)
            {
                return Err(CreateVolumeError::SourceNotFound(id.to_string()));
            }
            let capacity = request.capacity.fit(MIB, MIB, TIB)?;
            let topology = self.place.iter().cloned().collect();
            let volume = Volume { topology, ..Volume::new(entries.id(&request.name), capacity) };
            let made = Existing { fingerprint: request.fingerprint, object: volume.clone() };
            entries.volumes.insert(volume.id.clone(), (request.name, made));
            volume
        };
        self.done("CreateVolume").await;
        Ok(volume)
    }

    async fn delete(&self, request: DeleteVolume) -> Result<(), DeleteVolumeError> {
        self.proven("DeleteVolume", &request.secrets);
        let id = request.volume;
        {
            let mut entries = self.called("DeleteVolume", &id)?;
            if let Some((_, node)) = entries.published.iter().find(|(volume, _)| *volume == id) {
                return Err(DeleteVolumeError::InUse(format!("{id} is published to {node}")));
            }
            entries.volumes.remove(&id);
        }
        self.done("DeleteVolume").await;
        Ok(())
    }

    async fn validate(
        &self,
        request: ValidateVolumeCapabilities,
    ) -> Result<Validation, ValidateVolumeCapabilitiesError> {
        match self.ledger.entries().volumes.contains_key(&request.volume) {
            true => Ok(Validation::Confirmed),
            false => Err(ValidateVolumeCapabilitiesError::NotFound(request.volume.into())),
        }
    }
}

#[async_trait]
impl Attachments for Service {
    async fn publish(
        &self,
        request: ControllerPublishVolume,
    ) -> Result<Parameters, ControllerPublishVolumeError> {
        self.proven("ControllerPublishVolume", &request.secrets);
        let ControllerPublishVolume { volume, node, .. } = request;
        {
            let what = format!("{volume} {node}");
            let mut entries = self.called("ControllerPublishVolume", what)?;
            if !entries.volumes.contains_key(&volume) {
                return Err(ControllerPublishVolumeError::VolumeNotFound(volume.into()));
            }
            let elsewhere =
                |(other, place): &&(VolumeId, NodeId)| *other == volume && *place != node;
            if let Some((_, place)) = entries.published.iter().find(elsewhere) {
                return Err(ControllerPublishVolumeError::PublishedElsewhere(place.to_string()));
            }
            entries.published.insert((volume, node));
        }
        self.done("ControllerPublishVolume").await;
        Ok(Parameters::new())
    }

    async fn unpublish(
        &self,
        request: ControllerUnpublishVolume,
    ) -> Result<(), ControllerUnpublishVolumeError> {
        self.proven("ControllerUnpublishVolume", &request.secrets);
        let ControllerUnpublishVolume { volume, node, .. } = request;
        let leaves = |it: &(VolumeId, NodeId)| {
            it.0 == volume && node.as_ref().is_none_or(|node| it.1 == *node)
        };
        let place = node.as_ref().map_or("everywhere", |node| node.as_ref());
        let what = format!("{volume} {place}");
        self.called("ControllerUnpublishVolume", what)?.published.retain(|it| !leaves(it));
        self.done("ControllerUnpublishVolume").await;
        Ok(())
    }
}

#[async_trait]
impl Expansion for Service {
    fn mode(&self) -> ExpansionMode {
        ExpansionMode::Online
    }

    async fn expand(
        &self,
        request: ControllerExpandVolume,
    ) -> Result<Expanded, ControllerExpandVolumeError> {
        self.proven("ControllerExpandVolume", &request.secrets);
        let capacity = {
            let mut entries = self.called("ControllerExpandVolume", &request.volume)?;
            let Some((_, volume)) = entries.volumes.get_mut(&request.volume) else {
                return Err(ControllerExpandVolumeError::NotFound(request.volume.into()));
            };
            let capacity = request.capacity.fit(MIB, volume.object.capacity, TIB)?;
            volume.object.capacity = capacity;
            capacity
        };
        self.done("ControllerExpandVolume").await;
        Ok(Expanded { capacity, node_expansion_required: false })
    }
}

#[async_trait]
impl Modification for Service {
    async fn modify(
        &self,
        request: ControllerModifyVolume,
    ) -> Result<(), ControllerModifyVolumeError> {
        self.proven("ControllerModifyVolume", &request.secrets);
        {
            let entries = self.called("ControllerModifyVolume", &request.volume)?;
            if !entries.volumes.contains_key(&request.volume) {
                return Err(ControllerModifyVolumeError::NotFound(request.volume.into()));
            }
        }
        self.done("ControllerModifyVolume").await;
        Ok(())
    }
}

#[async_trait]
impl Snapshots for Service {
    async fn existing(&self, name: &str) -> Result<Option<Existing<Snapshot>>, Failure> {
        let entries = self.called("CreateSnapshot", name)?;
        Ok(entries.snapshots.values().find(|(own, _)| own == name).map(|(_, it)| it.clone()))
    }

    async fn create(&self, request: CreateSnapshot) -> Result<Snapshot, CreateSnapshotError> {
        self.proven("CreateSnapshot", &request.secrets);
        let snapshot = {
            let mut entries = self.ledger.entries();
            let Some((_, source)) = entries.volumes.get(&request.source) else {
                return Err(CreateSnapshotError::SourceNotFound(request.source.into()));
            };
            let size = source.object.capacity;
            let snapshot = Snapshot {
                id: entries.id(&request.name).into(),
                source: request.source,
                size,
                created: SystemTime::now(),
                ready: true,
                group: None,
                topology: Vec::new(),
            };
            let made = Existing { fingerprint: request.fingerprint, object: snapshot.clone() };
            entries.snapshots.insert(snapshot.id.clone(), (request.name, made));
            snapshot
        };
        self.done("CreateSnapshot").await;
        Ok(snapshot)
    }

    async fn delete(&self, request: DeleteSnapshot) -> Result<(), DeleteSnapshotError> {
        self.proven("DeleteSnapshot", &request.secrets);
        self.called("DeleteSnapshot", &request.snapshot)?.snapshots.remove(&request.snapshot);
        self.done("DeleteSnapshot").await;
        Ok(())
    }
}
