//! Reports about a pool for people: content, usage, and differences between records and images.
//!
//! Works on a state and the files, both in the running driver and for a pool that no driver serves.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    backend::{Backend, Images},
    error::Error,
    pool::{Account, Layout, Mark},
    pools::{PoolState, PoolStatus},
    record::{Blocks, Phase, Snapshot, Volume},
    store::State,
};

/// One volume or snapshot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Row {
    /// Name of the pool.
    pub pool: String,
    /// `volume`, `inline` for an inline volume of a pod, or `snapshot`.
    pub kind: String,
    /// ID.
    pub id: String,
    /// Name that the orchestrator gave.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Allocated bytes of the image; shared blocks count in full.
    pub allocated: u64,
    /// Number of extents of the image.
    pub extents: u32,
    /// Name of the backend.
    pub backend: String,
    /// Content, such as a filesystem.
    pub content: String,
    /// Phase, and where the object is in use.
    pub state: String,
    /// Path of the image.
    pub image: PathBuf,
}

/// Usage of a pool, in bytes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct UsageReport {
    /// Size of the pool's filesystem.
    pub total: u64,
    /// Space left on the filesystem.
    pub available: u64,
    /// Space promised to volumes and snapshots.
    pub promised: u64,
    /// Space that is never promised.
    pub floor: u64,
    /// Space that can still be promised.
    pub capacity: u64,
    /// Total size of all thin volumes.
    pub thin_promised: u64,
    /// Maximum total size of thin volumes.
    pub thin_limit: u64,
    /// Available space below which no thin volume is created or grown.
    pub thin_floor: u64,
    /// Maximum size of a new thin volume.
    pub thin_capacity: u64,
    /// Number of volumes.
    pub volumes: usize,
    /// Number of snapshots.
    pub snapshots: usize,
}

/// A pool, with its usage if it is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PoolUsage {
    /// The pool.
    pub pool: PoolStatus,
    /// Usage of the pool.
    pub usage: Option<UsageReport>,
}

/// A difference or problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// The image or record.
    pub object: String,
    /// The problem.
    pub problem: String,
    /// What to do about it.
    pub advice: String,
}

/// Lists all volumes and snapshots of the pool with this name.
pub fn list(pool: &str, layout: &Layout, state: &State) -> Vec<Row> {
    let volumes = state.volumes.iter().map(|volume| volume_row(layout, volume));
    let snapshots = state.snapshots.iter().map(|snapshot| snapshot_row(layout, snapshot));
    volumes.chain(snapshots).map(|row| Row { pool: pool.to_owned(), ..row }).collect()
}

/// Reports the usage of a pool.
pub fn usage(account: Account, state: &State) -> UsageReport {
    UsageReport {
        total: account.disk.total,
        available: account.disk.available,
        promised: account.promised,
        floor: account.floor,
        capacity: account.capacity(),
        thin_promised: account.thin_promised,
        thin_limit: account.thin_limit,
        thin_floor: account.thin_floor,
        thin_capacity: account.thin_capacity(),
        volumes: state.volumes.len(),
        snapshots: state.snapshots.len(),
    }
}

/// Compares records with images. Changes nothing.
///
/// # Errors
/// If the pool's folders cannot be read.
pub fn check(layout: &Layout, state: &State) -> Result<Vec<Finding>, Error> {
    let mut findings = Vec::new();
    let mut images: BTreeMap<PathBuf, ()> = BTreeMap::new();
    for folder in [layout.volumes(), layout.snapshots()] {
        for entry in fs::read_dir(&folder).map_err(Error::file("list", &folder))? {
            images.insert(entry.map_err(Error::file("list", &folder))?.path(), ());
        }
    }
    for volume in state.volumes.iter() {
        let image = layout.volume(&volume.image);
        images.remove(&image);
        findings.extend(check_phase(&volume.id, volume.phase));
        if volume.phase == Phase::Ready {
            findings.extend(check_image(&volume.id, &image, volume.capacity, volume.thin));
        }
    }
    for snapshot in state.snapshots.iter() {
        let image = layout.snapshot(&snapshot.image);
        images.remove(&image);
        findings.extend(check_phase(&snapshot.id, snapshot.phase));
        if snapshot.phase == Phase::Ready {
            findings.extend(check_image(&snapshot.id, &image, snapshot.size, true));
        }
    }
    findings.extend(images.into_keys().map(|orphan| {
        finding(&orphan.display(), "it has no record", "the next start moves it into quarantine")
    }));
    for entry in fs::read_dir(layout.quarantine()).into_iter().flatten().flatten() {
        findings.push(finding(
            &entry.path().display(),
            "in quarantine",
            "inspect it, then delete it by hand",
        ));
    }
    Ok(findings)
}

