//! Inline volumes: declared in a pod, made by their publish, and gone with their last publication.
//!
//! No orchestrator knows such a volume otherwise, so nobody would ever delete one that a failed publish or a crash left:
//! a publish is undone whole, and a start removes what has no publication any more.

use std::collections::{HashMap, HashSet};
use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use wharf_facts::quantity;
use wharf_mount::{Filesystem, format};

use super::{NodeVolumes, Publish, StageRequest};
use crate::devices;
use crate::error::Error;
use crate::pool::{NewVolume, Pool};
use crate::private;
use crate::record::{Access, Volume};

/// The field that says how large an inline volume is.
const SIZE: &str = "volume_context.size";

/// How much pods may ask for inline; `None` is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InlineLimits {
    /// The largest inline volume, in bytes.
    pub max_size: Option<u64>,
    /// Inline volumes of one pod.
    pub max_per_pod: Option<u64>,
}

/// The inline volumes of a node, on all of its pools.
#[derive(Debug, Default)]
pub struct InlineCalls {
    /// Volumes that are being published or removed now, with their pods where a publish names one.
    underway: Mutex<HashMap<String, Option<String>>>,
    pools: Mutex<Vec<Weak<Pool>>>,
}

impl InlineCalls {
    /// Adds a pool whose inline volumes count as well.
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

/// An inline volume that nobody else publishes or removes while this is held.
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
    /// Makes and publishes a volume that lives as long as its pod. When a step fails, nothing of a volume is left that is
    /// published nowhere else.
    ///
    /// # Errors
    /// As creating, staging and publishing, and when the volume is too small for its filesystem or beyond a limit.
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
            tracing::warn!(volume = id, %error, "failed to remove inline volume, the next start tries again");
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

    /// Removes a volume whose last publication is gone. One whose device others hold is left to a later call or start: a
    /// stranger must not hang a pod's teardown.
    pub(super) fn delete_or_leave(&self, volume: &Volume) -> Result<(), Error> {
        match self.delete_ephemeral(volume) {
            Err(Error::Precondition(reason)) => {
                tracing::warn!(
                    volume = volume.id,
                    reason,
                    "left an inline volume that others hold, removed later"
                );
                Ok(())
            }
            deleted => deleted,
        }
    }

    /// Removes inline volumes that were left to others and that nobody holds any more.
    fn remove_left(&self) {
        let left: Vec<Arc<Volume>> = self.pool.store().read(|state| {
            let inline =
                state.volumes.iter().filter(|volume| volume.ephemeral && volume.is_whole());
            inline.filter(|volume| !volume.in_use()).cloned().collect()
        });
        for volume in left {
            // A device that is still there is held, and would be waited for.
            let held = self.pool.devices().find(&self.pool.image(&volume));
            if held.is_ok_and(|held| held.is_empty())
                && let Err(error) = self.delete_ephemeral(&volume)
            {
                tracing::warn!(volume = volume.id, %error, "failed to remove inline volume, the next start tries again");
            }
        }
    }

    /// Removes a volume whose last publication is gone, unless a publish of it is under way, which then decides.
    pub(super) fn delete_ephemeral(&self, volume: &Volume) -> Result<(), Error> {
        match self.begin_removal(&volume.id) {
            Some(_guard) => self.remove_ephemeral(volume),
            None => Ok(()),
        }
    }

    /// Unstages and deletes a volume, as far as there is anything of it.
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
        // The unstage has waited for others long enough.
        if let Some(device) = self.pool.devices().find(&self.pool.image(volume))?.first() {
            return Err(devices::in_use("volume", device, "deleted"));
        }
        self.delete_volume(&volume.id)
    }

    /// An ephemeral volume is never staged by the orchestrator: it gets a place on the pool.
    fn ephemeral_staging(&self, volume: &Volume) -> Result<PathBuf, Error> {
        let path = self.pool.layout().ephemeral(&volume.image);
        private::create_own_folder(&path)?;
        path.canonicalize().map_err(Error::file("resolve", &path))
    }

    /// Refuses a size that no filesystem fits in, or that is larger than a pod may ask for.
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

    /// Begins a publish, counted among those of its pod if it is a new volume.
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

    /// The inline volumes that are published to a pod, on every pool.
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

/// Bytes for a person.
fn human(bytes: u64) -> String {
    quantity::human(bytes.try_into().unwrap_or(i64::MAX))
}
