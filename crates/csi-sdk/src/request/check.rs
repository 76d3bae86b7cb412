//! Checks of fields, one function per kind. A refusal names the field and the expected value.

use std::path::{Component, Path, PathBuf};

use tonic::Status;
use wharf_facts::context::PREFIX;
use wharf_proto::{csi, csi::volume_capability::AccessType};

use crate::{
    error::Failure,
    types::{
        Access, AccessMode, Capability, CapacityRange, ContentSource, Context, GroupSnapshotId,
        NodeId, Parameters, Secrets, SnapshotFilter, SnapshotId, Topology, TopologyRequirement,
        VolumeId,
    },
};

/// Maximum length of a text, unless another limit applies.
const MAX_TEXT: usize = 128;
/// Maximum length of a node ID.
const MAX_NODE_ID: usize = 256;
/// Maximum total length of a map's keys and values, and of all mount flags.
const MAX_MAP: usize = 4 << 10;
/// Maximum total length of secrets. The protocol's 4 KiB is too small for certificates; this is the
/// maximum size of a Kubernetes Secret.
const MAX_SECRETS: usize = 1 << 20;
/// PATH_MAX without its terminator.
const MAX_PATH: usize = 4095;

pub(crate) fn volume_id(value: String) -> Result<VolumeId, Status> {
    required("volume_id", value, MAX_TEXT).map(Into::into)
}

pub(crate) fn snapshot_id(value: String) -> Result<SnapshotId, Status> {
    required("snapshot_id", value, MAX_TEXT).map(Into::into)
}

pub(super) fn group_snapshot_id(value: String) -> Result<GroupSnapshotId, Status> {
    required("group_snapshot_id", value, MAX_TEXT).map(Into::into)
}

pub(super) fn node_id(value: String) -> Result<NodeId, Status> {
    required("node_id", value, MAX_NODE_ID).map(Into::into)
}

pub(super) fn optional_node_id(value: String) -> Result<Option<NodeId>, Status> {
    if value.is_empty() { Ok(None) } else { node_id(value).map(Some) }
}

/// The filters of ListSnapshots, each of which may be empty.
pub(crate) fn snapshot_filter(snapshot: String, source: String) -> Result<SnapshotFilter, Status> {
    let id = |field, value: String| Ok::<_, Status>(Some(optional(field, value)?));
    Ok(SnapshotFilter {
        snapshot: id("snapshot_id", snapshot)?.filter(|id| !id.is_empty()).map(Into::into),
        source: id("source_volume_id", source)?.filter(|id| !id.is_empty()).map(Into::into),
    })
}

/// Checks a required text of the usual length.
pub(super) fn text(field: &str, value: String) -> Result<String, Status> {
    required(field, value, MAX_TEXT)
}

/// Checks a list of IDs: each may appear once.
pub(super) fn ids<T: From<String> + PartialEq>(
    field: &str,
    values: Vec<String>,
) -> Result<Vec<T>, Status> {
    let mut ids: Vec<T> = Vec::with_capacity(values.len());
    for (index, value) in values.into_iter().enumerate() {
        let field = format!("{field}[{index}]");
        let id = T::from(required(&field, value, MAX_TEXT)?);
        if ids.contains(&id) {
            return Err(refused(&field, "an ID that is not in the list already"));
        }
        ids.push(id);
    }
    Ok(ids)
}

pub(super) fn map(field: &str, map: Parameters) -> Result<Parameters, Status> {
    within(field, length(&map), MAX_MAP)?;
    Ok(map)
}

pub(super) fn secrets(secrets: Parameters) -> Result<Secrets, Status> {
    within("secrets", length(&secrets), MAX_SECRETS)?;
    Ok(secrets.into())
}

/// Checks a volume context. Entries that Kubernetes adds, such as service account tokens, do not
/// count against the limit.
pub(super) fn context(context: Parameters) -> Result<Context, Status> {
    let own = context.iter().filter(|(key, _)| !key.starts_with(PREFIX));
    within("volume_context", own.map(|(key, value)| key.len() + value.len()).sum(), MAX_MAP)?;
    Ok(context.into())
}

/// Checks a path that the driver will create, mount or remove.
pub(super) fn path(field: &str, value: String) -> Result<PathBuf, Status> {
    let path = plain_path(field, value)?;
    if path.is_absolute() { Ok(path) } else { Err(refused(field, "an absolute path")) }
}

pub(super) fn optional_path(field: &str, value: String) -> Result<Option<PathBuf>, Status> {
    if value.is_empty() { Ok(None) } else { path(field, value).map(Some) }
}

/// Checks a path at which a volume is expected. A relative path is NOT_FOUND: no volume is at one.
pub(super) fn volume_path(field: &str, value: String) -> Result<PathBuf, Status> {
    let path = plain_path(field, value)?;
    if path.is_absolute() {
        return Ok(path);
    }
    Err(Status::not_found(format!("{field}: no volume is at {path:?}, which is not absolute")))
}

/// Checks a capacity range. An absent one has neither a minimum nor a limit.
pub(super) fn capacity(range: Option<csi::CapacityRange>) -> Result<CapacityRange, Status> {
    let Some(range) = range else { return Ok(CapacityRange::default()) };
    let bytes = |field: &str, value: i64| {
        u64::try_from(value).map_err(|_| refused(field, &format!("0 or more bytes, not {value}")))
    };
    let required = bytes("capacity_range.required_bytes", range.required_bytes)?;
    let limit = bytes("capacity_range.limit_bytes", range.limit_bytes)?;
    match (required, limit) {
        (0, 0) => Err(refused("capacity_range", "required_bytes or limit_bytes to be set")),
        (_, 0) => Ok(CapacityRange { required, limit: None }),
        _ if limit < required => {
            let expected = format!("at least required_bytes, which is {required}, not {limit}");
            Err(refused("capacity_range.limit_bytes", &expected))
        }
        _ => Ok(CapacityRange { required, limit: Some(limit) }),
    }
}

