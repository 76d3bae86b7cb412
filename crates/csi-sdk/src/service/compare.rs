//! Compares a repeated create request with the existing object.

use tonic::Status;

use crate::{
    driver::Existing,
    fingerprint::Part,
    request::{CreateSnapshot, CreateVolume, CreateVolumeGroupSnapshot},
    types::{GroupSnapshot, Snapshot, Volume},
};

/// Returns the volume if the request matches it. Any size and place within the request's limits
/// match: the driver chose them, and orchestrators change the limits between calls.
pub(super) fn volume(existing: Existing<Volume>, request: &CreateVolume) -> Result<Volume, Status> {
    let Existing { fingerprint, object: volume } = existing;
    let difference = fingerprint.difference_but_for(&request.fingerprint, |part| match part {
        Part::Capacity => request.capacity.contains(volume.capacity),
        Part::Topology => request.topology.is_met_by(&volume.topology),
        _ => false,
    });
    refuse(difference, "volume", &volume.id)?;
    Ok(volume)
}

/// Returns the snapshot if the request matches it.
pub(super) fn snapshot(
    existing: Existing<Snapshot>,
    request: &CreateSnapshot,
) -> Result<Snapshot, Status> {
    let Existing { fingerprint, object: snapshot } = existing;
    let difference = fingerprint.difference_but_for(&request.fingerprint, |part| match part {
        Part::Topology => request.topology.is_met_by(&snapshot.topology),
        _ => false,
    });
    refuse(difference, "snapshot", &snapshot.id)?;
    Ok(snapshot)
}

/// Returns the group if the request matches it.
pub(super) fn group(
    existing: Existing<GroupSnapshot>,
    request: &CreateVolumeGroupSnapshot,
) -> Result<GroupSnapshot, Status> {
    let Existing { fingerprint, object: group } = existing;
    refuse(fingerprint.difference(&request.fingerprint), "group snapshot", &group.id)?;
    Ok(group)
}

fn refuse(difference: Option<&str>, what: &str, id: &str) -> Result<(), Status> {
    let Some(part) = difference else { return Ok(()) };
    Err(Status::already_exists(format!(
        "name: {what} {id} has this name and was created by a request that differs in {part}"
    )))
}
