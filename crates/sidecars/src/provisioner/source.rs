//! The source of a volume, and whether it can be used.

use wharf_cluster::{
    PersistentVolume, PersistentVolumeClaim, VolumeSnapshot, VolumeSnapshotContent,
};
use wharf_facts::annotation::ALLOW_VOLUME_MODE_CHANGE;

use super::failure::ProvisionRefusal;

/// The kinds of sources that a driver can use.
pub(super) const SNAPSHOT: &str = "VolumeSnapshot";
pub(super) const CLAIM: &str = "PersistentVolumeClaim";
const SNAPSHOT_GROUP: &str = "snapshot.storage.k8s.io";

/// The source of a volume, by its name in the namespace of the claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DataSource<'a> {
    Snapshot(&'a str),
    Claim(&'a str),
    /// An object of a kind that an external populator fills volumes from.
    Populator(&'a str),
}

/// The use of a source: for a new volume, or for a repeated request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// The driver was not called for the volume before.
    New,
    /// The driver may be creating the volume. Its source is protected, and may be being deleted
    /// since.
    Begun,
}

/// Why a source cannot be used, or not yet.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SourceRefusal {
    #[error("error getting snapshot {0} from api server: {1}")]
    UnknownSnapshot(String, String),
    #[error("snapshot {0} is being deleted")]
    SnapshotDeleting(String),
    #[error("snapshot {0} not bound")]
    SnapshotUnbound(String),
    #[error("error getting snapshotcontent {content} for snapshot {snapshot}")]
    UnknownContent { content: String, snapshot: String },
    #[error("snapshotcontent {content} for snapshot {snapshot} is bound to a different snapshot")]
    OtherSnapshot { content: String, snapshot: String },
    #[error(
        "snapshotcontent {content} for snapshot {snapshot} is not handled by CSI driver of StorageClass {class}"
    )]
    OtherDriver { content: String, snapshot: String, class: String },
    #[error("snapshot {0} is not Ready")]
    NotReady(String),
    #[error("snapshot handle {0} is not available")]
    NoHandle(String),
    #[error(
        "requested volume size {asked} is less than the size {least} for the source snapshot {snapshot}"
    )]
    TooSmallForSnapshot { asked: i64, least: i64, snapshot: String },
    #[error(
        "requested volume {claim} modifies the mode of the source volume but does not have permission to do so. \
         {key} annotation is not present on snapshotcontent {content}",
        key = ALLOW_VOLUME_MODE_CHANGE
    )]
    ModeChange { claim: String, content: String },
    #[error(
        "requested volume {claim} modifies the mode of the source volume but does not have permission to do so. \
         {key} annotation of snapshotcontent {content} is {value:?}, expected \"true\"",
        key = ALLOW_VOLUME_MODE_CHANGE
    )]
    ModeChangeDenied { claim: String, content: String, value: String },
    #[error("error getting PVC {0} from api server: {1}")]
    UnknownClaim(String, String),
    #[error("the PVC DataSource {name} must have a status of Bound.  Got {phase:?}")]
    ClaimUnbound { name: String, phase: String },
    #[error("the PVC DataSource {0} is currently being deleted")]
    ClaimDeleting(String),
    #[error("the source PVC ({0}) storageclass cannot be empty")]
    SourceWithoutClass(String),
    #[error("the requested PVC ({0}) storageclass cannot be empty")]
    ClaimWithoutClass(String),
    #[error(
        "error, new PVC request must be greater than or equal in size to the specified PVC data source, requested \
         {asked} but source is {least}"
    )]
    TooSmallForClaim { asked: i64, least: i64 },
    #[error("volume name is empty in source PVC {0}")]
    ClaimWithoutVolume(String),
    #[error("claim in dataSource not bound or invalid")]
    ClaimInvalid,
    #[error(
        "the source PVC and destination PVCs must have the same volume mode for cloning.  Source is {source_mode}, but \
         new PVC requested {asked}"
    )]
    OtherMode { source_mode: &'static str, asked: &'static str },
}

impl<'a> DataSource<'a> {
    /// The source of a claim, if it has one.
    pub(super) fn of(claim: &'a PersistentVolumeClaim) -> Result<Option<Self>, ProvisionRefusal> {
        let Some(source) = claim.source() else { return Ok(None) };
        if claim.spec.data_source.is_none()
            && let Some(namespace) = source.namespace.as_deref().filter(|it| !it.is_empty())
        {
            return Err(ProvisionRefusal::OtherNamespace(namespace.to_owned()));
        }
        let (name, group) = (source.name.as_str(), source.api_group.as_deref().unwrap_or_default());
        if name.is_empty() {
            return Err(ProvisionRefusal::UnnamedSource(claim.metadata.name.clone()));
        }
        match source.kind.as_str() {
            SNAPSHOT if group == SNAPSHOT_GROUP => Ok(Some(Self::Snapshot(name))),
            SNAPSHOT => Err(ProvisionRefusal::SourceGroup(group.to_owned())),
            CLAIM => Ok(Some(Self::Claim(name))),
            kind => Ok(Some(Self::Populator(kind))),
        }
    }
}

/// The content that a snapshot names, if the snapshot can still be used. One that is being deleted
/// can be used by attempts that began before: they set `finalizer`.
pub(super) fn content_of<'a>(
    snapshot: &'a VolumeSnapshot,
    finalizer: &str,
) -> Result<&'a str, SourceRefusal> {
    let name = || snapshot.metadata.name.clone();
    if snapshot.metadata.deleting && !snapshot.metadata.has_finalizer(finalizer) {
        return Err(SourceRefusal::SnapshotDeleting(name()));
    }
    snapshot.bound_content().ok_or_else(|| SourceRefusal::SnapshotUnbound(name()))
}

