//! Queues a snapshot or a content when it or an object changes that it waits for. A periodic resync
//! is the safety net.

use std::sync::Arc;

use wharf_cluster::{
    Change, DataSource, PersistentVolume, PersistentVolumeClaim, Subscription, VolumeSnapshot,
    VolumeSnapshotClass, VolumeSnapshotContent,
};

use super::{
    Queues, SnapshotControllerCore,
    decide::{is_restoring, needs_protection},
};
use crate::triggers::{Resync, subscriber};

/// Unsubscribes when it is dropped.
pub(super) struct Subscriptions {
    _contents: Subscription<VolumeSnapshotContent>,
    _classes: Subscription<VolumeSnapshotClass>,
    _claims: Subscription<PersistentVolumeClaim>,
    _volumes: Subscription<PersistentVolume>,
    _snapshots: Subscription<VolumeSnapshot>,
}

impl SnapshotControllerCore {
    /// Queues the affected objects of each change from now on. Subscribes to snapshots last: that
    /// queues each of them once at the start.
    pub(super) fn subscribe(self: &Arc<Self>, queues: &Queues) -> Subscriptions {
        Subscriptions {
            _contents: self.contents.store().subscribe({
                let queues = queues.clone();
                move |change| content_changed(&change, &queues)
            }),
            _classes: self.classes.subscribe(subscriber(self, queues, Self::class_changed)),
            _claims: self.claims.store().subscribe(subscriber(self, queues, Self::claim_changed)),
            _volumes: self.volumes.subscribe(subscriber(self, queues, Self::volume_changed)),
            _snapshots: self.snapshots.store().subscribe(subscriber(
                self,
                queues,
                Self::snapshot_changed,
            )),
        }
    }

    fn snapshot_changed(&self, change: &Change<'_, VolumeSnapshot>, queues: &Queues) {
        let Change { key, old, new } = change;
        let (old, new) = match (old, new) {
            (Some(old), None) => {
                self.options.metrics.gone(&old.metadata.uid);
                return queues.snapshots.forget(key);
            }
            (None, None) => return,
            (None, Some(_)) => return queues.snapshots.renew(Arc::clone(key)),
            (Some(old), Some(new)) => (old, new),
        };
        let (before, after) = (&old.metadata, &new.metadata);
        if before.uid != after.uid {
            self.options.metrics.gone(&before.uid);
        }
        if before.uid != after.uid || before.deleting != after.deleting || old.spec != new.spec {
            queues.snapshots.renew(Arc::clone(key));
        } else if old.status != new.status || before.finalizers != after.finalizers {
            queues.snapshots.wake(Arc::clone(key));
        }
    }

    /// Snapshots may wait for a missing class, by its name or as the default.
    fn class_changed(&self, change: &Change<'_, VolumeSnapshotClass>, queues: &Queues) {
        if change.new.is_none() {
            return;
        }
        for snapshot in self.snapshots.store().all() {
            let class = snapshot.spec.volume_snapshot_class_name.as_deref();
            if class.is_none_or(|class| class == &**change.key) {
                renew_unready(&snapshot, queues);
            }
        }
    }

    /// A snapshot may be taken of a claim, or a claim be restored from it.
    fn claim_changed(&self, change: &Change<'_, PersistentVolumeClaim>, queues: &Queues) {
        let Change { key, old, new } = change;
        let same = match (old, new) {
            (Some(old), Some(new)) => {
                old.status.phase == new.status.phase && old.spec.volume_name == new.spec.volume_name
            }
            (_, new) => new.is_none(),
        };
        if !same {
            self.renew_taken_of(key, queues);
        }
        let was_restoring = old.is_some_and(|old| is_restoring(old));
        if was_restoring
            && !new.is_some_and(|new| is_restoring(new))
            && let Some(old) = old
            && let Some(source) = old.source()
        {
            let snapshot = restored_from(source, old.metadata.namespace.as_deref());
            queues.snapshots.renew(snapshot.into());
        }
    }

    /// The watch of volumes may be behind that of claims.
    fn volume_changed(&self, change: &Change<'_, PersistentVolume>, queues: &Queues) {
        if let (None, Some(volume)) = (change.old, change.new)
            && let Some(claim) = &volume.spec.claim_ref
        {
            self.renew_taken_of(&format!("{}/{}", claim.namespace, claim.name), queues);
        }
    }

    fn renew_taken_of(&self, claim: &str, queues: &Queues) {
        for snapshot in self.snapshots.store().indexed(VolumeSnapshot::BY_CLAIM, claim) {
            renew_unready(&snapshot, queues);
        }
    }

    /// The safety net under the watches.
    pub(super) async fn resync(&self, queues: &Queues) {
        let mut resync = Resync::every(self.options.resync);
        loop {
            resync.next().await;
            for snapshot in self.snapshots.store().all() {
                queues.snapshots.wake(snapshot.metadata.key().into());
            }
            for content in self.contents.store().all() {
                if needs_protection(&content) {
                    queues.contents.wake(content.metadata.name.as_str().into());
                }
            }
        }
    }
}

fn content_changed(change: &Change<'_, VolumeSnapshotContent>, queues: &Queues) {
    let Change { key, old, new } = change;
    match new {
        None => queues.contents.forget(key),
        Some(content) if needs_protection(content) => queues.contents.wake(Arc::clone(key)),
        Some(_) => {}
    }
    let same = match (old, new) {
        (Some(old), Some(new)) => old.spec == new.spec && old.status == new.status,
        _ => false,
    };
    if !same && let Some(content) = new.or(*old) {
        let snapshot = &content.spec.volume_snapshot_ref;
        queues.snapshots.renew(format!("{}/{}", snapshot.namespace, snapshot.name).into());
    }
}

fn renew_unready(snapshot: &VolumeSnapshot, queues: &Queues) {
    if !snapshot.is_ready() {
        queues.snapshots.renew(snapshot.metadata.key().into());
    }
}

fn restored_from(source: &DataSource, namespace: Option<&str>) -> String {
    let namespace = source.namespace.as_deref().or(namespace).unwrap_or_default();
    format!("{namespace}/{}", source.name)
}
