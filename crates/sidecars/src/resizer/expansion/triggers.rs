use std::sync::Arc;

use wharf_cluster::{Change, Key, PersistentVolume, PersistentVolumeClaim, Pod, Subscription};
use wharf_facts::annotation;
use wharf_reconcile::Handle;

use crate::resizer::{
    ResizerCore,
    triggers::{Reaction, replaced},
};

/// Unsubscribes when it is dropped.
pub(super) struct Subscriptions {
    _claims: Subscription<PersistentVolumeClaim>,
    _volumes: Subscription<PersistentVolume>,
    _pods: Subscription<Pod>,
}

impl ResizerCore {
    /// Queues the affected claims of each change from now on.
    pub(super) fn subscribe_expansions(self: &Arc<Self>, queue: &Handle<Key>) -> Subscriptions {
        Subscriptions {
            _volumes: self.subscribe(self.volumes.store(), queue, Self::volume_changed),
            _pods: self.subscribe(&self.pods, queue, Self::pod_changed),
            _claims: self.subscribe(self.claims.store(), queue, Self::claim_changed),
        }
    }

    fn claim_changed(&self, change: &Change<'_, PersistentVolumeClaim>, queue: &Handle<Key>) {
        let Change { key, old, new } = change;
        if let Some(gone) = replaced(change) {
            self.expansion_states.forget(gone);
        }
        match new {
            None => queue.forget(key),
            Some(new) if self.is_expansion_due(new) => {
                reaction(old.map(AsRef::as_ref), new).queue(key, queue);
            }
            Some(_) => {}
        }
    }

    fn volume_changed(&self, change: &Change<'_, PersistentVolume>, queue: &Handle<Key>) {
        if let Some((key, claim)) = self.newly_bound(change)
            && self.is_expansion_due(&claim)
        {
            queue.renew(key);
        }
    }

    /// The driver may wait for the last pod that used a claim.
    fn pod_changed(&self, change: &Change<'_, Pod>, queue: &Handle<Key>) {
        if change.new.is_some() {
            return;
        }
        for claim in change.old.iter().flat_map(|pod| pod.claim_keys()) {
            let known = self.claims.store().get(&claim);
            let waits = known.is_some_and(|known| self.expansion_states.of(&known).in_use);
            if waits && !self.pods.is_indexed(Pod::BY_CLAIM, &claim) {
                queue.renew(claim.into());
            }
        }
    }
}

/// The reaction to a change of a claim that needs a step. Errors in the status are our own, and no
/// trigger.
fn reaction(old: Option<&PersistentVolumeClaim>, new: &PersistentVolumeClaim) -> Reaction {
    let Some(old) = old else { return Reaction::Renew };
    let key = annotation::STORAGE_RESIZER;
    let asked = |it: &PersistentVolumeClaim| {
        let resizer = it.metadata.annotations.get(key).map(str::to_owned);
        (it.metadata.uid.clone(), it.requested(), it.spec.volume_name.clone(), resizer)
    };
    if asked(old) != asked(new) || old.status.phase != new.status.phase {
        return Reaction::Renew;
    }
    let (before, after) = (&old.status, &new.status);
    let moved = before.capacity != after.capacity
        || before.allocated_resource_statuses != after.allocated_resource_statuses;
    if moved { Reaction::Wake } else { Reaction::None }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(change: impl FnOnce(&mut Value)) -> PersistentVolumeClaim {
        let mut claim = json!({
            "metadata": { "name": "c", "uid": "u", "annotations": {} },
            "spec": { "volumeName": "v", "resources": { "requests": { "storage": "2Gi" } } },
            "status": { "phase": "Bound", "capacity": { "storage": "1Gi" } },
        });
        change(&mut claim);
        serde_json::from_value(claim).unwrap()
    }

    #[test]
    fn only_what_asks_for_another_size_ends_a_back_off() {
        let old = claim(|_| {});
        let of = |change: &dyn Fn(&mut Value)| reaction(Some(&old), &claim(change));
        assert_eq!(reaction(None, &old), Reaction::Renew);
        assert_eq!(of(&|_| {}), Reaction::None);
        let size = |size: &str| json!({ "storage": size });
        for asked in ["3Gi", "1536Mi"] {
            assert_eq!(
                of(&|it| it["spec"]["resources"]["requests"] = size(asked)),
                Reaction::Renew
            );
        }
        assert_eq!(of(&|it| it["metadata"]["uid"] = json!("other")), Reaction::Renew);
        let resizer = json!({ annotation::STORAGE_RESIZER: "csi.test" });
        assert_eq!(of(&|it| it["metadata"]["annotations"] = resizer.clone()), Reaction::Renew);
        assert_eq!(of(&|it| it["status"]["capacity"] = size("2Gi")), Reaction::Wake);
        let status = size("NodeResizeInfeasible");
        assert_eq!(
            of(&|it| it["status"]["allocatedResourceStatuses"] = status.clone()),
            Reaction::Wake
        );
        let error = json!([{ "type": "ControllerResizeError", "status": "True" }]);
        assert_eq!(of(&|it| it["status"]["conditions"] = error.clone()), Reaction::None);
        assert_eq!(of(&|it| it["metadata"]["labels"] = json!({ "a": "b" })), Reaction::None);
    }
}
