//! Applies the limits in a volume's record to the pods that use it.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::Arc,
};

use super::NodeVolumes;
use crate::{error::Error, points::Point, record::Volume};

/// Where a volume's limits apply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// In the cgroups of all pods that use the volume.
    Everywhere,
    /// Not yet: no pod uses the volume, or the cgroup of one is unknown. The next publish applies
    /// them.
    Later,
}

impl NodeVolumes {
    /// Records new limits and applies them to present users.
    ///
    /// # Errors
    /// If a parameter is unknown, or a cgroup cannot be written.
    pub fn modify(
        &self,
        id: &str,
        parameters: &BTreeMap<String, String>,
    ) -> Result<Applied, Error> {
        let volume = self.pool.set_limits(id, parameters)?;
        let applied = self.write_limits(&volume)?;
        self.limited.notify_one();
        self.pool.reach(Point::ModifyApplied)?;
        Ok(applied)
    }

    /// Applies a volume's limits, if any, and wakes the task that keeps them applied.
    pub(super) fn apply_limits(&self, volume: &Volume) {
        if !volume.limits.is_unlimited() {
            self.try_limits(volume);
            self.limited.notify_one();
        }
    }

    /// Failed limits must not keep a pod from starting: log them only.
    fn try_limits(&self, volume: &Volume) {
        let (id, limits) = (&volume.id, volume.limits);
        match self.write_limits(volume) {
            Ok(applied) => tracing::debug!(volume = id, %limits, ?applied, "applied limits"),
            Err(error) => tracing::warn!(volume = id, %limits, %error, "failed to apply limits"),
        };
    }

    /// Applies the limits of all published volumes. Returns the cgroups to watch for new children.
    pub(super) fn apply_all_limits(&self) -> Vec<PathBuf> {
        let Some(cgroups) = self.cgroups.as_ref().filter(|cgroups| cgroups.limits_each()) else {
            return Vec::new();
        };
        let limited: Vec<Arc<Volume>> = self.pool.store().read(|state| {
            let used = state.volumes.iter().filter(|volume| !volume.publications.is_empty());
            used.filter(|volume| !volume.limits.is_unlimited()).cloned().collect()
        });
        limited.iter().for_each(|volume| self.try_limits(volume));
        let publications = limited.iter().flat_map(|volume| volume.publications.values());
        let pods: BTreeSet<&String> =
            publications.filter_map(|publication| publication.pod_uid.as_ref()).collect();
        pods.into_iter().flat_map(|pod| cgroups.groups(pod)).collect()
    }

    fn write_limits(&self, volume: &Volume) -> Result<Applied, Error> {
        let Some(cgroups) = &self.cgroups else { return Ok(Applied::Later) };
        let mut applied =
            if volume.publications.is_empty() { Applied::Later } else { Applied::Everywhere };
        for device in self.pool.devices().find(&self.pool.image(volume))? {
            let number = device.device_number()?;
            let number = (rustix::fs::major(number), rustix::fs::minor(number));
            for publication in volume.publications.values() {
                let limited = match &publication.pod_uid {
                    Some(pod) => cgroups.apply(pod, number, &volume.limits),
                    None => Ok(Vec::new()),
                };
                if limited.map_err(Error::file("limit", "cgroup"))?.is_empty() {
                    applied = Applied::Later;
                }
            }
        }
        Ok(applied)
    }
}
