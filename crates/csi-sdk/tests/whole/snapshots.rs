//! The snapshot traits of the in-memory driver.

use std::time::SystemTime;

use wharf_csi_sdk::prelude::*;

use crate::driver::{Memory, Stored, after, named};

#[async_trait]
impl Snapshots for Memory {
    async fn existing(&self, name: &str) -> Result<Option<Existing<Snapshot>>, Failure> {
        Ok(named(&self.state().snapshots, name))
    }

    async fn create(&self, request: CreateSnapshot) -> Result<Snapshot, CreateSnapshotError> {
        let mut state = self.state();
        let absent = || CreateSnapshotError::SourceNotFound(request.source.to_string());
        let snapshot = state.cut(&request.source, None).ok_or_else(absent)?;
        let existing = Existing { fingerprint: request.fingerprint, object: snapshot.clone() };
        state.snapshots.insert(snapshot.id.clone(), Stored { name: request.name, existing });
        Ok(snapshot)
    }

    async fn delete(&self, request: DeleteSnapshot) -> Result<(), DeleteSnapshotError> {
        let mut state = self.state();
        let group = state.snapshots.get(&request.snapshot);
        if let Some(group) = group.and_then(|it| it.existing.object.group.as_ref()) {
            return Err(DeleteSnapshotError::GroupMember(format!("delete the group {group}")));
        }
        state.snapshots.remove(&request.snapshot);
        Ok(())
    }
}

#[async_trait]
impl SnapshotList for Memory {
    async fn list(
        &self,
        filter: SnapshotFilter,
        last: Option<SnapshotId>,
        limit: usize,
    ) -> Result<Vec<Snapshot>, Failure> {
        let state = self.state();
        let later = after(&state.snapshots, last.as_ref());
        Ok(later.filter(|it| filter.admits(it)).take(limit).cloned().collect())
    }
}

#[async_trait]
impl SnapshotLookup for Memory {
    async fn get(&self, snapshot: SnapshotId) -> Result<Snapshot, GetSnapshotError> {
        let state = self.state();
        let stored = state.snapshots.get(&snapshot);
        let absent = || GetSnapshotError::NotFound(snapshot.to_string());
        stored.map(|it| it.existing.object.clone()).ok_or_else(absent)
    }
}

#[async_trait]
impl GroupSnapshots for Memory {
    async fn existing(&self, name: &str) -> Result<Option<Existing<GroupSnapshot>>, Failure> {
        Ok(named(&self.state().groups, name))
    }

    async fn create(
        &self,
        request: CreateVolumeGroupSnapshot,
    ) -> Result<GroupSnapshot, CreateVolumeGroupSnapshotError> {
        let mut state = self.state();
        let id = GroupSnapshotId::from(state.id("group"));
        let cut = request.sources.iter().map(|source| state.cut(source, Some(id.clone())));
        let absent = || CreateVolumeGroupSnapshotError::SourceNotFound("a source".into());
        let snapshots = cut.collect::<Option<Vec<_>>>().ok_or_else(absent)?;
        for snapshot in &snapshots {
            let (name, fingerprint) = (format!("{id}/{}", snapshot.id), Fingerprint::default());
            let existing = Existing { fingerprint, object: snapshot.clone() };
            state.snapshots.insert(snapshot.id.clone(), Stored { name, existing });
        }
        let group = GroupSnapshot { id: id.clone(), created: SystemTime::now(), snapshots };
        let existing = Existing { fingerprint: request.fingerprint, object: group.clone() };
        state.groups.insert(id, Stored { name: request.name, existing });
        Ok(group)
    }

    async fn delete(
        &self,
        request: DeleteVolumeGroupSnapshot,
    ) -> Result<(), DeleteVolumeGroupSnapshotError> {
        let mut state = self.state();
        state.groups.remove(&request.group);
        let member = |snapshot: &Snapshot| snapshot.group.as_ref() == Some(&request.group);
        state.snapshots.retain(|_, it| !member(&it.existing.object));
        Ok(())
    }

    async fn get(
        &self,
        request: GetVolumeGroupSnapshot,
    ) -> Result<GroupSnapshot, GetVolumeGroupSnapshotError> {
        let state = self.state();
        let stored = state.groups.get(&request.group);
        let absent = || GetVolumeGroupSnapshotError::NotFound(request.group.to_string());
        stored.map(|it| it.existing.object.clone()).ok_or_else(absent)
    }
}
