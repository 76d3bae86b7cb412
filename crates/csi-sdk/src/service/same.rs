//! Whether a repeated request asks for what there is.

use tonic::Status;

use crate::driver::Existing;
use crate::fingerprint::Part;
use crate::request::{CreateSnapshot, CreateVolume, CreateVolumeGroupSnapshot};
use crate::types::{GroupSnapshot, Snapshot, Volume};

/// The volume, if the request could have made it. Its size may be any that the request allows, and its place any that
/// the request admits: both are chosen by the driver, and orchestrators change their mind about them.
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

/// The snapshot, if the request could have cut it.
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

/// The group, if the request could have cut it.
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
        "name: {what} {id} has it and was made for another request, which differs in {part}"
    )))
}
