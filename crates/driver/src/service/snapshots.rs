//! The snapshot RPCs.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use wharf_csi_sdk::{
    driver::{Existing, GroupSnapshots, SnapshotList, SnapshotLookup, Snapshots},
    error::{
        CreateSnapshotError, CreateVolumeGroupSnapshotError, DeleteSnapshotError,
        DeleteVolumeGroupSnapshotError, Failure, GetSnapshotError, GetVolumeGroupSnapshotError,
    },
    request::{
        CreateSnapshot, CreateVolumeGroupSnapshot, DeleteSnapshot, DeleteVolumeGroupSnapshot,
        GetVolumeGroupSnapshot,
    },
    types::{GroupSnapshot, Snapshot, SnapshotFilter, SnapshotId},
};
use wharf_facts::context;

use super::Driver;
use crate::{
    error::Error,
    pool::{NewGroup, NewSnapshot},
    pools::ServedPool,
    record::{Group, Phase},
    store::State,
};

#[async_trait]
impl Snapshots for Driver {
    async fn existing(&self, name: &str) -> Result<Option<Existing<Snapshot>>, Failure> {
        let snapshot = self.pools.served().into_iter().find_map(|served| {
            let named = served.pool.store().read(|state| state.snapshots.named(name).cloned());
            named.filter(|snapshot| snapshot.phase == Phase::Ready)
        });
        Ok(snapshot.map(|snapshot| Existing {
            fingerprint: snapshot.fingerprint.clone(),
            object: self.show_snapshot(&snapshot),
        }))
    }

    async fn create(&self, request: CreateSnapshot) -> Result<Snapshot, CreateSnapshotError> {
        refuse_unknown(request.parameters.keys())?;
        if !request.topology.is_met_by(&[self.identity.topology()]) {
            let text = format!(
                "the pool is on node {}, which no requisite topology names",
                self.identity.node
            );
            return Err(CreateSnapshotError::Exhausted(text));
        }
        let served = self.pools.of_volume(&request.source)?;
        self.refuse_taken_snapshot(&served, |state| {
            state.snapshots.named(&request.name).is_some()
        })?;
        let new = NewSnapshot {
            name: request.name,
            fingerprint: request.fingerprint,
            volume: request.source.into(),
        };
        // Leave the topology out if the request has one: csi-sanity 5.6.0 considers equal
        // topologies different.
        let asked_for = !request.topology.requisite.is_empty();
        let snapshot = self.run_change(&served, move |pool, _| pool.create_snapshot(new)).await?;
        let mut shown = self.show_snapshot(&snapshot);
        if asked_for {
            shown.topology.clear();
        }
        Ok(shown)
    }

    async fn delete(&self, request: DeleteSnapshot) -> Result<(), DeleteSnapshotError> {
        let served = match self.pools.of_snapshot(&request.snapshot) {
            Err(Error::NotFound { .. }) => return Ok(()),
            served => served?,
        };
        Ok(self.run_change(&served, move |pool, _| pool.delete_snapshot(&request.snapshot)).await?)
    }
}

#[async_trait]
impl SnapshotList for Driver {
    async fn list(
        &self,
        filter: SnapshotFilter,
        after: Option<SnapshotId>,
        limit: usize,
    ) -> Result<Vec<Snapshot>, Failure> {
        if let Some(id) = &filter.snapshot {
            // An empty list means that the snapshot does not exist, so check that its pool is
            // served.
            self.pools.of_snapshot(id).map(drop).or_else(Error::unless_missing)?;
        }
        let mut listed: Vec<Snapshot> = Vec::new();
        for served in self.pools.served() {
            served.pool.store().read(|state| {
                let snapshots = state.snapshots.after(after.as_deref());
                let ready = snapshots.filter(|snapshot| snapshot.phase == Phase::Ready);
                let shown = ready.map(|snapshot| self.show_snapshot(snapshot));
                listed.extend(shown.filter(|snapshot| filter.admits(snapshot)).take(limit));
            });
        }
        listed.sort_by(|one, other| one.id.cmp(&other.id));
        listed.truncate(limit);
        Ok(listed)
    }
}

#[async_trait]
impl SnapshotLookup for Driver {
    async fn get(&self, snapshot: SnapshotId) -> Result<Snapshot, GetSnapshotError> {
        let found = self.pools.of_snapshot(&snapshot)?.pool.snapshot(&snapshot)?;
        match found.phase {
            Phase::Ready => Ok(self.show_snapshot(&found)),
            _ => Err(Error::no_snapshot(&snapshot).into()),
        }
    }
}

