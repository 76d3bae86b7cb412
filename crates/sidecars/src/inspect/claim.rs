//! Explains what a claim waits for.

use serde_json::Value;
use wharf_cluster::{PersistentVolumeClaim, StorageClass, VolumeSnapshot};
use wharf_facts::{annotation, finalizer};

use super::{ClusterSnapshot, Finding, Listed, Wait, held_by, pod::scheduler_message, volume};
use crate::{provisioner::Note, unsettled};

/// The component that binds claims to volumes.
const BINDER: &str = "kube-controller-manager";
/// Conditions that report errors, not all of which have events as well.
const FAILURES: [&str; 3] = ["ControllerResizeError", "NodeResizeError", "ModifyVolumeError"];
/// Provisioners of classes without dynamic provisioning.
const NO_PROVISIONER: &str = "kubernetes.io/no-provisioner";

pub(super) fn finding(cluster: &ClusterSnapshot, claim: &Listed<PersistentVolumeClaim>) -> Finding {
    let object = &claim.object;
    let phase = Some(object.status.phase.as_str()).filter(|phase| !phase.is_empty());
    let (stage, wait) = if object.metadata.deleting {
        ("Terminating", deleting(cluster, object))
    } else {
        match phase {
            Some("Bound") => bound(cluster, object),
            Some("Lost") => ("Lost", lost(object)),
            _ => ("Pending", pending(cluster, object)),
        }
    };
    let mut finding = cluster.finding("claim", claim, stage, wait);
    if finding.waits_for.is_some() {
        finding.last_error = failure(object).or(finding.last_error);
    }
    finding
}

/// The snapshot that a claim is restored from, if any.
pub(super) fn restored_from<'a>(
    cluster: &'a ClusterSnapshot,
    claim: &Listed<PersistentVolumeClaim>,
) -> Option<&'a Listed<VolumeSnapshot>> {
    let source = claim.object.source().filter(|source| source.kind == "VolumeSnapshot")?;
    let namespace = source.namespace.as_deref().or(claim.object.metadata.namespace.as_deref())?;
    cluster.snapshot(namespace, &source.name)
}

/// The wait of a claim whose CreateVolume had no final answer.
fn unsettled(cluster: &ClusterSnapshot, claim: &PersistentVolumeClaim) -> Option<Wait> {
    if !claim.metadata.has_finalizer(finalizer::UNSETTLED_VOLUME) {
        return None;
    }
    let driver = provisioner(claim).unwrap_or_default();
    let volume = unsettled::volume_name(claim);
    if cluster.volume(&volume).is_some() || claim.spec.volume_name.as_deref() == Some(&*volume) {
        let what = format!(
            "its finalizer {} has to be removed: PersistentVolume {volume} is there. wharf's provisioner does it, of a bound \
             claim also while it stands by; without it run wharf sidecars settle",
            finalizer::UNSETTLED_VOLUME
        );
        return Wait::new("provisioner", what);
    }
    let class = claim.class().unwrap_or_default();
    if claim.metadata.deleting && cluster.storage_class(class).is_none() {
        let what = format!(
            "CreateVolume has no final answer, and StorageClass {class} is gone: driver {driver} may have volume {volume}. \
             Bring the class back, or give the volume up with wharf sidecars settle"
        );
        return Wait::new("a person", what);
    }
    let change = |class: &Listed<StorageClass>| match class.object.provisioner == driver {
        true => Note::on(claim)?.difference(claim, &class.object),
        false => Some("another provisioner"),
    };
    if let Some(change) = cluster.storage_class(class).and_then(change) {
        let what = format!(
            "CreateVolume has no final answer, and StorageClass {class} has {change} than it had then: driver \
             {driver} may have volume {volume}. Bring the class back as it was, or give the volume up with wharf sidecars \
             settle"
        );
        return Wait::new("a person", what);
    }
    let next = match claim.metadata.deleting || claim.is_bound() {
        true => "and is asked again, and then to delete it",
        false => "and is asked again",
    };
    let what = format!(
        "CreateVolume has no final answer: driver {driver} may have volume {volume}, {next}"
    );
    Wait::new("provisioner", what)
}

fn deleting(cluster: &ClusterSnapshot, claim: &PersistentVolumeClaim) -> Option<Wait> {
    let meta = &claim.metadata;
    if let Some(wait) = unsettled(cluster, claim) {
        return Some(wait);
    }
    let users = names(&cluster.users(namespace(claim), &meta.name));
    if meta.has_finalizer(finalizer::PVC_PROTECTION) && !users.is_empty() {
        return Wait::new("whoever runs the pods", format!("pods still use it: {users}"));
    }
    if meta.has_finalizer(finalizer::CLONING_PROTECTION) {
        return Wait::new("provisioner", "a claim that is cloned from it is not bound yet");
    }
    if meta.has_finalizer(finalizer::PVC_SNAPSHOT_PROTECTION) {
        return Wait::new("snapshot-controller", "a snapshot of it is not ready yet");
    }
    Wait::new("the owners of its finalizers", held_by(meta))
}

