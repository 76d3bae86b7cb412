//! Queues a claim when it changes, when an object changes that it waits for, or when the driver
//! reconnects. A periodic resync is the safety net.

use std::sync::Arc;

use wharf_cluster::{
    Change, Key, Kind, PersistentVolume, PersistentVolumeClaim, Store, Subscription,
};
use wharf_reconcile::Handle;

use super::ResizerCore;
use crate::triggers::{Connections, Resync, subscriber};

/// The reaction to a change of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// No relevant change.
    None,
    /// Queue it after its back-off.
    Wake,
    /// Queue it now: the earlier failure was about a different request.
    Renew,
}

impl Reaction {
    pub(super) fn queue(self, key: &Key, queue: &Handle<Key>) {
        match self {
            Self::None => {}
            Self::Wake => queue.wake(Key::clone(key)),
            Self::Renew => queue.renew(Key::clone(key)),
        }
    }
}

impl ResizerCore {
    /// Queues claims that are `due` when the driver reconnects, and periodically; never returns.
    pub(super) async fn queue_due(
        &self,
        queue: &Handle<Key>,
        due: impl Fn(&PersistentVolumeClaim) -> bool,
    ) {
        let all = |reaction: Reaction| {
            for claim in self.claims.store().all().iter().filter(|claim| due(claim)) {
                reaction.queue(&claim.metadata.key().into(), queue);
            }
        };
        // A driver that reconnects may have new capabilities.
        let mut connections = Connections::of(&self.driver);
        let mut resync = Resync::every(self.options.resync);
        loop {
            tokio::select! {
                () = connections.next() => all(Reaction::Renew),
                () = resync.next() => all(Reaction::Wake),
            }
        }
    }

    /// Lets `react` decide about each change from now on.
    pub(super) fn subscribe<K: Kind>(
        self: &Arc<Self>,
        store: &Arc<Store<K>>,
        queue: &Handle<Key>,
        react: fn(&Self, &Change<'_, K>, &Handle<Key>),
    ) -> Subscription<K> {
        store.subscribe(subscriber(self, queue, react))
    }

    /// The claim of a volume that was created or bound: the claim may have been processed before
    /// that.
    pub(super) fn newly_bound(
        &self,
        change: &Change<'_, PersistentVolume>,
    ) -> Option<(Key, Arc<PersistentVolumeClaim>)> {
        let volume = change.new?;
        if change.old.is_some_and(|old| old.spec.claim_ref == volume.spec.claim_ref) {
            return None;
        }
        let bound = volume.spec.claim_ref.as_ref()?;
        let key = format!("{}/{}", bound.namespace, bound.name);
        let claim = self.claims.store().get(&key)?;
        Some((key.into(), claim))
    }
}

/// The claim that is gone, perhaps replaced by a new one of its name.
pub(super) fn replaced<'a>(
    change: &Change<'a, PersistentVolumeClaim>,
) -> Option<&'a Arc<PersistentVolumeClaim>> {
    let uid = |claim: &'a Arc<PersistentVolumeClaim>| &claim.metadata.uid;
    change.old.filter(|old| change.new.map(uid) != Some(uid(old)))
}
