//! Queues an object when it changes, when an object changes that it waits for, or when the driver
//! reconnects. A periodic resync is the safety net.

use std::sync::Arc;

use wharf_cluster::{
    Change, CsiNode, PersistentVolume, PersistentVolumeClaim, StorageClass, Subscription,
    VolumeAttachment,
};

use super::{
    ProvisionerCore, Queues,
    claim::ClaimKey,
    decide::{Reaction, VolumeNeed, concerns, reaction},
    plan::in_namespace_of,
    protection::Protected,
    source::{CLAIM, DataSource},
};
use crate::triggers::{Connections, Resync, subscriber};

/// Unsubscribes when it is dropped.
pub(super) struct Subscriptions {
    _claims: Subscription<PersistentVolumeClaim>,
    _volumes: Subscription<PersistentVolume>,
    _classes: Subscription<StorageClass>,
    _attachments: Subscription<VolumeAttachment>,
    _nodes: Subscription<CsiNode>,
}

impl ProvisionerCore {
    /// Queues the affected objects of each change from now on.
    pub(super) fn subscribe(self: &Arc<Self>, queues: &Queues) -> Subscriptions {
        Subscriptions {
            _volumes: self.volumes.store().subscribe(subscriber(
                self,
                queues,
                Self::volume_changed,
            )),
            _classes: self.classes.subscribe(subscriber(self, queues, Self::class_changed)),
            _attachments: self.attachments.subscribe(subscriber(
                self,
                queues,
                Self::attachment_changed,
            )),
            _nodes: self.csi_nodes.subscribe(subscriber(self, queues, Self::node_changed)),
            _claims: self.claims.store().subscribe(subscriber(self, queues, Self::claim_changed)),
        }
    }

    fn claim_changed(&self, change: &Change<'_, PersistentVolumeClaim>, queues: &Queues) {
        let (old, new) = (change.old.map(AsRef::as_ref), change.new.map(AsRef::as_ref));
        let Some(claim) = new.or(old) else { return };
        if let Some(old) = old.filter(|old| old.metadata.uid != claim.metadata.uid) {
            queues.claims.wake(ClaimKey::of(old));
        }
        match reaction(old, new, &self.options.driver) {
            Reaction::None => {}
            Reaction::Wake => queues.claims.wake(ClaimKey::of(claim)),
            Reaction::Renew => queues.claims.renew(ClaimKey::of(claim)),
        }
        let phase = |claim: Option<&PersistentVolumeClaim>| claim.map(|it| it.status.phase.clone());
        if phase(old) != phase(new) {
            self.source_changed(claim, queues);
        }
        if new.is_some_and(|claim| self.is_held(claim)) {
            queues.protections.wake(Protected::Claim(Arc::clone(change.key)));
        }
    }

    /// Queues claims that wait to be cloned from the claim, and the claim's own source.
    fn source_changed(&self, claim: &PersistentVolumeClaim, queues: &Queues) {
        match DataSource::of(claim) {
            Ok(Some(DataSource::Claim(source))) => {
                let key = in_namespace_of(claim, source).key().into();
                queues.protections.wake(Protected::Claim(key));
            }
            Ok(Some(DataSource::Snapshot(source))) => {
                let of = in_namespace_of(claim, source);
                if self.held.contains(&of) {
                    queues.protections.wake(Protected::snapshot(&of));
                }
            }
            _ => {}
        }
        if claim.status.phase == "Bound" {
            let source = format!("{CLAIM}/{}", claim.metadata.key());
            let clones = self.claims.store().indexed(PersistentVolumeClaim::BY_SOURCE, &source);
            self.renew(&clones, queues, |_| true);
        }
    }

    fn volume_changed(&self, change: &Change<'_, PersistentVolume>, queues: &Queues) {
        let Some(volume) = change.new else { return };
        let need = self.volume_need(volume);
        let before = change.old.map(|volume| self.volume_need(volume));
        if need != VolumeNeed::Nothing && before != Some(need) {
            queues.volumes.renew(Arc::clone(change.key));
        }
    }

    /// The deletion of a volume may wait for its last attachment.
    fn attachment_changed(&self, change: &Change<'_, VolumeAttachment>, queues: &Queues) {
        if let (Some(old), None) = (change.old, change.new)
            && let Some(name) = &old.spec.source.persistent_volume_name
            && let Some(volume) = self.volumes.store().get(name)
            && self.volume_need(&volume) != VolumeNeed::Nothing
        {
            queues.volumes.renew(name.as_str().into());
        }
    }

    fn class_changed(&self, change: &Change<'_, StorageClass>, queues: &Queues) {
        let uid = |class: Option<&Arc<StorageClass>>| class.map(|it| it.metadata.uid.clone());
        if change.new.is_some() && uid(change.old) != uid(change.new) {
            let claims = self.claims.store().all();
            self.renew(&claims, queues, |claim| claim.class() == Some(&**change.key));
        }
    }

    /// New topology keys help only claims without a segment.
    fn node_changed(&self, change: &Change<'_, CsiNode>, queues: &Queues) {
        let keys = |node: Option<&Arc<CsiNode>>| {
            node.map(|node| node.topology_keys(&self.options.driver).to_vec()).unwrap_or_default()
        };
        let now = keys(change.new);
        if !now.is_empty() && now != keys(change.old) {
            let lacks_place =
                |claim: &PersistentVolumeClaim| self.ledger.lacks_place(&claim.metadata.uid);
            self.renew(&self.claims.store().all(), queues, lacks_place);
        }
    }

    /// A driver that reconnects may have new capabilities.
    pub(super) async fn reconnections(&self, queues: &Queues) {
        let mut connections = Connections::of(&self.driver);
        loop {
            connections.next().await;
            self.renew(&self.claims.store().all(), queues, |_| true);
            for volume in self.volumes.store().all() {
                if self.volume_need(&volume) != VolumeNeed::Nothing {
                    queues.volumes.renew(volume.metadata.name.as_str().into());
                }
            }
        }
    }

    /// The safety net under the watches.
    pub(super) async fn resync(&self, queues: &Queues) {
        let mut resync = Resync::every(self.options.resync);
        loop {
            resync.next().await;
            for claim in self.claims.store().all() {
                if concerns(&claim, &self.options.driver) {
                    queues.claims.wake(ClaimKey::of(&claim));
                }
                if self.is_held(&claim) {
                    queues.protections.wake(Protected::Claim(claim.metadata.key().into()));
                }
            }
            self.queue_protected(queues);
            for volume in self.volumes.store().all() {
                if self.volume_need(&volume) != VolumeNeed::Nothing {
                    queues.volumes.wake(volume.metadata.name.as_str().into());
                }
            }
        }
    }

    /// Queues all protected snapshots, as far as known.
    pub(super) fn queue_protected(&self, queues: &Queues) {
        for held in self.held.all() {
            queues.protections.wake(Protected::snapshot(&held));
        }
    }

    /// Resets the back-off of claims that wait for a volume.
    fn renew(
        &self,
        claims: &[Arc<PersistentVolumeClaim>],
        queues: &Queues,
        are_meant: impl Fn(&PersistentVolumeClaim) -> bool,
    ) {
        for claim in claims {
            if concerns(claim, &self.options.driver) && are_meant(claim) {
                queues.claims.renew(ClaimKey::of(claim));
            }
        }
    }
}