fn lost(claim: &PersistentVolumeClaim) -> Option<Wait> {
    let volume = claim.spec.volume_name.as_deref().unwrap_or_default();
    let what = format!("PersistentVolume {volume} is gone: bring it back, or delete the claim");
    Wait::new("a person", what)
}

fn failure(claim: &PersistentVolumeClaim) -> Option<String> {
    let found = FAILURES.iter().find_map(|kind| Some((kind, condition(claim, kind)?)));
    found.map(|(kind, message)| format!("{kind}: {message}"))
}

/// The message of a condition, if the condition is true.
fn condition<'a>(claim: &'a PersistentVolumeClaim, kind: &str) -> Option<&'a str> {
    let mut conditions = claim.status.conditions.iter();
    let found = conditions.find(|it| it.kind == kind && it.status == "True");
    found.map(|it| it.message.as_str())
}

fn bound(cluster: &ClusterSnapshot, claim: &PersistentVolumeClaim) -> (&'static str, Option<Wait>) {
    if let Some(wait) = unsettled(cluster, claim) {
        return ("Bound", Some(wait));
    }
    let (spec, status) = (&claim.spec, &claim.status);
    if let (Some(wanted), Some(size)) = (claim.requested(), status.capacity.storage)
        && wanted > size
    {
        let grows = format!("it grows from {size} to {wanted}");
        let rest = match condition(claim, "NodeResizeError") {
            Some(_) => "which failed on its node: start its pod again, unless kubelet tries again",
            None => "and its node does the rest once a pod runs",
        };
        let wait = match status.allocated_resource_statuses.storage.as_deref() {
            Some("NodeResizePending" | "NodeResizeInProgress") => {
                Wait::new("kubelet", format!("{grows}, {rest}"))
            }
            Some(refused @ ("ControllerResizeInfeasible" | "NodeResizeInfeasible")) => Wait::new(
                "a person",
                format!("{grows}, which was refused ({refused}): ask for less"),
            ),
            _ if condition(claim, "FileSystemResizePending").is_some() => {
                Wait::new("kubelet", format!("{grows}, {rest}"))
            }
            _ => match not_served(cluster, claim) {
                Some(why) => Wait::new("a person", format!("{grows}, which nobody does: {why}")),
                None => Wait::new("resizer", grows),
            },
        };
        return ("Growing", wait);
    }
    let (wanted, current) =
        (&spec.volume_attributes_class_name, &status.current_volume_attributes_class_name);
    if let Some(wanted) = wanted.as_ref().filter(|it| !it.is_empty())
        && current.as_ref() != Some(wanted)
    {
        let infeasible =
            status.modify_volume_status.as_ref().is_some_and(|it| it.status == "Infeasible");
        let wait = match infeasible {
            true => {
                Wait::new("a person", format!("the driver refuses VolumeAttributesClass {wanted}"))
            }
            false => Wait::new("resizer", format!("it gets VolumeAttributesClass {wanted}")),
        };
        return ("Modifying", wait);
    }
    let volume = spec.volume_name.as_deref().unwrap_or_default();
    if cluster.volume(volume).is_none() {
        let what = format!("PersistentVolume {volume} is gone: bring it back, or delete the claim");
        return ("Bound", Wait::new("a person", what));
    }
    ("Bound", None)
}

fn pending(cluster: &ClusterSnapshot, claim: &PersistentVolumeClaim) -> Option<Wait> {
    if let Some(volume) = claim.spec.volume_name.as_deref().filter(|name| !name.is_empty()) {
        return wished_for(cluster, claim, volume);
    }
    let class = match claim.spec.storage_class_name.as_deref() {
        Some("") => {
            return Wait::new(
                "a person",
                "it wants no class: a PersistentVolume has to be made for it",
            );
        }
        None => {
            return Wait::new("a person", "it names no class, and no StorageClass is the default");
        }
        Some(name) => match cluster.storage_class(name) {
            Some(class) => &class.object,
            None => return Wait::new("a person", format!("StorageClass {name} does not exist")),
        },
    };
    if class.provisioner == NO_PROVISIONER {
        let name = &class.metadata.name;
        let what = format!("volumes of StorageClass {name} are made by hand: make one that fits");
        return Wait::new("a person", what);
    }
    if class.waits_for_consumer() && selected_node(claim).is_none() {
        return Some(first_consumer(cluster, claim));
    }
    if provisioner(claim).is_none() {
        let what = format!("it has yet to be given to driver {}", class.provisioner);
        return Wait::new(BINDER, what);
    }
    let unsettled = unsettled(cluster, claim);
    unsettled.or_else(|| source(cluster, claim)).or_else(|| provisioning(cluster, claim, class))
}

