//! An in-memory driver that implements every trait of the Controller service.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard},
    time::SystemTime,
};

use tokio::sync::Semaphore;
use wharf_csi_sdk::{PluginBuilder, prelude::*};

pub(crate) const NODE: &str = "node-1";
pub(crate) const MAX_VOLUMES: u64 = 4;
const POOL: u64 = 1 << 40;

pub(crate) struct Memory {
    state: Mutex<State>,
    /// Deletes wait for a permit, so that a test can hold them up.
    pub(crate) deletes: Semaphore,
}

#[derive(Default)]
pub(crate) struct State {
    made: u64,
    snapshot_places: Vec<Topology>,
    pub(crate) volumes: BTreeMap<VolumeId, Stored<Volume>>,
    pub(crate) snapshots: BTreeMap<SnapshotId, Stored<Snapshot>>,
    pub(crate) groups: BTreeMap<GroupSnapshotId, Stored<GroupSnapshot>>,
    pub(crate) attached: BTreeMap<(VolumeId, NodeId), (Capability, bool)>,
    pub(crate) staged: BTreeSet<VolumeId>,
    pub(crate) targets: BTreeMap<std::path::PathBuf, (VolumeId, Capability, bool)>,
}

#[derive(Clone)]
pub(crate) struct Stored<T> {
    pub(crate) name: String,
    pub(crate) existing: Existing<T>,
}

impl Memory {
    pub(crate) fn new() -> Arc<Self> {
        let deletes = Semaphore::new(Semaphore::MAX_PERMITS);
        Arc::new(Self { state: Mutex::default(), deletes })
    }

    /// A driver whose snapshots have a topology.
    pub(crate) fn with_places_of_snapshots() -> Arc<Self> {
        let memory = Self::new();
        memory.state().snapshot_places = place();
        memory
    }

    pub(crate) fn plugin(self: &Arc<Self>) -> PluginBuilder {
        Plugin::builder("whole.csi.example.com", "1.0.0")
            .volumes(self.clone())
            .attachments(self.clone())
            .volume_list(self.clone())
            .volume_lookup(self.clone())
            .capacity(self.clone())
            .expansion(self.clone())
            .modification(self.clone())
            .volume_health(self.clone())
            .snapshots(self.clone())
            .snapshot_list(self.clone())
            .snapshot_lookup(self.clone())
            .group_snapshots(self.clone())
            .node(self.clone())
            .staging(self.clone())
            .stats(self.clone())
            .node_expansion(self.clone())
            .node_volume_health(self.clone())
            .storage_health(self.clone())
            .topology()
            .single_node_multi_writer()
    }

    pub(crate) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }
}

impl State {
    pub(crate) fn id(&mut self, kind: &str) -> String {
        self.made += 1;
        format!("{kind}-{:06}", self.made)
    }

    pub(crate) fn size(&self, volume: &VolumeId) -> Option<u64> {
        self.volumes.get(volume).map(|it| it.existing.object.capacity)
    }

    fn resize(&mut self, volume: &VolumeId, size: u64) {
        self.volumes.get_mut(volume).unwrap().existing.object.capacity = size;
    }

    pub(crate) fn cut(
        &mut self,
        source: &VolumeId,
        group: Option<GroupSnapshotId>,
    ) -> Option<Snapshot> {
        let size = self.size(source)?;
        let id = SnapshotId::from(self.id("snap"));
        let (source, created) = (source.clone(), SystemTime::now());
        let topology = self.snapshot_places.clone();
        Some(Snapshot { id, source, size, created, ready: true, group, topology })
    }

    fn entry(&self, volume: &Volume) -> VolumeEntry {
        let nodes = self.attached.keys().filter(|(id, _)| *id == volume.id);
        let condition = Condition { abnormal: false, message: "fine".to_owned() };
        VolumeEntry {
            volume: volume.clone(),
            published_nodes: nodes.map(|(_, node)| node.clone()).collect(),
            condition: Some(condition),
        }
    }
}

pub(crate) fn place() -> Vec<Topology> {
    vec![Topology::new("topology.whole.example.com/node", NODE)]
}

fn check_mutable(parameters: &Parameters) -> Result<(), Failure> {
    match parameters.keys().find(|key| *key != "tier") {
        Some(key) => Err(Failure::invalid(format!("mutable_parameters.{key}"), "tier only")),
        None => Ok(()),
    }
}

pub(crate) fn named<I, T: Clone>(
    stored: &BTreeMap<I, Stored<T>>,
    name: &str,
) -> Option<Existing<T>> {
    stored.values().find(|it| it.name == name).map(|it| it.existing.clone())
}

pub(crate) fn after<'a, I: Ord, T>(
    stored: &'a BTreeMap<I, Stored<T>>,
    after: Option<&'a I>,
) -> impl Iterator<Item = &'a T> {
    let later = stored.iter().filter(move |(id, _)| after.is_none_or(|after| *id > after));
    later.map(|(_, it)| &it.existing.object)
}

#[async_trait]
impl Volumes for Memory {
    fn sources(&self) -> Sources {
        Sources { snapshot: true, volume: true }
    }

    async fn existing(&self, name: &str) -> Result<Option<Existing<Volume>>, Failure> {
        Ok(named(&self.state().volumes, name))
    }

