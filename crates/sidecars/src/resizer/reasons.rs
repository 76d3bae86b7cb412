//! What makes a claim be looked at: a change of it, of one that it waits for, or of the driver. Time is a safety net.

use std::sync::Arc;

use wharf_cluster::{
    Change, Key, Kind, PersistentVolume, PersistentVolumeClaim, Store, Subscription,
};
use wharf_reconcile::Handle;

use super::Shared;
use crate::occasions::{Connections, Resync, told};

/// What a change of a claim is a reason for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reaction {
    /// Nothing that counts has changed.
    None,
    /// Look at it when its back-off allows.
    Wake,
    /// Look at it now: what failed before was another question.
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

impl Shared {
    /// Queues claims that are `due` when the driver comes back, and now and then; never ends.
    pub(super) async fn look_again(
        &self,
        queue: &Handle<Key>,
        due: impl Fn(&PersistentVolumeClaim) -> bool,
    ) {
        let all = |reaction: Reaction| {
            for claim in self.claims.store().all().iter().filter(|claim| due(claim)) {
                reaction.queue(&claim.metadata.key().into(), queue);
            }
        };
        // A driver that comes back may do what it could not before.
        let mut connections = Connections::of(&self.driver);
        let mut resync = Resync::every(self.options.resync);
        loop {
            tokio::select! {
                () = connections.next() => all(Reaction::Renew),
                () = resync.next() => all(Reaction::Wake),
            }
        }
    }

    /// Has `react` decide about each change from now on.
    pub(super) fn subscribe<K: Kind>(
        self: &Arc<Self>,
        store: &Arc<Store<K>>,
        queue: &Handle<Key>,
        react: fn(&Self, &Change<'_, K>, &Handle<Key>),
    ) -> Subscription<K> {
        store.subscribe(told(self, queue, react))
    }

    /// The claim of a volume that has appeared, or was bound: the claim may have been seen before that.
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

/// The claim that is gone, maybe with another one under its name.
pub(super) fn replaced<'a>(
    change: &Change<'a, PersistentVolumeClaim>,
) -> Option<&'a Arc<PersistentVolumeClaim>> {
    let uid = |claim: &'a Arc<PersistentVolumeClaim>| &claim.metadata.uid;
    change.old.filter(|old| change.new.map(uid) != Some(uid(old)))
}
