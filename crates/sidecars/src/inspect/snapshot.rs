//! Explains what a snapshot waits for.

use wharf_cluster::VolumeSnapshot;

use super::{ClusterSnapshot, Finding, Listed, Wait, content, held_by};

/// The component that binds snapshots to contents.
const BINDER: &str = "snapshot-controller";

pub(super) fn finding(cluster: &ClusterSnapshot, snapshot: &Listed<VolumeSnapshot>) -> Finding {
    let object = &snapshot.object;
    let (stage, wait) = match (object.metadata.deleting, object.is_ready()) {
        (true, _) => ("Terminating", deleting(cluster, object)),
        (false, true) => ("Ready", None),
        (false, false) => ("Pending", pending(cluster, object)),
    };
    let error = object.status.as_ref().and_then(|status| status.error.as_ref());
    let last_error = error.and_then(|error| error.message.clone()).filter(|_| wait.is_some());
    let finding = cluster.finding("snapshot", snapshot, stage, wait);
    Finding { last_error: last_error.or(finding.last_error), ..finding }
}

fn pending(cluster: &ClusterSnapshot, snapshot: &VolumeSnapshot) -> Option<Wait> {
    let namespace = snapshot.metadata.namespace.as_deref().unwrap_or_default();
    let spec = &snapshot.spec;
    if let Some(name) = snapshot.bound_content() {
        return match cluster.content(name) {
            None => Wait::new("a person", format!("VolumeSnapshotContent {name} is gone")),
            Some(it) if it.object.is_ready() => Wait::new(BINDER, "it has to say that it is ready"),
            Some(it) => content::pending(cluster, &it.object),
        };
    }
    if let Some(class) = spec.volume_snapshot_class_name.as_deref()
        && cluster.snapshot_class(class).is_none()
    {
        return Wait::new("a person", format!("VolumeSnapshotClass {class} does not exist"));
    }
    if let Some(claim) = spec.source.persistent_volume_claim_name.as_deref() {
        match cluster.claim(namespace, claim) {
            None => {
                return Wait::new("a person", format!("claim {namespace}/{claim} does not exist"));
            }
            Some(it) if it.object.status.phase != "Bound" => {
                let who = super::claim::finding(cluster, it).who;
                let what = format!("claim {namespace}/{claim} is not bound");
                return Wait::new(who.unwrap_or_else(|| "a person".to_owned()), what);
            }
            Some(_) => {}
        }
    }
    if let Some(content) = spec.source.volume_snapshot_content_name.as_deref()
        && cluster.content(content).is_none()
    {
        return Wait::new("a person", format!("VolumeSnapshotContent {content} does not exist"));
    }
    Wait::new(BINDER, "it has to be bound to a content")
}

fn deleting(cluster: &ClusterSnapshot, snapshot: &VolumeSnapshot) -> Option<Wait> {
    let meta = &snapshot.metadata;
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let restoring = cluster.claims.iter().find(|it| {
        let claim = &it.object;
        let own = claim.metadata.namespace.as_deref() == Some(namespace);
        let from = |source: &wharf_cluster::DataSource| {
            source.kind == "VolumeSnapshot" && source.name == meta.name
        };
        own && claim.status.phase == "Pending" && claim.source().is_some_and(from)
    });
    if let Some(claim) = restoring {
        let name = &claim.object.metadata.name;
        return Wait::new("provisioner", format!("claim {namespace}/{name} is restored from it"));
    }
    match snapshot.bound_content().and_then(|name| cluster.content(name)) {
        Some(content) if content.object.metadata.deleting => {
            content::leaving(cluster, &content.object)
        }
        Some(_) => Wait::new(BINDER, "its content has to be deleted or released"),
        None => Wait::new("the owners of its finalizers", held_by(meta)),
    }
}
