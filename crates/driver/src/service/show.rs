//! Converts records to the SDK's types.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use wharf_csi_sdk::types::{
    Condition, ContentSource, GroupSnapshot, HealthProblem, NodeId, Snapshot, Topology, Volume,
    VolumeEntry, VolumeHealthStatus,
};

use super::Driver;
use crate::{
    node::{Ailment, Severity},
    pool::Pool,
    record,
};

impl Driver {
    pub(super) fn show_volume(&self, volume: &record::Volume) -> Volume {
        let source = volume.source.clone().map(|source| match source {
            record::Source::Snapshot(id) => ContentSource::Snapshot(id.into()),
            record::Source::Volume(id) => ContentSource::Volume(id.into()),
        });
        Volume {
            id: volume.id.clone().into(),
            capacity: volume.capacity,
            context: Default::default(),
            source,
            topology: self.places(),
        }
    }

    pub(super) fn show_entry(&self, volume: &record::Volume, ailments: &[Ailment]) -> VolumeEntry {
        let mut condition = condition(ailments);
        if volume.limits_wait() {
            // The response to ControllerModifyVolume has no field to report it.
            condition.message.push_str("; its limits apply from the next publish on");
        }
        VolumeEntry {
            volume: self.show_volume(volume),
            published_nodes: volume
                .attachments
                .keys()
                .map(|node| NodeId::from(node.as_str()))
                .collect(),
            condition: Some(condition),
        }
    }

    pub(super) fn show_snapshot(&self, snapshot: &record::Snapshot) -> Snapshot {
        Snapshot {
            id: snapshot.id.clone().into(),
            source: snapshot.volume.clone().into(),
            size: snapshot.size,
            created: time(snapshot.cut),
            ready: true,
            group: snapshot.group.clone().map(Into::into),
            topology: self.places(),
        }
    }

    pub(super) fn show_group(&self, pool: &Pool, group: &record::Group) -> GroupSnapshot {
        let snapshots = pool.store().read(|state| {
            let members = group.snapshots.iter().filter_map(|id| state.snapshots.get(id));
            members.map(|snapshot| self.show_snapshot(snapshot)).collect()
        });
        GroupSnapshot { id: group.id.clone().into(), created: time(group.cut), snapshots }
    }

    fn places(&self) -> Vec<Topology> {
        vec![self.identity.topology()]
    }
}

/// Returns a volume's condition, for orchestrators without health RPCs.
pub(super) fn condition(ailments: &[Ailment]) -> Condition {
    if ailments.is_empty() {
        return Condition { abnormal: false, message: "the volume is healthy".to_owned() };
    }
    let messages: Vec<_> = ailments.iter().map(|ailment| ailment.message.as_str()).collect();
    Condition { abnormal: true, message: messages.join("; ") }
}

pub(super) fn problem(ailment: Ailment) -> HealthProblem {
    HealthProblem {
        status: match ailment.severity {
            Severity::Degraded => VolumeHealthStatus::Degraded,
            Severity::Inaccessible => VolumeHealthStatus::Inaccessible,
            Severity::DataLoss => VolumeHealthStatus::DataLoss,
        },
        reason: ailment.reason.to_owned(),
        message: ailment.message,
    }
}

fn time(nanoseconds: i128) -> SystemTime {
    UNIX_EPOCH + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(0))
}
