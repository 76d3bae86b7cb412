//! Explains what a volume waits for.

use wharf_cluster::PersistentVolume;
use wharf_facts::{annotation, finalizer};

use super::{ClusterSnapshot, Finding, Listed, Wait, held_by};
use crate::not_served::volume_message;

/// The component that deletes volumes of in-tree plugins that were not migrated.
const PV_CONTROLLER: &str = "kube-controller-manager";

pub(super) fn finding(cluster: &ClusterSnapshot, volume: &Listed<PersistentVolume>) -> Finding {
    let object = &volume.object;
    let phase = object.status.phase.as_str();
    let (stage, wait) = match phase {
        _ if object.metadata.deleting => ("Terminating", deleting(cluster, object)),
        "Released" if object.spec.persistent_volume_reclaim_policy == "Delete" => {
            (phase, unused(cluster, object))
        }
        "Released" => (phase, kept(object)),
        "Failed" => {
            (phase, Wait::new("a person", "its claim is gone, and it could not be reclaimed"))
        }
        "" => ("Pending", None),
        _ => (phase, None),
    };
    cluster.finding("volume", volume, stage, not_served(cluster, object, wait.as_ref()).or(wait))
}

/// Why wharf's sidecars do not serve a volume of an in-tree plugin; `None` for other volumes.
pub(super) fn in_tree_message(volume: &PersistentVolume) -> Option<String> {
    let annotated = volume.metadata.annotations.get(annotation::MIGRATED_TO);
    let plugin = volume.spec.in_tree().map(|plugin| plugin.driver);
    annotated.into_iter().chain(plugin).find_map(|driver| volume_message(volume, driver))
}

/// The wait of a volume that wharf's sidecars do not serve, if a sidecar has reported so, or a
/// component has to act now or once a pod uses the volume.
fn not_served(
    cluster: &ClusterSnapshot,
    volume: &PersistentVolume,
    wait: Option<&Wait>,
) -> Option<Wait> {
    let message = in_tree_message(volume)?;
    let of_sidecars = ["attacher", "provisioner", PV_CONTROLLER];
    match wait {
        Some(wait) if of_sidecars.contains(&wait.who.as_str()) => Wait::new("a person", message),
        Some(_) => None,
        None if cluster.not_served(&volume.metadata.uid).is_some() => {
            Wait::new("a person", message)
        }
        // The event is deleted after an hour, or was never written. No object shows whose sidecars
        // serve the driver.
        None if is_idle(cluster, volume) => {
            Wait::new("a person", format!("if wharf's sidecars serve its driver: {message}"))
        }
        None => None,
    }
}

/// Whether a volume of an in-tree plugin needs a sidecar when a pod uses it next. A volume that is
/// attached was served by other sidecars. If no node has the driver, the plugin is not migrated to
/// it.
fn is_idle(cluster: &ClusterSnapshot, volume: &PersistentVolume) -> bool {
    let plugin = volume.spec.in_tree().map(|plugin| plugin.driver);
    let annotated = volume.metadata.annotations.get(annotation::MIGRATED_TO);
    let is_migrated = plugin.into_iter().chain(annotated).any(|it| cluster.is_anywhere(it));
    let mut attachments = cluster.attachments_of(&volume.metadata.name);
    is_migrated && !attachments.any(|it| it.object.status.attached)
}

fn kept(volume: &PersistentVolume) -> Option<Wait> {
    let name = &volume.metadata.name;
    let what = format!("its claim is gone and its data is kept: save it, then delete {name}");
    Wait::new("a person", what)
}

/// The wait of a volume whose claim is gone.
fn unused(cluster: &ClusterSnapshot, volume: &PersistentVolume) -> Option<Wait> {
    attached(cluster, volume).or_else(|| match &volume.spec.csi {
        Some(csi) => Wait::new("provisioner", format!("driver {} has to delete it", csi.driver)),
        None => Wait::new(PV_CONTROLLER, "it has to be deleted"),
    })
}

fn deleting(cluster: &ClusterSnapshot, volume: &PersistentVolume) -> Option<Wait> {
    let meta = &volume.metadata;
    let phase = volume.status.phase.as_str();
    if meta.has_finalizer(finalizer::PV_PROTECTION) && phase == "Bound" {
        return Wait::new("a person", "it is bound: its claim has to go first");
    }
    if let Some(wait) = attached(cluster, volume) {
        return Some(wait);
    }
    if meta.has_finalizer(finalizer::PROVISIONER) {
        return Wait::new("provisioner", "its driver has to delete it");
    }
    let attacher = volume.spec.csi.as_ref().map(|csi| finalizer::attacher(&csi.driver));
    if attacher.is_some_and(|it| meta.has_finalizer(&it)) {
        return Wait::new("attacher", "nothing is attached any more, and its finalizer has to go");
    }
    Wait::new("the owners of its finalizers", held_by(meta))
}

fn attached(cluster: &ClusterSnapshot, volume: &PersistentVolume) -> Option<Wait> {
    let nodes: Vec<&str> = cluster
        .attachments_of(&volume.metadata.name)
        .map(|it| it.object.spec.node_name.as_str())
        .collect();
    if nodes.is_empty() {
        return None;
    }
    Wait::new("attacher", format!("it has to be detached from {}", nodes.join(", ")))
}
