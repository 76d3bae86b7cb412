//! Explains what storage a pod waits for.

use serde_json::Value;
use wharf_cluster::{PersistentVolumeClaim, Pod};

use super::{ClusterSnapshot, Finding, Listed, Wait, attachment, claim};

/// `None` if the value is not a pod.
pub(super) fn finding(cluster: &ClusterSnapshot, pod: &Value) -> Option<Finding> {
    let listed = Listed::<Pod>::of(pod.clone())?;
    let phase = pod["status"]["phase"].as_str().unwrap_or("Pending");
    let node = node(pod);
    let (stage, wait) = match (listed.object.metadata.deleting, phase, node) {
        (_, "Succeeded" | "Failed", _) => (phase, None),
        (true, _, Some(node)) => {
            let what =
                format!("its containers on {node} have to end and its volumes to be unmounted");
            ("Terminating", Wait::new("kubelet", what))
        }
        (true, _, None) => ("Terminating", None),
        (false, "Pending", Some(node)) => (phase, starting(cluster, pod, node)),
        (false, "Pending", None) => (phase, unscheduled(cluster, pod)),
        (false, ..) => (phase, None),
    };
    Some(cluster.finding("pod", &listed, stage, wait))
}

/// The names of the claims of a pod; a generic ephemeral volume's claim is named after pod and
/// volume.
pub(super) fn claims(pod: &Value) -> impl Iterator<Item = String> {
    let name = pod["metadata"]["name"].as_str().unwrap_or_default();
    pod["spec"]["volumes"].as_array().into_iter().flatten().filter_map(move |volume| {
        if let Some(claim) = volume["persistentVolumeClaim"]["claimName"].as_str() {
            return Some(claim.to_owned());
        }
        volume["ephemeral"].is_object().then(|| {
            let volume = volume["name"].as_str().unwrap_or_default();
            format!("{name}-{volume}")
        })
    })
}

/// The scheduler's message about a pod that does not fit on any node.
pub(super) fn scheduler_message(pod: &Value) -> Option<&str> {
    let conditions = pod["status"]["conditions"].as_array()?;
    let scheduled = conditions.iter().find(|it| it["type"] == "PodScheduled")?;
    scheduled["message"].as_str().filter(|_| scheduled["status"] == "False")
}

fn node(pod: &Value) -> Option<&str> {
    pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty())
}

fn namespace(pod: &Value) -> &str {
    pod["metadata"]["namespace"].as_str().unwrap_or_default()
}

/// The first claim that a pod waits for.
fn unbound(cluster: &ClusterSnapshot, pod: &Value) -> Option<Wait> {
    let namespace = namespace(pod);
    claims(pod).find_map(|name| {
        let Some(claim) = cluster.claim(namespace, &name) else {
            return Wait::new("a person", format!("claim {namespace}/{name} does not exist"));
        };
        if claim.object.status.phase == "Bound" {
            return None;
        }
        let Finding { stage, who, waits_for, .. } = claim::finding(cluster, claim);
        // A claim that waits for the scheduler waits for this pod.
        let (who, what) = who.filter(|who| who != "kube-scheduler").zip(waits_for)?;
        Wait::new(who, format!("claim {namespace}/{name} is {stage}: {what}"))
    })
}

fn unscheduled(cluster: &ClusterSnapshot, pod: &Value) -> Option<Wait> {
    unbound(cluster, pod).or_else(|| {
        let said = scheduler_message(pod).map(|text| format!(": {text}")).unwrap_or_default();
        Wait::new("kube-scheduler", format!("it has no node yet{said}"))
    })
}

fn starting(cluster: &ClusterSnapshot, pod: &Value, node: &str) -> Option<Wait> {
    unbound(cluster, pod).or_else(|| unattached(cluster, pod, node)).or_else(|| {
        let what = format!("its volumes have to be mounted and its containers started on {node}");
        Wait::new("kubelet", what)
    })
}

/// A volume of a pod that has to be attached to its node, or detached from another node first.
fn unattached(cluster: &ClusterSnapshot, pod: &Value, node: &str) -> Option<Wait> {
    let bound = claims(pod).filter_map(|name| cluster.claim(namespace(pod), &name));
    bound.into_iter().find_map(|claim| {
        let volume = claim.object.spec.volume_name.as_deref()?;
        let attachments: Vec<_> = cluster.attachments_of(volume).collect();
        let here = attachments.iter().find(|it| it.object.spec.node_name == *node);
        if let Some(here) = here {
            let Finding { who, waits_for, .. } = attachment::finding(cluster, here);
            let (who, what) = who.zip(waits_for)?;
            return Wait::new(who, format!("volume {volume} is not attached: {what}"));
        }
        let elsewhere = attachments.first().filter(|_| is_exclusive(&claim.object))?;
        let other = &elsewhere.object.spec.node_name;
        let what = format!(
            "volume {volume} is attached to {other}, and has to be detached from there first"
        );
        Wait::new("kube-controller-manager", what)
    })
}

/// Whether the volume of a claim can be on one node only.
fn is_exclusive(claim: &PersistentVolumeClaim) -> bool {
    let modes = &claim.spec.access_modes;
    !modes.is_empty() && modes.iter().all(|mode| mode.starts_with("ReadWriteOnce"))
}

#[cfg(test)]
mod tests;