/// The driver's ID of the snapshot, if the claim can be restored from it. Changes of the volume
/// mode are accepted unless `guards_mode` is set.
pub(super) fn snapshot_handle(
    claim: &PersistentVolumeClaim,
    driver: &str,
    snapshot: &VolumeSnapshot,
    content: &VolumeSnapshotContent,
    guards_mode: bool,
) -> Result<String, SourceRefusal> {
    let names = || (content.metadata.name.clone(), snapshot.metadata.name.clone());
    let (bound, own) = (&content.spec.volume_snapshot_ref, &snapshot.metadata);
    if bound.uid != own.uid
        || Some(&bound.namespace) != own.namespace.as_ref()
        || bound.name != own.name
    {
        let (content, snapshot) = names();
        return Err(SourceRefusal::OtherSnapshot { content, snapshot });
    }
    if content.spec.driver != driver {
        let (content, snapshot) = names();
        let class = claim.class().unwrap_or_default().to_owned();
        return Err(SourceRefusal::OtherDriver { content, snapshot, class });
    }
    if !snapshot.is_ready() {
        return Err(SourceRefusal::NotReady(own.name.clone()));
    }
    let handle = content.status.as_ref().and_then(|status| status.snapshot_handle.clone());
    let handle = handle.ok_or_else(|| SourceRefusal::NoHandle(own.name.clone()))?;
    let least = snapshot.status.as_ref().and_then(|status| status.restore_size);
    let asked = claim.requested().unwrap_or_default();
    if let Some(least) = least.filter(|least| asked < *least) {
        let (asked, least, snapshot) = (asked.0, least.0, own.name.clone());
        return Err(SourceRefusal::TooSmallForSnapshot { asked, least, snapshot });
    }
    if guards_mode {
        check_mode_change(claim, content)?;
    }
    Ok(handle)
}

fn check_mode_change(
    claim: &PersistentVolumeClaim,
    content: &VolumeSnapshotContent,
) -> Result<(), SourceRefusal> {
    let (taken, asked) = (&content.spec.source_volume_mode, &claim.spec.volume_mode);
    if taken.is_none() || asked.is_none() || taken == asked {
        return Ok(());
    }
    let (claim, name) = (claim.metadata.key(), content.metadata.name.clone());
    match content.metadata.annotations.get(ALLOW_VOLUME_MODE_CHANGE) {
        None => Err(SourceRefusal::ModeChange { claim, content: name }),
        // Parsed as Go parses a boolean.
        Some("1" | "t" | "T" | "true" | "TRUE" | "True") => Ok(()),
        Some(value) => {
            let value = value.to_owned();
            Err(SourceRefusal::ModeChangeDenied { claim, content: name, value })
        }
    }
}

/// The name of the volume of a claim that is to be cloned.
pub(super) fn volume_of<'a>(
    claim: &PersistentVolumeClaim,
    source: &'a PersistentVolumeClaim,
    needed: Use,
) -> Result<&'a str, SourceRefusal> {
    let name = || source.metadata.name.clone();
    if source.status.phase != "Bound" {
        let phase = source.status.phase.clone();
        return Err(SourceRefusal::ClaimUnbound { name: name(), phase: phase.into() });
    }
    if source.metadata.deleting && needed == Use::New {
        return Err(SourceRefusal::ClaimDeleting(name()));
    }
    if source.spec.storage_class_name.is_none() {
        return Err(SourceRefusal::SourceWithoutClass(name()));
    }
    if claim.spec.storage_class_name.is_none() {
        return Err(SourceRefusal::ClaimWithoutClass(claim.metadata.name.clone()));
    }
    let size = |claim: &PersistentVolumeClaim| claim.requested().unwrap_or_default();
    let (asked, least) = (size(claim).0, size(source).0);
    if asked < least {
        return Err(SourceRefusal::TooSmallForClaim { asked, least });
    }
    let volume = source.spec.volume_name.as_deref().filter(|volume| !volume.is_empty());
    volume.ok_or_else(|| SourceRefusal::ClaimWithoutVolume(name()))
}

/// The driver's ID of the volume that is to be cloned. Defects of the volume are logged, because
/// users of claims must not see them.
pub(super) fn clone_handle(
    claim: &PersistentVolumeClaim,
    driver: &str,
    source: &PersistentVolumeClaim,
    volume: Option<&PersistentVolume>,
) -> Result<String, SourceRefusal> {
    let handle = volume.ok_or("it is not there, or another driver's").and_then(|volume| {
        let csi = volume.spec.csi.as_ref().filter(|csi| csi.driver == driver);
        let csi = csi.ok_or("another driver handles it")?;
        let bound = volume.spec.claim_ref.as_deref().ok_or("it is not bound")?;
        let own = &source.metadata;
        if bound.uid != own.uid
            || Some(&bound.namespace) != own.namespace.as_ref()
            || bound.name != own.name
        {
            return Err("it is bound to another claim");
        }
        if volume.status.phase != "Bound" {
            return Err("its phase is not Bound");
        }
        Ok(&csi.volume_handle)
    });
    let handle = handle.map_err(|reason| {
        let source = source.metadata.key();
        tracing::warn!(source, reason, "failed to use volume of claim as source");
        SourceRefusal::ClaimInvalid
    })?;
    let is_block = volume.is_some_and(|volume| volume.spec.is_block());
    if is_block != claim.is_block() {
        let mode = |is_block| if is_block { "Block" } else { "Filesystem" };
        let (source_mode, asked) = (mode(is_block), mode(claim.is_block()));
        return Err(SourceRefusal::OtherMode { source_mode, asked });
    }
    Ok(handle.clone())
}

#[cfg(test)]
mod tests;
