//! The Controller service.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::time::timeout;
use wharf_csi_sdk::{
    driver::{
        Attachments, CapacityReport, Existing, Expansion, Modification, VolumeHealth, VolumeList,
        VolumeLookup, Volumes,
    },
    error::{
        ControllerExpandVolumeError, ControllerGetVolumeError, ControllerGetVolumeHealthError,
        ControllerModifyVolumeError, ControllerPublishVolumeError, ControllerUnpublishVolumeError,
        CreateVolumeError, DeleteVolumeError, Failure, ValidateVolumeCapabilitiesError,
    },
    request::{
        ControllerExpandVolume, ControllerModifyVolume, ControllerPublishVolume,
        ControllerUnpublishVolume, CreateVolume, DeleteVolume, GetCapacity,
        ValidateVolumeCapabilities,
    },
    types::{
        AvailableCapacity, Capability, CapacityRange, ContentSource, Expanded, ExpansionMode,
        HealthProblem, Parameters, Sources, UnhealthyVolume, Validation, Volume, VolumeEntry,
        VolumeId,
    },
};
use wharf_mount::{Filesystem, format};

use super::{
    DEFAULT_SIZE, Driver, GRANULARITY, HEALTH_TIMEOUT, MIN_SIZE,
    class::{Class, refuse_unsupported, unsupported},
    hangs,
    show::problem,
    usage,
};
use crate::{
    error::Error,
    limits::Limits,
    node::{Ailment, Applied, NodeVolumes, Severity},
    pool::{Kind, NewVolume, Pool},
    pools::ServedPool,
    record::{self, Access, Attachment, Content, Source},
};

#[async_trait]
impl Volumes for Driver {
    fn sources(&self) -> Sources {
        Sources { snapshot: true, volume: true }
    }

    async fn existing(&self, name: &str) -> Result<Option<Existing<Volume>>, Failure> {
        let volume = self.pools.served().into_iter().find_map(|served| {
            let named = served.pool.store().read(|state| state.volumes.named(name).cloned());
            named.filter(|volume| volume.is_whole())
        });
        Ok(volume.map(|volume| Existing {
            fingerprint: volume.fingerprint.clone(),
            object: self.show_volume(&volume),
        }))
    }

    async fn create(&self, request: CreateVolume) -> Result<Volume, CreateVolumeError> {
        use CreateVolumeError::{OutOfRange, SourceNotFound};
        refuse_unsupported(&request.capabilities)?;
        let class = Class::of_volume(&request.parameters)?;
        let served = self.pools.picked(class.pool.as_deref())?;
        self.refuse_taken(&request.name, &served)?;
        served.refuse_drained(&request.name)?;
        if !request.topology.is_met_by(&[self.identity.topology()]) {
            let text = format!(
                "the pool is on node {}, which no requisite topology names",
                self.identity.node
            );
            return Err(CreateVolumeError::Exhausted(text));
        }
        let limits = Limits::default().with(&request.mutable_parameters).map_err(|error| {
            Failure::invalid(format!("mutable_parameters.{}", error.key), error.expected)
        })?;
        let filesystem = asked_filesystem(&request.capabilities, &class);
        let capacity = match self.size(&served, &request, filesystem).await {
            Err(error @ (SourceNotFound(_) | OutOfRange(_))) => {
                let (name, fingerprint) = (request.name, request.fingerprint);
                let given_up = move |pool: &Pool, _: &NodeVolumes| {
                    pool.give_up_volume(&name, &fingerprint);
                    Ok(())
                };
                self.run_change(&served, given_up).await?;
                return Err(error);
            }
            capacity => capacity?,
        };
        let new = NewVolume {
            id: None,
            name: request.name,
            fingerprint: request.fingerprint,
            backend: class.backend,
            capacity,
            thin: class.thin,
            filesystem,
            source: request.source.map(source),
            limits,
            ephemeral: false,
        };
        let origin = self.origin(new.source.as_ref(), &served)?;
        let create = move |pool: &Pool, _: &NodeVolumes| pool.create_volume_from(new, &origin.pool);
        let volume = self.run_change(&served, create).await?;
        Ok(self.show_volume(&volume))
    }

    async fn delete(&self, request: DeleteVolume) -> Result<(), DeleteVolumeError> {
        let served = match self.pools.of_volume(&request.volume) {
            Err(Error::NotFound { .. }) => return Ok(()),
            served => served?,
        };
        Ok(self.run_change(&served, move |_, node| node.delete_volume(&request.volume)).await?)
    }