#[async_trait]
impl GroupSnapshots for Driver {
    async fn existing(&self, name: &str) -> Result<Option<Existing<GroupSnapshot>>, Failure> {
        let group = self.pools.served().into_iter().find_map(|served| {
            let named = served.pool.store().read(|state| state.groups.named(name).cloned());
            // Calling create for an incomplete group returns an error with the remedy.
            let is_made = |group: &Arc<Group>| group.phase == Phase::Ready && group.is_whole();
            named.filter(is_made).map(|group| (served, group))
        });
        Ok(group.map(|(served, group)| Existing {
            fingerprint: group.fingerprint.clone(),
            object: self.show_group(&served.pool, &group),
        }))
    }

    async fn create(
        &self,
        request: CreateVolumeGroupSnapshot,
    ) -> Result<GroupSnapshot, CreateVolumeGroupSnapshotError> {
        refuse_unknown(request.parameters.keys())?;
        let new = NewGroup {
            name: request.name,
            fingerprint: request.fingerprint,
            volumes: request.sources.into_iter().map(String::from).collect(),
        };
        let served = self.common_pool(&new.volumes)?;
        self.refuse_taken_snapshot(&served, |state| state.groups.named(&new.name).is_some())?;
        let group = self.run_change(&served, move |pool, _| pool.create_group(new)).await?;
        Ok(self.show_group(&served.pool, &group))
    }

    async fn delete(
        &self,
        request: DeleteVolumeGroupSnapshot,
    ) -> Result<(), DeleteVolumeGroupSnapshotError> {
        let served = match self.pools.of_group(&request.group) {
            Err(Error::NotFound { .. }) => return Ok(()),
            served => served?,
        };
        if let Some(group) = group(&served, &request.group) {
            compare(&group, &request.snapshots)
                .map_err(DeleteVolumeGroupSnapshotError::MembersDiffer)?;
        }
        Ok(self.run_change(&served, move |pool, _| pool.delete_group(&request.group)).await?)
    }

    async fn get(
        &self,
        request: GetVolumeGroupSnapshot,
    ) -> Result<GroupSnapshot, GetVolumeGroupSnapshotError> {
        let served = self.pools.of_group(&request.group)?;
        let group = group(&served, &request.group).filter(|group| group.phase == Phase::Ready);
        let group = group.ok_or_else(|| Error::no_group(&request.group))?;
        // Nothing is changed, so the caller need not know the members.
        if !request.snapshots.is_empty() {
            compare(&group, &request.snapshots)
                .map_err(GetVolumeGroupSnapshotError::MembersDiffer)?;
        }
        let shown = self.show_group(&served.pool, &group);
        if shown.snapshots.len() < group.snapshots.len() {
            // The group was deleted since it was looked up.
            return Err(Error::no_group(&group.id).into());
        }
        Ok(shown)
    }
}

impl Driver {
    /// Returns the common pool of these volumes.
    ///
    /// # Errors
    /// If they are on different pools: the records of a group are stored in one pool.
    fn common_pool(&self, volumes: &[String]) -> Result<Arc<ServedPool>, Error> {
        let mut common: Option<Arc<ServedPool>> = None;
        for volume in volumes {
            let served = self.pools.of_volume(volume)?;
            match &common {
                Some(first) if first.name != served.name => {
                    return Err(Error::Precondition(format!(
                        "volume {volume} is on pool {}, and others of the group are on pool {}: a group is cut from volumes of \
                         one pool",
                        served.name, first.name
                    )));
                }
                _ => common = Some(served),
            }
        }
        common.ok_or_else(|| Error::invalid("source_volume_ids", "at least one volume"))
    }

    /// Refuses a name that exists on another pool.
    fn refuse_taken_snapshot(
        &self,
        served: &ServedPool,
        named: impl Fn(&State) -> bool,
    ) -> Result<(), Error> {
        match self.pools.where_state(named).filter(|other| other.name != served.name) {
            None => Ok(()),
            Some(other) => Err(Error::Exists(format!(
                "the name is taken on pool {}, by a copy of other volumes",
                other.name
            ))),
        }
    }
}

fn group(served: &ServedPool, id: &str) -> Option<Arc<Group>> {
    served.pool.store().read(|state| state.groups.get(id).cloned())
}

/// Compares the listed members with the group's: the SDK has locked the listed ones.
fn compare(group: &Group, given: &[SnapshotId]) -> Result<(), String> {
    let own: BTreeSet<&str> = group.snapshots.iter().map(String::as_str).collect();
    let given: BTreeSet<&str> = given.iter().map(SnapshotId::as_str).collect();
    if own == given {
        return Ok(());
    }
    Err(format!(
        "snapshot_ids: expected the members of group {}: {}",
        group.id,
        group.snapshots.join(", ")
    ))
}

fn refuse_unknown<'a>(mut keys: impl Iterator<Item = &'a String>) -> Result<(), Failure> {
    match keys.find(|key| !key.starts_with(context::PREFIX)) {
        Some(key) => {
            Err(Failure::invalid(format!("parameters.{key}"), "no parameters: snapshots have none"))
        }
        None => Ok(()),
    }
}
