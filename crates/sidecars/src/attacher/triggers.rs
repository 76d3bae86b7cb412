//! Queues an object when it changes, when an object changes that it waits for, or when the driver
//! reconnects. A periodic resync is the safety net.

use std::sync::Arc;

use wharf_cluster::{Change, CsiNode, PersistentVolume, Subscription, VolumeAttachment};

use super::{
    AttacherCore, Queues,
    decide::{Reaction, reaction, releases},
};
use crate::triggers::{Connections, Resync, subscriber};

/// Unsubscribes when it is dropped.
pub(super) struct Subscriptions {
    _attachments: Subscription<VolumeAttachment>,
    _volumes: Subscription<PersistentVolume>,
    _nodes: Subscription<CsiNode>,
}

impl AttacherCore {
    /// Queues the affected objects of each change from now on.
    pub(super) fn subscribe(self: &Arc<Self>, queues: &Queues) -> Subscriptions {
        Subscriptions {
            _volumes: self.volumes.store().subscribe(subscriber(
                self,
                queues,
                Self::volume_changed,
            )),
            _nodes: self.nodes.subscribe(subscriber(self, queues, Self::node_changed)),
            _attachments: self.attachments.store().subscribe(subscriber(
                self,
                queues,
                Self::attachment_changed,
            )),
        }
    }

    fn attachment_changed(&self, change: &Change<'_, VolumeAttachment>, queues: &Queues) {
        let Change { key, old, new } = change;
        // The deletion of a volume may wait for its last attachment, on any node.
        if let (Some(old), None) = (old, new)
            && let Some(volume) = &old.spec.source.persistent_volume_name
        {
            queues.volumes.wake(volume.as_str().into());
        }
        if !new.or(*old).is_some_and(|attachment| self.serves(attachment)) {
            return;
        }
        match reaction(old.map(AsRef::as_ref), new.map(AsRef::as_ref)) {
            Reaction::None => {}
            Reaction::Wake => queues.attachments.wake(Arc::clone(key)),
            Reaction::Renew => queues.attachments.renew(Arc::clone(key)),
            Reaction::Forget => queues.attachments.forget(key),
        }
    }

    fn volume_changed(&self, change: &Change<'_, PersistentVolume>, queues: &Queues) {
        let Some(volume) = change.new else { return };
        if releases(volume, &self.finalizer, &self.options.driver) {
            queues.volumes.wake(Arc::clone(change.key));
        }
        if change.old.is_none() {
            let waiting = self.attachments.store();
            let waiting = waiting.indexed(VolumeAttachment::BY_VOLUME, change.key);
            self.renew_unfinished(&waiting, queues);
        }
    }

    fn node_changed(&self, change: &Change<'_, CsiNode>, queues: &Queues) {
        let id = |node: Option<&Arc<CsiNode>>| {
            node.and_then(|node| node.node_id(&self.options.driver)).map(str::to_owned)
        };
        if let Some(now) = id(change.new)
            && id(change.old) != Some(now)
        {
            let waiting = self.attachments.store();
            let waiting = waiting.indexed(VolumeAttachment::BY_NODE, change.key);
            self.renew_unfinished(&waiting, queues);
        }
    }

    /// A driver that reconnects may have new capabilities.
    pub(super) async fn reconnections(&self, queues: &Queues) {
        let mut connections = Connections::of(&self.driver);
        loop {
            connections.next().await;
            self.renew_unfinished(&self.attachments.store().all(), queues);
        }
    }

    /// The safety net under the watches.
    pub(super) async fn resync(&self, queues: &Queues) {
        let mut resync = Resync::every(self.options.resync);
        loop {
            resync.next().await;
            for attachment in self.attachments.store().all().iter().filter(|it| self.serves(it)) {
                queues.attachments.wake(attachment.metadata.name.as_str().into());
            }
            for volume in self.volumes.store().all() {
                queues.volumes.wake(volume.metadata.name.as_str().into());
            }
        }
    }

    /// Resets the back-off of unfinished attachments.
    fn renew_unfinished(&self, attachments: &[Arc<VolumeAttachment>], queues: &Queues) {
        for attachment in attachments.iter().filter(|it| self.serves(it)) {
            if attachment.metadata.deleting || !attachment.status.attached {
                queues.attachments.renew(attachment.metadata.name.as_str().into());
            }
        }
    }
}