    async fn validate(
        &self,
        request: ValidateVolumeCapabilities,
    ) -> Result<Validation, ValidateVolumeCapabilitiesError> {
        let volume = self.pools.of_volume(&request.volume)?.pool.whole_volume(&request.volume)?;
        for capability in request.capabilities {
            if let Some(expected) = unsupported(&capability) {
                return Ok(Validation::Unsupported(format!("expected {expected}")));
            }
            let asked = usage(capability).filesystem()?;
            if let (Content::Filesystem(own), Some(asked)) = (volume.content, asked)
                && own != asked
            {
                return Ok(Validation::Unsupported(format!("the volume holds {own}")));
            }
        }
        Ok(Validation::Confirmed)
    }
}

#[async_trait]
impl Attachments for Driver {
    fn honors_read_only(&self) -> bool {
        true
    }

    async fn publish(
        &self,
        request: ControllerPublishVolume,
    ) -> Result<Parameters, ControllerPublishVolumeError> {
        refuse_unsupported(std::slice::from_ref(&request.capability))?;
        let node = request.node.to_string();
        let served = self.pools.of_volume(&request.volume);
        let known = |served: &Arc<ServedPool>| {
            served.pool.store().read(|state| state.nodes.get(&node).is_some())
        };
        if node != self.identity.node && !served.as_ref().is_ok_and(known) {
            let text = format!(
                "node {node:?} has no driver of this pool, which is on node {}",
                self.identity.node
            );
            return Err(ControllerPublishVolumeError::NodeNotFound(text));
        }
        let attachment =
            Attachment { read_only: request.read_only, usage: usage(request.capability) };
        let served = served?;
        let room = self.pools.room_for(&request.volume, &node, self.identity.attach_limit);
        let attach = move |pool: &Pool, _: &NodeVolumes| {
            let (_held, room) = match room {
                Ok(room) => (Some(room), Ok(())),
                Err(full) => (None, Err(full)),
            };
            pool.attach(&request.volume, &node, attachment, room)
        };
        self.run_change(&served, attach).await?;
        Ok(Parameters::new())
    }

    async fn unpublish(
        &self,
        request: ControllerUnpublishVolume,
    ) -> Result<(), ControllerUnpublishVolumeError> {
        let node = request.node.map(String::from);
        let served = match self.pools.of_volume(&request.volume) {
            Err(Error::NotFound { .. }) => return Ok(()),
            served => served?,
        };
        let detach = move |pool: &Pool, _: &NodeVolumes| pool.detach(&request.volume, node);
        Ok(self.run_undo(&served, detach).await?)
    }
}

#[async_trait]
impl VolumeList for Driver {
    fn shows_published_nodes(&self) -> bool {
        true
    }

    fn shows_condition(&self) -> bool {
        true
    }

    async fn list(
        &self,
        after: Option<VolumeId>,
        limit: usize,
    ) -> Result<Vec<VolumeEntry>, Failure> {
        let found = self.examined(after, limit).await?;
        Ok(found.iter().map(|(volume, ailments)| self.show_entry(volume, ailments)).collect())
    }
}

#[async_trait]
impl VolumeLookup for Driver {
    fn shows_condition(&self) -> bool {
        true
    }

    async fn get(&self, volume: VolumeId) -> Result<VolumeEntry, ControllerGetVolumeError> {
        let served = self.pools.of_volume(&volume)?;
        let found = self.run_read(&served, move |pool, node| {
            let ailments = node.volume_health(&volume)?;
            Ok((pool.volume(&volume)?, ailments))
        });
        let (volume, ailments) = found.await?;
        Ok(self.show_entry(&volume, &ailments))
    }
}

#[async_trait]
impl CapacityReport for Driver {
    async fn available(&self, request: GetCapacity) -> Result<AvailableCapacity, Failure> {
        let class = Class::of_volume(&request.parameters)?;
        let elsewhere =
            request.topology.is_some_and(|place| !place.meets(&self.identity.topology()));
        let unusable =
            request.capabilities.iter().any(|capability| unsupported(capability).is_some());
        if elsewhere || unusable {
            return Ok(AvailableCapacity::default());
        }
        let served = match self.pools.picked(class.pool.as_deref()) {
            // A pool that is not served has no capacity; the provisioner must not wait for it.
            Err(Error::Unavailable(_)) => return Ok(AvailableCapacity::default()),
            Err(Error::Invalid { .. }) if class.pool.is_none() => {
                return Ok(AvailableCapacity::default());
            }
            served => served?,
        };
        if served.pool.settings().drain {
            return Ok(AvailableCapacity::default());
        }
        if !served.pool.settings().kinds.allow(Kind::of(class.thin)) {
            let maximum_volume_size = Some(0);
            return Ok(AvailableCapacity { maximum_volume_size, ..Default::default() });
        }
        let look = |pool: &Pool, node: &NodeVolumes| match node.pool_health() {
            Some(ailment) if ailment.severity >= Severity::Inaccessible => {
                Err(Error::Unavailable(ailment.message))
            }
            _ => Ok((pool.account()?, pool.thin_must_wait())),
        };
        let (account, thin_must_wait) = match self.run_read(&served, look).await {
            Err(Error::Unavailable(_)) => return Ok(AvailableCapacity::default()),
            found => found?,
        };
        let whole_blocks = |bytes: u64| bytes / GRANULARITY * GRANULARITY;
        let largest = whole_blocks(match class.thin {
            _ if account.below_floor() => 0,
            true if thin_must_wait => 0,
            true => account.thin_capacity(),
            false => account.capacity(),
        });
        let asked = asked_filesystem(&request.capabilities, &class);
        let smallest = smallest(&request.capabilities, asked);
        Ok(AvailableCapacity {
            available: largest,
            // A volume that is too small for its filesystem cannot be created.
            maximum_volume_size: Some(if largest < smallest { 0 } else { largest }),
            minimum_volume_size: Some(smallest),
        })
    }
}

