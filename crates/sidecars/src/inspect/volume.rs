//! What a volume waits for.

use wharf_cluster::PersistentVolume;
use wharf_facts::finalizer;

use super::{Finding, Listed, Wait, World, held_by};

pub(super) fn finding(world: &World, volume: &Listed<PersistentVolume>) -> Finding {
    let object = &volume.object;
    let phase = object.status.phase.as_str();
    let (stage, wait) = match phase {
        _ if object.metadata.deleting => ("Terminating", deleting(world, object)),
        "Released" if object.spec.persistent_volume_reclaim_policy == "Delete" => {
            (phase, unused(world, object))
        }
        "Released" => (phase, kept(object)),
        "Failed" => {
            (phase, Wait::new("a person", "its claim is gone, and it could not be reclaimed"))
        }
        "" => ("Pending", None),
        _ => (phase, None),
    };
    world.finding("volume", volume, stage, wait)
}

fn kept(volume: &PersistentVolume) -> Option<Wait> {
    let name = &volume.metadata.name;
    let what = format!("its claim is gone and its data is kept: save it, then delete {name}");
    Wait::new("a person", what)
}

/// Its claim is gone.
fn unused(world: &World, volume: &PersistentVolume) -> Option<Wait> {
    attached(world, volume).or_else(|| match &volume.spec.csi {
        Some(csi) => Wait::new("provisioner", format!("driver {} has to delete it", csi.driver)),
        None => Wait::new("kube-controller-manager", "it has to be deleted"),
    })
}

fn deleting(world: &World, volume: &PersistentVolume) -> Option<Wait> {
    let meta = &volume.metadata;
    let phase = volume.status.phase.as_str();
    if meta.has_finalizer(finalizer::PV_PROTECTION) && phase == "Bound" {
        return Wait::new("a person", "it is bound: its claim has to go first");
    }
    if let Some(wait) = attached(world, volume) {
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

fn attached(world: &World, volume: &PersistentVolume) -> Option<Wait> {
    let nodes: Vec<&str> = world
        .attachments_of(&volume.metadata.name)
        .map(|it| it.object.spec.node_name.as_str())
        .collect();
    if nodes.is_empty() {
        return None;
    }
    Wait::new("attacher", format!("it has to be detached from {}", nodes.join(", ")))
}
