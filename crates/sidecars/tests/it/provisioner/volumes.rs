//! The volumes of the scripted driver.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Mutex,
};

use tokio::sync::watch;
use tonic::Status;
use wharf_proto::csi::{
    CreateVolumeRequest, DeleteVolumeRequest, GetCapacityRequest, GetCapacityResponse, Topology,
    Volume,
};

use crate::journal::DEADLINE;

#[derive(Default)]
pub(crate) struct Volumes {
    asked: Mutex<Vec<CreateVolumeRequest>>,
    /// By the driver's ID, which is the requested name.
    made: Mutex<BTreeMap<String, Volume>>,
    deleted: Mutex<Vec<DeleteVolumeRequest>>,
    changes: Mutex<VecDeque<fn(&mut Volume)>>,
    place: Mutex<Option<Topology>>,
    capacity: Mutex<GetCapacityResponse>,
    capacity_errors: Mutex<VecDeque<Status>>,
    capacities_asked: Mutex<Vec<GetCapacityRequest>>,
    lists: watch::Sender<usize>,
    max_entries: Mutex<Vec<i32>>,
    list_errors: Mutex<VecDeque<Status>>,
}

impl Volumes {
    /// Makes the driver return volumes with one segment.
    pub(crate) fn stand_at(&self, key: &str, value: &str) {
        let segments = [(key.to_owned(), value.to_owned())].into();
        *self.place.lock().unwrap() = Some(Topology { segments });
    }

    pub(crate) fn place(&self) -> Option<Topology> {
        self.place.lock().unwrap().clone()
    }

    /// Edits the next volume before the driver returns it.
    pub(crate) fn change_next(&self, change: fn(&mut Volume)) {
        self.changes.lock().unwrap().push_back(change);
    }

    /// The last CreateVolume request.
    pub(crate) fn last_asked(&self) -> CreateVolumeRequest {
        self.asked.lock().unwrap().last().unwrap().clone()
    }

    /// All CreateVolume requests, in order.
    pub(crate) fn all_asked(&self) -> Vec<CreateVolumeRequest> {
        self.asked.lock().unwrap().clone()
    }

    /// The DeleteVolume request of a volume.
    pub(crate) fn deletion_of(&self, volume: &str) -> DeleteVolumeRequest {
        let deleted = self.deleted.lock().unwrap();
        deleted.iter().find(|it| it.volume_id == volume).unwrap().clone()
    }

    pub(crate) fn made(&self) -> Vec<String> {
        self.made.lock().unwrap().keys().cloned().collect()
    }

    /// Adds a volume without a call.
    pub(crate) fn put(&self, volume_id: &str) {
        let volume = Volume { volume_id: volume_id.to_owned(), ..Volume::default() };
        self.made.lock().unwrap().insert(volume_id.to_owned(), volume);
    }

    pub(crate) fn set_capacity(&self, bytes: i64) {
        self.capacity.lock().unwrap().available_capacity = bytes;
    }

    /// Sets the maximum size of a volume.
    pub(crate) fn set_largest(&self, bytes: Option<i64>) {
        self.capacity.lock().unwrap().maximum_volume_size = bytes;
    }

    /// Answers the next GetCapacity like this.
    pub(crate) fn refuse_capacity(&self, status: Status) {
        self.capacity_errors.lock().unwrap().push_back(status);
    }

    pub(crate) fn capacities_asked(&self) -> Vec<GetCapacityRequest> {
        self.capacities_asked.lock().unwrap().clone()
    }

    /// Waits for this number of ListVolumes calls.
    pub(crate) async fn listed_times(&self, count: usize) {
        let mut lists = self.lists.subscribe();
        let listed = lists.wait_for(|lists| *lists >= count);
        tokio::time::timeout(DEADLINE, listed).await.unwrap().unwrap();
    }

    /// The number of ListVolumes calls so far.
    pub(crate) fn lists(&self) -> usize {
        *self.lists.borrow()
    }

    /// Answers the next ListVolumes like this.
    pub(crate) fn refuse_list(&self, status: Status) {
        self.list_errors.lock().unwrap().push_back(status);
    }

    /// The page sizes of the ListVolumes calls.
    pub(crate) fn max_entries_asked(&self) -> Vec<i32> {
        self.max_entries.lock().unwrap().clone()
    }

    pub(crate) fn listed(&self, max_entries: i32) -> Result<(), Status> {
        self.max_entries.lock().unwrap().push(max_entries);
        self.lists.send_modify(|lists| *lists += 1);
        self.list_errors.lock().unwrap().pop_front().map_or(Ok(()), Err)
    }

    pub(crate) fn asked(&self, request: &CreateVolumeRequest) {
        self.asked.lock().unwrap().push(request.clone());
    }

    pub(crate) fn make(&self, request: CreateVolumeRequest) -> Volume {
        let mut volume = Volume {
            volume_id: request.name,
            capacity_bytes: request.capacity_range.map_or(0, |range| range.required_bytes),
            content_source: request.volume_content_source,
            accessible_topology: self.place().into_iter().collect(),
            volume_context: [("made".to_owned(), "yes".to_owned())].into(),
        };
        if let Some(change) = self.changes.lock().unwrap().pop_front() {
            change(&mut volume);
        }
        self.made.lock().unwrap().insert(volume.volume_id.clone(), volume.clone());
        volume
    }

    pub(crate) fn delete(&self, request: DeleteVolumeRequest) {
        self.made.lock().unwrap().remove(&request.volume_id);
        self.deleted.lock().unwrap().push(request);
    }

    pub(crate) fn capacity(
        &self,
        request: GetCapacityRequest,
    ) -> Result<GetCapacityResponse, Status> {
        self.capacities_asked.lock().unwrap().push(request);
        match self.capacity_errors.lock().unwrap().pop_front() {
            Some(status) => Err(status),
            None => Ok(*self.capacity.lock().unwrap()),
        }
    }
}
