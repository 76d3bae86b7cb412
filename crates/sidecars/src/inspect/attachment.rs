//! Explains what an attachment waits for.

use wharf_cluster::VolumeAttachment;

use super::{ClusterSnapshot, Finding, Listed, Wait, volume};

pub(super) fn finding(cluster: &ClusterSnapshot, attachment: &Listed<VolumeAttachment>) -> Finding {
    let object = &attachment.object;
    let (driver, node) = (&object.spec.attacher, &object.spec.node_name);
    let (stage, wait, failed) = match (object.metadata.deleting, object.status.attached) {
        (true, _) => {
            let what = format!("driver {driver} has to detach it from {node}");
            ("Detaching", Wait::new("attacher", what), "detachError")
        }
        (false, true) => ("Attached", None, "attachError"),
        (false, false) if !cluster.has_driver(node, driver) => {
            let what = format!("driver {driver} has not registered on node {node}");
            ("Attaching", Wait::new("registrar", what), "attachError")
        }
        (false, false) => {
            let what = format!("driver {driver} has to attach it to {node}");
            ("Attaching", Wait::new("attacher", what), "attachError")
        }
    };
    let wait = not_served(cluster, object).filter(|_| wait.is_some()).or(wait);
    let message = attachment.whole["status"][failed]["message"].as_str();
    let last_error = message.filter(|_| wait.is_some()).map(str::to_owned);
    let finding = cluster.finding("attachment", attachment, stage, wait);
    Finding { last_error: last_error.or(finding.last_error), ..finding }
}

/// The volume is of an in-tree plugin, which wharf's attacher does not serve.
fn not_served(cluster: &ClusterSnapshot, attachment: &VolumeAttachment) -> Option<Wait> {
    let volume = attachment.spec.source.persistent_volume_name.as_deref()?;
    let message = volume::in_tree_message(&cluster.volume(volume)?.object)?;
    Wait::new("a person", message)
}
