//! Explains what a group snapshot waits for.

use wharf_cluster::VolumeGroupSnapshot;

use super::{ClusterSnapshot, Finding, Listed, Wait};
use crate::not_served::group_message;

pub(super) fn finding(
    cluster: &ClusterSnapshot,
    snapshot: &Listed<VolumeGroupSnapshot>,
) -> Finding {
    let is_ready = snapshot.whole["status"]["readyToUse"] == true;
    let (stage, wait) = match (snapshot.object.metadata.deleting, is_ready) {
        (true, _) => ("Terminating", Wait::new("a person", group_message())),
        (false, true) => ("Ready", None),
        (false, false) => ("Pending", Wait::new("a person", group_message())),
    };
    let message = snapshot.whole["status"]["error"]["message"].as_str();
    let last_error = message.filter(|_| wait.is_some()).map(str::to_owned);
    let finding = cluster.finding("group snapshot", snapshot, stage, wait);
    Finding { last_error: last_error.or(finding.last_error), ..finding }
}