/// Reports a pool that is not served.
pub fn check_served(status: &PoolStatus) -> Option<Finding> {
    let object = format!("pool {}", status.name);
    match &status.state {
        PoolState::Served | PoolState::Draining | PoolState::Leaving => None,
        PoolState::Absent(reason) => Some(finding(
            &object,
            &format!("is not served: {reason}"),
            "its volumes are unavailable until it is",
        )),
        PoolState::Unconfigured => Some(finding(
            &object,
            "is not configured",
            &format!(
                "configure it with its folder {}, or run `wharf driver pool forget {}`",
                status.folder.display(),
                status.name
            ),
        )),
    }
}

fn check_phase(id: &str, phase: Phase) -> Option<Finding> {
    let (problem, advice) = match phase {
        Phase::Ready => return None,
        Phase::Creating => (
            "its creation is not finished",
            "the orchestrator's next call continues it; if none comes, delete it",
        ),
        Phase::Expanding { .. } => {
            ("its expansion is not finished", "the next start or call continues it")
        }
        Phase::Deleting => ("its deletion is not finished", "the next start or call continues it"),
    };
    Some(finding(&id, problem, advice))
}

fn check_image(id: &str, image: &Path, size: u64, thin: bool) -> Option<Finding> {
    let metadata = match fs::metadata(image) {
        Ok(metadata) => metadata,
        Err(error) => {
            return Some(finding(
                &id,
                &format!("{}: {error}", image.display()),
                "restore it from a backup",
            ));
        }
    };
    if metadata.len() != size {
        let problem = format!("its image has {} bytes, {size} are recorded", metadata.len());
        return Some(finding(
            &id,
            &problem,
            "compare with the orchestrator's size; the data is what the image holds",
        ));
    }
    let allocated = Images::COPY.footprint(image).map_or(0, |footprint| footprint.allocated);
    if !thin && allocated < size {
        let problem = format!("it is thick, and its image takes only {allocated} of {size} bytes");
        return Some(finding(
            &id,
            &problem,
            "its missing blocks are not reserved: keep the pool from filling up",
        ));
    }
    match Mark::read(image) {
        Ok(Some(_)) => None,
        _ => Some(finding(
            &id,
            "its image has no mark",
            "a rebuild would not find it; expanding it writes the mark again",
        )),
    }
}

fn volume_row(layout: &Layout, volume: &Volume) -> Row {
    let image = layout.volume(&volume.image);
    let footprint = Images::COPY.footprint(&image).unwrap_or_default();
    let place = match (&volume.stage, volume.publications.len(), volume.attachments.len()) {
        (_, count, _) if count > 0 => format!(", published {count}x"),
        (Some(_), ..) => ", staged".to_owned(),
        (None, _, count) if count > 0 => ", attached".to_owned(),
        _ => String::new(),
    };
    Row {
        pool: String::new(),
        kind: if volume.ephemeral { "inline" } else { "volume" }.to_owned(),
        id: volume.id.clone(),
        name: volume.name.clone(),
        size: volume.capacity,
        allocated: footprint.allocated,
        extents: footprint.extents,
        backend: format!("{}{}", volume.backend, if volume.thin { " thin" } else { "" }),
        content: content(volume.content),
        state: format!(
            "{}{}{place}",
            phase(volume.phase),
            unsharing(layout, &volume.image, volume.blocks)
        ),
        image,
    }
}

fn snapshot_row(layout: &Layout, snapshot: &Snapshot) -> Row {
    let image = layout.snapshot(&snapshot.image);
    let footprint = Images::COPY.footprint(&image).unwrap_or_default();
    Row {
        pool: String::new(),
        kind: "snapshot".to_owned(),
        id: snapshot.id.clone(),
        name: snapshot.name.clone(),
        size: snapshot.size,
        allocated: footprint.allocated,
        extents: footprint.extents,
        backend: snapshot.backend.to_string(),
        content: content(snapshot.content.into()),
        state: format!(
            "{}{}, of {}",
            phase(snapshot.phase),
            unsharing(layout, &snapshot.image, snapshot.blocks),
            snapshot.volume
        ),
        image,
    }
}

fn phase(phase: Phase) -> &'static str {
    match phase {
        Phase::Creating => "creating",
        Phase::Ready => "ready",
        Phase::Expanding { .. } => "expanding",
        Phase::Deleting => "deleting",
    }
}

/// Progress of a copy that is being unshared.
fn unsharing(layout: &Layout, image: &str, blocks: Blocks) -> String {
    let Blocks::Unsharing { bytes } = blocks else { return String::new() };
    let left = Images::COPY.footprint(&layout.reserve(image)).map_or(0, |it| it.allocated);
    let done = bytes.saturating_sub(left).saturating_mul(100) / bytes.max(1);
    format!(", unsharing {done} %")
}

fn content(content: crate::record::Content) -> String {
    use crate::record::Content::{Blank, Filesystem, Formatting};
    match content {
        Blank => "blank".to_owned(),
        Formatting(filesystem) => format!("{filesystem}, being made"),
        Filesystem(filesystem) => filesystem.to_string(),
    }
}

fn finding(object: &dyn std::fmt::Display, problem: &str, advice: &str) -> Finding {
    Finding { object: object.to_string(), problem: problem.to_owned(), advice: advice.to_owned() }
}
