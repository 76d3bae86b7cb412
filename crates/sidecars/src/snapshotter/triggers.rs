//! Queues a content when it or its class changes, or when the driver reconnects. A periodic resync
//! is the safety net.

use std::sync::Arc;

use wharf_cluster::{Change, Key, Subscription, VolumeSnapshotClass, VolumeSnapshotContent};
use wharf_reconcile::Handle;

use super::{
    SnapshotterCore,
    decide::{Reaction, Step, next, reaction},
};
use crate::triggers::{Connections, Resync, subscriber};

/// Unsubscribes when it is dropped.
pub(super) struct Subscriptions {
    _classes: Subscription<VolumeSnapshotClass>,
    _contents: Subscription<VolumeSnapshotContent>,
}

impl SnapshotterCore {
    /// Queues the affected contents of each change from now on.
    pub(super) fn subscribe(self: &Arc<Self>, queue: &Handle<Key>) -> Subscriptions {
        Subscriptions {
            _classes: self.classes.subscribe(subscriber(self, queue, Self::class_changed)),
            _contents: self.contents.store().subscribe(subscriber(
                self,
                queue,
                Self::content_changed,
            )),
        }
    }

    /// Contents may wait for a missing class.
    fn class_changed(&self, change: &Change<'_, VolumeSnapshotClass>, queue: &Handle<Key>) {
        let is_of = |content: &VolumeSnapshotContent| {
            content.spec.volume_snapshot_class_name.as_deref() == Some(&**change.key)
        };
        if change.new.is_some() {
            self.renew_unfinished(queue, is_of);
        }
    }

    fn content_changed(&self, change: &Change<'_, VolumeSnapshotContent>, queue: &Handle<Key>) {
        let Change { key, old, new } = change;
        match reaction(old.map(AsRef::as_ref), new.map(AsRef::as_ref)) {
            Reaction::None => {}
            Reaction::Wake => queue.wake(Arc::clone(key)),
            Reaction::Renew => queue.renew(Arc::clone(key)),
            Reaction::Forget => {
                old.iter().for_each(|content| self.asked.settled(content));
                queue.forget(key);
            }
        }
    }

    /// A driver that reconnects may have new capabilities.
    pub(super) async fn reconnections(&self, queue: &Handle<Key>) {
        let mut connections = Connections::of(&self.driver);
        loop {
            connections.next().await;
            self.renew_unfinished(queue, |_| true);
        }
    }

    /// The safety net under the watches.
    pub(super) async fn resync(&self, queue: &Handle<Key>) {
        let mut resync = Resync::every(self.options.resync);
        loop {
            resync.next().await;
            for content in self.contents.store().all() {
                queue.wake(content.metadata.name.as_str().into());
            }
        }
    }

    /// Resets the back-off of unfinished contents.
    fn renew_unfinished(
        &self,
        queue: &Handle<Key>,
        concerns: impl Fn(&VolumeSnapshotContent) -> bool,
    ) {
        for content in self.contents.store().all() {
            if next(&content) != Step::Nothing && concerns(&content) {
                queue.renew(content.metadata.name.as_str().into());
            }
        }
    }
}