pub(super) fn required_capacity(
    range: Option<csi::CapacityRange>,
) -> Result<CapacityRange, Status> {
    let range = range.ok_or_else(|| refused("capacity_range", "a range of bytes"))?;
    capacity(Some(range))
}

pub(super) fn capability(
    field: &str,
    capability: Option<csi::VolumeCapability>,
) -> Result<Capability, Status> {
    let capability = capability.ok_or_else(|| refused(field, "a way to use the volume"))?;
    let access = match capability.access_type {
        None => return Err(refused(&format!("{field}.access_type"), "block or mount")),
        Some(AccessType::Block(_)) => Access::Block,
        Some(AccessType::Mount(mount)) => {
            let flags = format!("{field}.mount.mount_flags");
            within(&flags, mount.mount_flags.iter().map(String::len).sum(), MAX_MAP)?;
            for flag in &mount.mount_flags {
                printable(&flags, flag)?;
            }
            let fs_type = optional(&format!("{field}.mount.fs_type"), mount.fs_type)?;
            let group = format!("{field}.mount.volume_mount_group");
            let group = Some(optional(&group, mount.volume_mount_group)?);
            let group = group.filter(|group| !group.is_empty());
            Access::Mount { fs_type, flags: mount.mount_flags, group }
        }
    };
    let mode = capability.access_mode.map(|mode| mode.mode()).unwrap_or_default();
    let mode = AccessMode::try_from(mode)
        .map_err(|()| refused(&format!("{field}.access_mode.mode"), "one of the access modes"))?;
    Ok(Capability { access, mode })
}

pub(super) fn optional_capability(
    capability: Option<csi::VolumeCapability>,
) -> Result<Option<Capability>, Status> {
    capability.map(|given| self::capability("volume_capability", Some(given))).transpose()
}

/// Checks a list of capabilities, which may be empty.
pub(super) fn capabilities(
    capabilities: Vec<csi::VolumeCapability>,
) -> Result<Vec<Capability>, Status> {
    let one = |(index, given)| capability(&format!("volume_capabilities[{index}]"), Some(given));
    capabilities.into_iter().enumerate().map(one).collect()
}

pub(super) fn required_capabilities(
    capabilities: Vec<csi::VolumeCapability>,
) -> Result<Vec<Capability>, Status> {
    if capabilities.is_empty() {
        return Err(refused("volume_capabilities", "at least one way to use the volume"));
    }
    self::capabilities(capabilities)
}

pub(super) fn source(
    source: Option<csi::VolumeContentSource>,
) -> Result<Option<ContentSource>, Status> {
    use csi::volume_content_source::Type;
    let Some(source) = source else { return Ok(None) };
    let field = "volume_content_source";
    Ok(Some(match source.r#type {
        None => return Err(refused(field, "a snapshot or a volume")),
        Some(Type::Snapshot(snapshot)) => {
            let id = text(&format!("{field}.snapshot.snapshot_id"), snapshot.snapshot_id)?;
            ContentSource::Snapshot(id.into())
        }
        Some(Type::Volume(volume)) => {
            let id = text(&format!("{field}.volume.volume_id"), volume.volume_id)?;
            ContentSource::Volume(id.into())
        }
    }))
}

pub(super) fn topology(
    requirement: Option<csi::TopologyRequirement>,
) -> Result<TopologyRequirement, Status> {
    let requirement = requirement.unwrap_or_default();
    let places = |list: &str, places: Vec<csi::Topology>| {
        let field = format!("accessibility_requirements.{list}");
        let place = |place: csi::Topology| map(&field, place.segments).map(Topology);
        places.into_iter().map(place).collect::<Result<Vec<_>, _>>()
    };
    Ok(TopologyRequirement {
        requisite: places("requisite", requirement.requisite)?,
        preferred: places("preferred", requirement.preferred)?,
    })
}

pub(super) fn refused(field: &str, expected: &str) -> Status {
    Failure::invalid(field, expected).into()
}

fn required(field: &str, value: String, max: usize) -> Result<String, Status> {
    if value.is_empty() {
        return Err(refused(field, &format!("1 to {max} bytes, not an empty text")));
    }
    within(field, value.len(), max)?;
    printable(field, &value)?;
    Ok(value)
}

fn optional(field: &str, value: String) -> Result<String, Status> {
    if value.is_empty() { Ok(value) } else { required(field, value, MAX_TEXT) }
}

fn within(field: &str, length: usize, max: usize) -> Result<(), Status> {
    if length <= max {
        return Ok(());
    }
    Err(refused(field, &format!("at most {max} bytes, not {length}")))
}

fn printable(field: &str, value: &str) -> Result<(), Status> {
    if value.chars().any(|c| c.is_control() && !matches!(c, '\t' | '\n' | '\r')) {
        return Err(refused(field, "no control characters but tab, LF and CR"));
    }
    Ok(())
}

fn plain_path(field: &str, value: String) -> Result<PathBuf, Status> {
    if value.is_empty() {
        return Err(refused(field, "a path, not an empty text"));
    }
    within(field, value.len(), MAX_PATH)?;
    if value.contains('\0') {
        return Err(refused(field, "a path without NUL"));
    }
    if Path::new(&value).components().any(|part| part == Component::ParentDir) {
        return Err(refused(field, "a path without \"..\""));
    }
    Ok(PathBuf::from(value))
}

fn length(map: &Parameters) -> usize {
    map.iter().map(|(key, value)| key.len() + value.len()).sum()
}