#[async_trait]
impl Expansion for Driver {
    fn mode(&self) -> ExpansionMode {
        ExpansionMode::Online
    }

    async fn expand(
        &self,
        request: ControllerExpandVolume,
    ) -> Result<Expanded, ControllerExpandVolumeError> {
        let served = self.pools.of_volume(&request.volume)?;
        let volume = served.pool.whole_volume(&request.volume)?;
        let node_expansion_required = match (&request.capability, &volume.stage) {
            (Some(capability), _) => !capability.access.is_block(),
            (None, Some(stage)) => stage.usage.access != Access::Block,
            (None, None) => true,
        };
        if volume.capacity >= request.capacity.required {
            return Ok(Expanded { capacity: volume.capacity, node_expansion_required });
        }
        let to = self.grown_size(&served, &volume, request.capacity).await?;
        let expand = move |pool: &Pool, _: &NodeVolumes| pool.expand_volume(&request.volume, to);
        let grown = self.run_change(&served, expand).await?;
        Ok(Expanded { capacity: grown.capacity, node_expansion_required })
    }
}

#[async_trait]
impl Modification for Driver {
    async fn modify(
        &self,
        request: ControllerModifyVolume,
    ) -> Result<(), ControllerModifyVolumeError> {
        let id = request.volume.clone();
        let served = self.pools.of_volume(&id)?;
        let modify =
            move |_: &Pool, node: &NodeVolumes| node.modify(&request.volume, &request.parameters);
        let applied = self.run_change(&served, modify).await?;
        if applied == Applied::Later {
            tracing::info!(volume = %id, "recorded limits, applying them at next publish");
        }
        Ok(())
    }
}

#[async_trait]
impl VolumeHealth for Driver {
    async fn get(
        &self,
        volume: VolumeId,
    ) -> Result<Vec<HealthProblem>, ControllerGetVolumeHealthError> {
        let served = self.pools.of_volume(&volume)?;
        let found = self.run_read(&served, move |_, node| node.volume_health(&volume)).await?;
        Ok(found.into_iter().map(problem).collect())
    }

    async fn list(
        &self,
        after: Option<VolumeId>,
        limit: usize,
    ) -> Result<Vec<UnhealthyVolume>, Failure> {
        let found = self.examined(after, usize::MAX).await?;
        let ill = found.into_iter().filter(|(_, ailments)| !ailments.is_empty());
        let shown = ill.take(limit).map(|(volume, ailments)| UnhealthyVolume {
            volume: volume.id.clone().into(),
            problems: ailments.into_iter().map(problem).collect(),
        });
        Ok(shown.collect())
    }
}

impl Driver {
    async fn size(
        &self,
        served: &Arc<ServedPool>,
        request: &CreateVolume,
        filesystem: Option<Filesystem>,
    ) -> Result<u64, CreateVolumeError> {
        let least = match &request.source {
            Some(ContentSource::Snapshot(id)) => {
                self.pools.of_snapshot(id)?.pool.snapshot(id)?.size
            }
            Some(ContentSource::Volume(id)) => {
                let (origin, id) = (self.pools.of_volume(id)?, id.clone());
                self.run_change(&origin, move |pool, _| pool.settled_volume(&id)).await?.capacity
            }
            None => smallest(&request.capabilities, filesystem),
        };
        if request.source.is_some()
            && request.capacity.required != 0
            && request.capacity.required < least
        {
            return Err(CreateVolumeError::OutOfRange(format!(
                "capacity_range.required_bytes: expected at least the {least} bytes of the source"
            )));
        }
        let least = match (request.capacity, &request.source) {
            (CapacityRange { required: 0, limit: None }, None) => DEFAULT_SIZE,
            _ => least,
        };
        Ok(request.capacity.fit(GRANULARITY, least, self.largest(served).await?)?)
    }

