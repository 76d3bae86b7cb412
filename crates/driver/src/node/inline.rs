//! Inline volumes, declared in a pod: created by their publish, deleted with their last
//! publication.
//!
//! The orchestrator does not track such volumes, so nothing else deletes one that a failed publish
//! or a crash left behind: a failed publish is undone completely, and startup removes volumes
//! without a publication.

use std::{
    collections::{HashMap, HashSet},
    fs,
    io::ErrorKind,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
};

use wharf_facts::quantity;
use wharf_mount::{Filesystem, format};

use super::{NodeVolumes, Publish, StageRequest};
use crate::{
    devices,
    error::Error,
    pool::{NewVolume, Pool},
    private,
    record::{Access, Volume},
};

/// The field with the size of an inline volume.
const SIZE: &str = "volume_context.size";

/// Limits of inline volumes; `None` means no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InlineLimits {
    /// Maximum size of an inline volume in bytes.
    pub max_size: Option<u64>,
    /// Maximum number of inline volumes of a pod.
    pub max_per_pod: Option<u64>,
}

/// The inline volumes of a node, on all of its pools.
#[derive(Debug, Default)]
pub struct InlineCalls {
    /// Volumes that are being published or removed, with the pod of a publish.
    underway: Mutex<HashMap<String, Option<String>>>,
    pools: Mutex<Vec<Weak<Pool>>>,
}

impl InlineCalls {
    /// Adds a pool whose inline volumes count, too.
    pub(super) fn add(&self, pool: &Arc<Pool>) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.retain(|pool| pool.strong_count() > 0);
        pools.push(Arc::downgrade(pool));
    }

    fn underway(&self) -> MutexGuard<'_, HashMap<String, Option<String>>> {
        self.underway.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn pools(&self) -> Vec<Arc<Pool>> {
        let pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        pools.iter().filter_map(Weak::upgrade).collect()
    }
}

/// Excludes other publishes and removals of an inline volume while held.
struct InlineGuard<'a> {
    calls: &'a InlineCalls,
    volume: String,
}

impl Drop for InlineGuard<'_> {
    fn drop(&mut self) {
        self.calls.underway().remove(&self.volume);
    }
}

impl NodeVolumes {
    /// Creates and publishes an inline volume. If a step fails and the volume has no other
    /// publication, it is removed completely.
    ///
    /// # Errors
    /// As for creating, staging and publishing; also if the volume is too small for its filesystem
    /// or exceeds a limit.
    pub fn publish_ephemeral(&self, new: NewVolume, request: &Publish) -> Result<(), Error> {
        self.refuse_symlinks(&request.target)?;
        let id = new.id.clone().unwrap_or_else(|| new.name.clone());
        let known = self.pool.volume(&id).ok();
        self.refuse_foreign_target(known.as_deref(), &request.target, &request.usage.access)?;
        if known.is_none() {
            self.check_inline_size(&new, request)?;
        }
        self.remove_left();
        let _guard = self.begin_inline(&id, request.pod_uid.as_deref(), known.is_none())?;
        let published = self.make_and_publish(new, request);
        if published.is_err()
            && let Ok(volume) = self.pool.volume(&id)
            && volume.ephemeral
            && volume.publications.is_empty()
            && let Err(error) = self.remove_ephemeral(&volume)
        {
            tracing::warn!(volume = id, %error, "failed to remove inline volume, retrying at next start");
        }
        published
    }

    fn make_and_publish(&self, new: NewVolume, request: &Publish) -> Result<(), Error> {
        let volume = self.pool.create_volume(new)?;
        if !volume.ephemeral {
            return Err(Error::Exists(format!("volume {} is not an inline volume", volume.id)));
        }
        let staging = self.ephemeral_staging(&volume)?;
        let stage = StageRequest {
            volume: volume.id.clone(),
            path: staging.clone(),
            usage: request.usage.clone(),
        };
        self.stage(&stage)?;
        self.publish(&Publish { staging_path: staging, ..request.clone() })
    }

    /// Removes a volume whose last publication is gone. If another process holds its device, a
    /// later call or start removes it: a foreign process must not block a pod's teardown.
    pub(super) fn delete_or_leave(&self, volume: &Volume) -> Result<(), Error> {
        match self.delete_ephemeral(volume) {
            Err(Error::Precondition(reason)) => {
                tracing::warn!(
                    volume = volume.id,
                    reason,
                    "inline volume is in use, removing it later"
                );
                Ok(())
            }
            deleted => deleted,
        }
    }

    /// Removes inline volumes that other processes held at their last unpublish and hold no longer.
    fn remove_left(&self) {
        let left: Vec<Arc<Volume>> = self.pool.store().read(|state| {
            let inline =
                state.volumes.iter().filter(|volume| volume.ephemeral && volume.is_whole());
            inline.filter(|volume| !volume.in_use()).cloned().collect()
        });
        for volume in left {
            // A device that is still attached is held, and removal would wait for it.
            let held = self.pool.devices().find(&self.pool.image(&volume));
            if held.is_ok_and(|held| held.is_empty())
                && let Err(error) = self.delete_ephemeral(&volume)
            {
                tracing::warn!(volume = volume.id, %error, "failed to remove inline volume, retrying at next start");
            }
        }
    }