    async fn create(&self, request: CreateVolume) -> Result<Volume, CreateVolumeError> {
        check_mutable(&request.mutable_parameters)?;
        let mut state = self.state();
        let source = match &request.source {
            None => Some(1),
            Some(ContentSource::Volume(id)) => state.size(id),
            Some(ContentSource::Snapshot(id)) => {
                state.snapshots.get(id).map(|it| it.existing.object.size)
            }
        };
        let source = source.ok_or_else(|| CreateVolumeError::SourceNotFound("no source".into()))?;
        let capacity = request.capacity.fit_source(1, source, POOL)?;
        if !request.topology.is_met_by(&place()) {
            return Err(CreateVolumeError::Exhausted("only this node has room".into()));
        }
        let volume = Volume { topology: place(), ..Volume::new(state.id("vol"), capacity) };
        let existing = Existing { fingerprint: request.fingerprint, object: volume.clone() };
        state.volumes.insert(volume.id.clone(), Stored { name: request.name, existing });
        Ok(volume)
    }

    async fn delete(&self, request: DeleteVolume) -> Result<(), DeleteVolumeError> {
        let _permit = self.deletes.acquire().await.map_err(Failure::internal)?;
        assert_ne!(request.volume.as_str(), "panic", "the driver has a bug");
        let mut state = self.state();
        if state.attached.keys().any(|(id, _)| *id == request.volume) {
            return Err(DeleteVolumeError::InUse(format!("{} is attached", request.volume)));
        }
        state.volumes.remove(&request.volume);
        Ok(())
    }

    async fn validate(
        &self,
        request: ValidateVolumeCapabilities,
    ) -> Result<Validation, ValidateVolumeCapabilitiesError> {
        match self.state().size(&request.volume) {
            Some(_) => Ok(Validation::Confirmed),
            None => Err(ValidateVolumeCapabilitiesError::NotFound(String::new())),
        }
    }
}

#[async_trait]
impl Attachments for Memory {
    fn honors_read_only(&self) -> bool {
        true
    }

    async fn publish(
        &self,
        request: ControllerPublishVolume,
    ) -> Result<Parameters, ControllerPublishVolumeError> {
        use ControllerPublishVolumeError::{
            Incompatible, LimitReached, NodeNotFound, PublishedElsewhere, VolumeNotFound,
        };
        let mut state = self.state();
        let (volume, node) = (request.volume, request.node);
        if state.size(&volume).is_none() {
            return Err(VolumeNotFound(volume.into()));
        }
        if node.as_str() != NODE {
            return Err(NodeNotFound(node.into()));
        }
        let wanted = (request.capability, request.read_only);
        match state.attached.get(&(volume.clone(), node.clone())) {
            Some(held) if *held == wanted => return Ok(Parameters::new()),
            Some(_) => return Err(Incompatible("attached in another way".into())),
            None => {}
        }
        if state.attached.keys().any(|(id, _)| *id == volume) && !wanted.0.mode.is_multi_node() {
            return Err(PublishedElsewhere(NODE.into()));
        }
        if state.attached.len() as u64 >= MAX_VOLUMES {
            return Err(LimitReached(format!("{MAX_VOLUMES} are attached")));
        }
        state.attached.insert((volume, node), wanted);
        Ok(Parameters::new())
    }

    async fn unpublish(
        &self,
        request: ControllerUnpublishVolume,
    ) -> Result<(), ControllerUnpublishVolumeError> {
        let other = |node: &NodeId| request.node.as_ref().is_some_and(|wanted| wanted != node);
        self.state().attached.retain(|(id, node), _| *id != request.volume || other(node));
        Ok(())
    }
}

#[async_trait]
impl VolumeList for Memory {
    fn shows_published_nodes(&self) -> bool {
        true
    }

    fn shows_condition(&self) -> bool {
        true
    }

    async fn list(
        &self,
        last: Option<VolumeId>,
        limit: usize,
    ) -> Result<Vec<VolumeEntry>, Failure> {
        let state = self.state();
        let page = after(&state.volumes, last.as_ref()).take(limit);
        Ok(page.map(|volume| state.entry(volume)).collect())
    }
}

#[async_trait]
impl VolumeLookup for Memory {
    async fn get(&self, volume: VolumeId) -> Result<VolumeEntry, ControllerGetVolumeError> {
        let state = self.state();
        let stored = state.volumes.get(&volume);
        let absent = || ControllerGetVolumeError::NotFound(volume.to_string());
        stored.map(|it| state.entry(&it.existing.object)).ok_or_else(absent)
    }
}

#[async_trait]
impl CapacityReport for Memory {
    async fn available(&self, _: GetCapacity) -> Result<AvailableCapacity, Failure> {
        let maximum_volume_size = Some(POOL);
        Ok(AvailableCapacity { available: POOL, maximum_volume_size, minimum_volume_size: Some(1) })
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
        let mut state = self.state();
        let absent = || ControllerExpandVolumeError::NotFound(request.volume.to_string());
        let now = state.size(&request.volume).ok_or_else(absent)?;
        let capacity = request.capacity.fit(1, now, POOL)?;
        state.resize(&request.volume, capacity);
        Ok(Expanded { capacity, node_expansion_required: true })
    }
}

#[async_trait]
impl Modification for Memory {
    async fn modify(
        &self,
        request: ControllerModifyVolume,
    ) -> Result<(), ControllerModifyVolumeError> {
        if self.state().size(&request.volume).is_none() {
            return Err(ControllerModifyVolumeError::NotFound(request.volume.into()));
        }
        Ok(check_mutable(&request.parameters)?)
    }
}

#[async_trait]
impl VolumeHealth for Memory {
    async fn get(
        &self,
        volume: VolumeId,
    ) -> Result<Vec<HealthProblem>, ControllerGetVolumeHealthError> {
        match self.state().size(&volume) {
            Some(_) => Ok(Vec::new()),
            None => Err(ControllerGetVolumeHealthError::NotFound(volume.into())),
        }
    }

    async fn list(&self, _: Option<VolumeId>, _: usize) -> Result<Vec<UnhealthyVolume>, Failure> {
        Ok(Vec::new())
    }
}
