use std::sync::Arc;

use wharf_cluster::{
    Change, Key, PersistentVolume, PersistentVolumeClaim, Subscription, VolumeAttributesClass,
};
use wharf_reconcile::Handle;

use super::{ModificationState, decide::wished};
use crate::resizer::{
    ResizerCore,
    triggers::{Reaction, replaced},
};

/// Unsubscribes when it is dropped.
pub(super) struct Subscriptions {
    _claims: Subscription<PersistentVolumeClaim>,
    _volumes: Subscription<PersistentVolume>,
    _classes: Subscription<VolumeAttributesClass>,
}

impl ResizerCore {
    /// Queues the affected claims of each change from now on.
    pub(super) fn subscribe_modifications(self: &Arc<Self>, queue: &Handle<Key>) -> Subscriptions {
        Subscriptions {
            _volumes: self.subscribe(self.volumes.store(), queue, Self::modified_volume_changed),
            _classes: self.subscribe(self.classes.store(), queue, Self::class_changed),
            _claims: self.subscribe(self.claims.store(), queue, Self::modified_claim_changed),
        }
    }

    fn modified_claim_changed(
        &self,
        change: &Change<'_, PersistentVolumeClaim>,
        queue: &Handle<Key>,
    ) {
        let Change { key, old, new } = change;
        if let Some(gone) = replaced(change) {
            self.changes.forget(gone);
        }
        match new {
            None => queue.forget(key),
            Some(new) if self.is_modification_due(new) => {
                reaction(old.map(AsRef::as_ref), new).queue(key, queue);
            }
            Some(_) => {}
        }
    }

    fn modified_volume_changed(&self, change: &Change<'_, PersistentVolume>, queue: &Handle<Key>) {
        if let Some((key, claim)) = self.newly_bound(change)
            && self.is_modification_due(&claim)
        {
            queue.renew(key);
        }
    }

    /// A class may be requested before it exists. A class never changes, but one that was deleted
    /// and created again under its name may suit the driver although the first did not.
    fn class_changed(&self, change: &Change<'_, VolumeAttributesClass>, queue: &Handle<Key>) {
        if change.old.is_some() || change.new.is_none() {
            return;
        }
        for claim in self.claims.store().all() {
            if wished(&claim) == &**change.key && self.is_modification_due(&claim) {
                let state = ModificationState { infeasible: None, ..self.changes.of(&claim) };
                self.note(&claim, state);
                queue.renew(claim.metadata.key().into());
            }
        }
    }
}

/// The reaction to a change of a claim that needs a step.
fn reaction(old: Option<&PersistentVolumeClaim>, new: &PersistentVolumeClaim) -> Reaction {
    let Some(old) = old else { return Reaction::Renew };
    let asked = |it: &PersistentVolumeClaim| {
        let phase = it.status.phase.clone();
        (it.metadata.uid.clone(), wished(it).to_owned(), it.spec.volume_name.clone(), phase)
    };
    if asked(old) != asked(new) {
        return Reaction::Renew;
    }
    let (before, after) = (&old.status, &new.status);
    let moved = before.modify_volume_status != after.modify_volume_status
        || before.current_volume_attributes_class_name
            != after.current_volume_attributes_class_name;
    if moved { Reaction::Wake } else { Reaction::None }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn claim(wished: &str, status: &Value) -> PersistentVolumeClaim {
        let spec = json!({ "volumeAttributesClassName": wished });
        serde_json::from_value(json!({ "spec": spec, "status": status })).unwrap()
    }

    #[test]
    fn only_another_wish_ends_a_back_off() {
        let old = claim("gold", &json!({}));
        assert_eq!(reaction(None, &old), Reaction::Renew);
        assert_eq!(reaction(Some(&old), &old), Reaction::None);
        assert_eq!(reaction(Some(&old), &claim("silver", &json!({}))), Reaction::Renew);
        let begun = json!({ "modifyVolumeStatus": { "status": "InProgress" } });
        assert_eq!(reaction(Some(&old), &claim("gold", &begun)), Reaction::Wake);
        let error = json!({ "conditions": [{ "type": "ModifyVolumeError" }] });
        assert_eq!(reaction(Some(&old), &claim("gold", &error)), Reaction::None);
    }
}