    /// Removes a volume whose last publication is gone, unless a publish of it is running, which
    /// then decides.
    pub(super) fn delete_ephemeral(&self, volume: &Volume) -> Result<(), Error> {
        match self.begin_removal(&volume.id) {
            Some(_guard) => self.remove_ephemeral(volume),
            None => Ok(()),
        }
    }

    /// Unstages and deletes a volume, as far as it exists.
    fn remove_ephemeral(&self, volume: &Volume) -> Result<(), Error> {
        let folder = self.pool.layout().ephemeral(&volume.image);
        let staged = volume.stage.as_ref().map(|stage| stage.path.clone());
        if let Some(staging) = staged.or_else(|| folder.canonicalize().ok()) {
            self.unstage(&volume.id, &staging)?;
        }
        match fs::remove_dir(&folder) {
            Err(error) if error.kind() != ErrorKind::NotFound => {
                return Err(Error::file("remove staging folder", &folder)(error));
            }
            _ => {}
        }
        // Do not wait again: the unstage has waited for other users.
        if let Some(device) = self.pool.devices().find(&self.pool.image(volume))?.first() {
            return Err(devices::in_use("volume", device, "deleted"));
        }
        self.delete_volume(&volume.id)
    }

    /// Creates the staging folder of an inline volume on the pool: the orchestrator does not stage
    /// it.
    fn ephemeral_staging(&self, volume: &Volume) -> Result<PathBuf, Error> {
        let path = self.pool.layout().ephemeral(&volume.image);
        private::create_own_folder(&path)?;
        path.canonicalize().map_err(Error::file("resolve", &path))
    }

    /// Refuses a size that is too small for its filesystem, or above the limit.
    fn check_inline_size(&self, new: &NewVolume, request: &Publish) -> Result<(), Error> {
        if let Access::Mount { .. } = request.usage.access {
            let filesystem = request.usage.filesystem()?.or(new.filesystem);
            let filesystem = filesystem.unwrap_or(Filesystem::Ext4);
            let smallest = format::minimum_size(filesystem);
            if new.capacity < smallest {
                let expected = format!("at least {} for {filesystem}", human(smallest));
                return Err(Error::invalid(SIZE, expected));
            }
        }
        match self.options.inline.max_size {
            Some(max) if new.capacity > max => {
                let (max, size) = (human(max), human(new.capacity));
                let expected = format!("at most {max} (--inline-max-size), not {size}");
                Err(Error::invalid(SIZE, expected))
            }
            _ => Ok(()),
        }
    }

    /// Begins a publish. A new volume counts for its pod.
    fn begin_inline(
        &self,
        id: &str,
        pod: Option<&str>,
        new: bool,
    ) -> Result<InlineGuard<'_>, Error> {
        let mut underway = self.inline_calls.underway();
        if underway.contains_key(id) {
            return Err(Error::Pending(format!(
                "inline volume {id} is being published or removed: call again"
            )));
        }
        if let Some(max) = self.options.inline.max_per_pod.filter(|_| new) {
            let Some(pod) = pod else {
                return Err(Error::invalid(
                    format!("volume_context.{}", wharf_facts::context::POD_UID),
                    "the UID of the pod, since --inline-max-per-pod is set: set podInfoOnMount in the CSIDriver object",
                ));
            };
            let mut of_pod: HashSet<&str> = underway
                .iter()
                .filter(|(_, other)| other.as_deref() == Some(pod))
                .map(|(id, _)| id.as_str())
                .collect();
            let published = self.inline_volumes_of(pod);
            of_pod.extend(published.iter().map(String::as_str));
            if of_pod.len() as u64 >= max {
                return Err(Error::Precondition(format!(
                    "pod {pod} has {} inline volumes and may have {max} (--inline-max-per-pod)",
                    of_pod.len()
                )));
            }
        }
        underway.insert(id.to_owned(), pod.map(str::to_owned));
        Ok(InlineGuard { calls: &self.inline_calls, volume: id.to_owned() })
    }

    /// Begins a removal, unless the volume is being published.
    fn begin_removal(&self, id: &str) -> Option<InlineGuard<'_>> {
        let mut underway = self.inline_calls.underway();
        if underway.contains_key(id) {
            return None;
        }
        underway.insert(id.to_owned(), None);
        Some(InlineGuard { calls: &self.inline_calls, volume: id.to_owned() })
    }

    /// Returns the inline volumes that are published to a pod, on all pools.
    fn inline_volumes_of(&self, pod: &str) -> Vec<String> {
        let of_pool = |pool: &Arc<Pool>| -> Vec<String> {
            pool.store().read(|state| {
                let inline = state.volumes.iter().filter(|volume| volume.ephemeral);
                let used = inline.filter(|volume| {
                    let mut publications = volume.publications.values();
                    publications.any(|publication| publication.pod_uid.as_deref() == Some(pod))
                });
                used.map(|volume| volume.id.clone()).collect()
            })
        };
        self.inline_calls.pools().iter().flat_map(of_pool).collect()
    }
}

/// Formats bytes for people.
fn human(bytes: u64) -> String {
    quantity::human(bytes.try_into().unwrap_or(i64::MAX))
}