fn wished_for(
    cluster: &ClusterSnapshot,
    claim: &PersistentVolumeClaim,
    volume: &str,
) -> Option<Wait> {
    let Some(found) = cluster.volume(volume) else {
        return Wait::new(
            "a person",
            format!("it names PersistentVolume {volume}, which is not there"),
        );
    };
    match &found.object.spec.claim_ref {
        Some(other) if other.uid != claim.metadata.uid && !other.uid.is_empty() => {
            let owner = format!("{}/{}", other.namespace, other.name);
            Wait::new("a person", format!("PersistentVolume {volume} belongs to claim {owner}"))
        }
        _ => Wait::new(BINDER, format!("it is to be bound to PersistentVolume {volume}")),
    }
}

/// Explains a claim whose volume is created on the node of its first pod.
fn first_consumer(cluster: &ClusterSnapshot, claim: &PersistentVolumeClaim) -> Wait {
    let users = cluster.users(namespace(claim), &claim.metadata.name);
    let (who, what) = match users.first() {
        None => {
            ("a person", "its class waits for a pod that uses it, and there is none".to_owned())
        }
        Some(pod) => {
            let said = scheduler_message(pod).map(|text| format!(": {text}")).unwrap_or_default();
            ("kube-scheduler", format!("its pod {} has no node yet{said}", names(&users)))
        }
    };
    Wait { who: who.to_owned(), what }
}

fn source(cluster: &ClusterSnapshot, claim: &PersistentVolumeClaim) -> Option<Wait> {
    let source = claim.source()?;
    let namespace = source.namespace.as_deref().unwrap_or(namespace(claim));
    let name = &source.name;
    match source.kind.as_str() {
        "VolumeSnapshot" => match cluster.snapshot(namespace, name) {
            None => {
                Wait::new("a person", format!("VolumeSnapshot {namespace}/{name} does not exist"))
            }
            Some(it) if !it.object.is_ready() => {
                Wait::new("snapshotter", format!("VolumeSnapshot {namespace}/{name} is not ready"))
            }
            Some(_) => None,
        },
        "PersistentVolumeClaim" => match cluster.claim(namespace, name) {
            None => Wait::new(
                "a person",
                format!("claim {namespace}/{name}, its source, does not exist"),
            ),
            Some(it) if it.object.status.phase != "Bound" => Wait::new(
                "provisioner",
                format!("claim {namespace}/{name}, its source, is not bound"),
            ),
            Some(_) => None,
        },
        kind => {
            Wait::new("a volume populator", format!("it is filled from {kind} {namespace}/{name}"))
        }
    }
}

fn provisioning(
    cluster: &ClusterSnapshot,
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
) -> Option<Wait> {
    let driver = &class.provisioner;
    if let Some(node) = selected_node(claim)
        && !cluster.has_driver(node, driver)
    {
        let what = format!("driver {driver} has not registered on node {node}");
        return Wait::new("registrar", what);
    }
    if let Some(message) = cluster.not_served(&claim.metadata.uid) {
        return Wait::new("a person", message);
    }
    Wait::new("provisioner", format!("driver {driver} has to make its volume"))
}

/// Why the volume of a claim is not served by sidecars.
fn not_served(cluster: &ClusterSnapshot, claim: &PersistentVolumeClaim) -> Option<String> {
    let volume = cluster.volume(claim.spec.volume_name.as_deref()?)?;
    volume::in_tree_message(&volume.object)
}

fn namespace(claim: &PersistentVolumeClaim) -> &str {
    claim.metadata.namespace.as_deref().unwrap_or_default()
}

fn selected_node(claim: &PersistentVolumeClaim) -> Option<&str> {
    claim.metadata.annotations.get(annotation::SELECTED_NODE).filter(|node| !node.is_empty())
}

fn provisioner(claim: &PersistentVolumeClaim) -> Option<&str> {
    let annotations = &claim.metadata.annotations;
    let beta = || annotations.get(annotation::STORAGE_PROVISIONER_BETA);
    annotations.get(annotation::STORAGE_PROVISIONER).or_else(beta)
}

fn names(pods: &[&Value]) -> String {
    let names = pods.iter().filter_map(|pod| pod["metadata"]["name"].as_str());
    names.collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests;