    /// Returns the size that a volume grows to, for both controller and node: whole blocks only.
    pub(super) async fn grown_size(
        &self,
        served: &Arc<ServedPool>,
        volume: &record::Volume,
        asked: CapacityRange,
    ) -> Result<u64, Error> {
        let grown = asked.fit_growth(GRANULARITY, volume.capacity, self.largest(served).await?);
        grown.map_err(|error| Error::OutOfRange(error.to_string()))
    }

    /// Returns the volumes with IDs after `after`, each with its problems.
    async fn examined(
        &self,
        after: Option<VolumeId>,
        limit: usize,
    ) -> Result<Vec<(Arc<record::Volume>, Vec<Ailment>)>, Error> {
        // The first IDs of all pools are among the first of each pool.
        let mut found = Vec::new();
        for served in self.pools.served() {
            let after = after.clone();
            let volumes: Vec<_> = served.pool.store().read(|state| {
                let volumes = state.volumes.after(after.as_deref());
                volumes.filter(|volume| shown(volume)).take(limit).cloned().collect()
            });
            found.extend(volumes.into_iter().map(|volume| (served.clone(), volume)));
        }
        found.sort_by(|(_, one), (_, other)| one.id.cmp(&other.id));
        found.truncate(limit);
        let mut examined: Vec<_> = Vec::with_capacity(found.len());
        for served in self.pools.served() {
            let of_pool = found.iter().filter(|(pool, _)| Arc::ptr_eq(pool, &served));
            let volumes: Vec<_> = of_pool.map(|(_, volume)| volume.clone()).collect();
            let shown = volumes.clone();
            let look = self.run_read(&served, move |_, node| node.examine_all(&shown));
            // Volumes of a pool whose disk is missing or hangs are listed with that problem.
            let unreachable = |reason, message| {
                let ailment = Ailment { severity: Severity::Inaccessible, reason, message };
                vec![vec![ailment]; volumes.len()]
            };
            let ailments = match timeout(HEALTH_TIMEOUT, look).await {
                Ok(Err(Error::Unavailable(text))) => unreachable("PoolMissing", text),
                Ok(ailments) => ailments?,
                Err(_) => unreachable("PoolHangs", hangs()),
            };
            examined.extend(volumes.into_iter().zip(ailments));
        }
        examined.sort_by(|(one, _), (other, _)| one.id.cmp(&other.id));
        Ok(examined)
    }

    /// Returns the pool of a new volume's source; without a source, its own pool.
    fn origin(
        &self,
        source: Option<&Source>,
        served: &Arc<ServedPool>,
    ) -> Result<Arc<ServedPool>, Error> {
        match source {
            None => Ok(served.clone()),
            Some(Source::Snapshot(id)) => self.pools.of_snapshot(id),
            Some(Source::Volume(id)) => self.pools.of_volume(id),
        }
    }

    /// Returns the maximum size of a volume, which is the size of the disk.
    async fn largest(&self, served: &Arc<ServedPool>) -> Result<u64, Error> {
        Ok(self.run_change(served, |pool, _| pool.account()).await?.disk.total)
    }

    /// Refuses a name that exists on another pool: names of volumes are unique per driver.
    fn refuse_taken(&self, name: &str, picked: &ServedPool) -> Result<(), Error> {
        let taken = self.pools.where_state(|state| state.volumes.named(name).is_some());
        match taken.filter(|other| other.name != picked.name) {
            None => Ok(()),
            Some(other) => Err(Error::Exists(format!(
                "a volume of that name is on pool {}, and was asked for with other parameters",
                other.name
            ))),
        }
    }
}

/// Whether a volume is listed. Incomplete volumes and inline volumes are not.
fn shown(volume: &record::Volume) -> bool {
    volume.is_whole() && !volume.ephemeral
}

/// Returns the minimum size of a volume that supports the capabilities.
fn smallest(capabilities: &[Capability], filesystem: Option<Filesystem>) -> u64 {
    // The default filesystem is ext4.
    let mounted = capabilities.iter().any(|capability| !capability.access.is_block());
    let filesystem = filesystem.or(mounted.then_some(Filesystem::Ext4));
    filesystem.map_or(MIN_SIZE, format::minimum_size)
}

fn asked_filesystem(capabilities: &[Capability], class: &Class) -> Option<Filesystem> {
    let asked = capabilities
        .iter()
        .find_map(|capability| usage(capability.clone()).filesystem().ok().flatten());
    asked.or(class.filesystem)
}

fn source(source: ContentSource) -> Source {
    match source {
        ContentSource::Snapshot(id) => Source::Snapshot(id.into()),
        ContentSource::Volume(id) => Source::Volume(id.into()),
    }
}
