//! Creates the content of a snapshot that is to be taken of a claim.

use std::sync::Arc;

use wharf_cluster::{
    ApiFailure, EventType, Meta, PersistentVolume, PersistentVolumeClaim, VolumeSnapshot,
    VolumeSnapshotClass, VolumeSnapshotContent,
};

use super::{
    SnapshotControllerCore,
    class::default_class,
    decide::{content_name, volume},
    document::NewContent,
    failure::{Failure, TakeRefusal},
    node::node_of,
};
use crate::snapshot_class::{self, Names, SecretUse};

/// The source and the settings of a snapshot to be taken.
pub(super) struct Intake {
    claim: Arc<PersistentVolumeClaim>,
    volume: Arc<PersistentVolume>,
    pub(super) class: Arc<VolumeSnapshotClass>,
}

impl SnapshotControllerCore {
    /// The class of a snapshot; `None` if it has none and needs none.
    pub(super) fn class_of(
        &self,
        snapshot: &VolumeSnapshot,
    ) -> Result<Option<Arc<VolumeSnapshotClass>>, Failure> {
        if let Some(name) = &snapshot.spec.volume_snapshot_class_name {
            let class = self.classes.get(name);
            return class.map(Some).ok_or_else(|| Failure::UnknownClass(name.clone().into()));
        }
        let source = &snapshot.spec.source;
        let (Some(claim), None) =
            (&source.persistent_volume_claim_name, &source.volume_snapshot_content_name)
        else {
            return Ok(None);
        };
        let chosen = self.volume_of(snapshot, claim).and_then(|(claim, of)| {
            let (_, csi) = volume(&claim.metadata.name, Some(&claim), Some(&of))?;
            default_class(self.classes.all(), &csi.driver)
        });
        chosen.map(Some).map_err(Failure::DefaultClass)
    }

    /// The claim of this name and its volume, if they are bound to each other.
    fn volume_of(
        &self,
        snapshot: &VolumeSnapshot,
        name: &str,
    ) -> Result<(Arc<PersistentVolumeClaim>, Arc<PersistentVolume>), TakeRefusal> {
        let claim = self.claim(snapshot, name);
        let of = claim.as_ref().and_then(|claim| claim.spec.volume_name.as_deref());
        let of = of.and_then(|volume| self.volumes.get(volume));
        volume(name, claim.as_deref(), of.as_deref())?;
        claim.zip(of).ok_or_else(|| TakeRefusal::NoClaim(name.to_owned()))
    }

    /// The source and settings of a snapshot, or why it cannot be taken.
    pub(super) fn intake(
        &self,
        snapshot: &VolumeSnapshot,
        claim: &str,
        class: Option<Arc<VolumeSnapshotClass>>,
    ) -> Result<Intake, TakeRefusal> {
        let name = &snapshot.metadata.name;
        let class = class.ok_or(TakeRefusal::NoDefaultClass)?;
        if self.claim(snapshot, claim).is_none() {
            return Err(TakeRefusal::ClaimMissing(name.clone()));
        }
        let (claim, volume) = self.volume_of(snapshot, claim).map_err(|refusal| match refusal {
            TakeRefusal::NotCsi(_) => refusal,
            refusal => TakeRefusal::Input { snapshot: name.clone(), refusal: Box::new(refusal) },
        })?;
        Ok(Intake { claim, volume, class })
    }

    /// Creates the content that makes the snapshotter take a snapshot.
    pub(super) async fn take(
        &self,
        snapshot: &Arc<VolumeSnapshot>,
        Intake { claim, volume, class }: &Intake,
    ) -> Result<Arc<VolumeSnapshotContent>, Failure> {
        let csi = volume.spec.csi.as_ref();
        let csi = csi.ok_or_else(|| TakeRefusal::NotCsi(volume.metadata.name.clone()))?;
        let Meta { name, namespace, .. } = &snapshot.metadata;
        let content_name = content_name(snapshot);
        let names = Names {
            content: &content_name,
            snapshot: Some((namespace.as_deref().unwrap_or_default(), name)),
        };
        let secret = snapshot_class::secret(SecretUse::Snapshots, &class.parameters, names);
        let secret = secret.map_err(|error| TakeRefusal::Input {
            snapshot: name.clone(),
            refusal: Box::new(error.into()),
        })?;
        let distributed = self.options.distributed;
        let node = distributed.then(|| node_of(volume, self.nodes.all())).flatten();
        let volume_mode = volume.spec.volume_mode.as_deref();
        let volume_mode = volume_mode.filter(|_| self.options.keep_volume_mode);
        self.protect_claim(claim).await?;

        let new = NewContent { snapshot, class, csi, secret, node, volume_mode };
        let content = match self.contents.create(&new.document()).await {
            // Created before, and not yet in the cache.
            Err(ApiFailure::Conflict { .. }) => {
                let of = Meta { name: content_name, ..Meta::default() };
                self.contents.get(&of).await
            }
            made => made,
        };
        let content = content.map_err(|failure| self.not_made(snapshot, failure))?;
        let key = snapshot.metadata.key();
        let message = format!("Waiting for a snapshot {key} to be created by the CSI driver.");
        self.events.record(&**snapshot, EventType::Normal, "CreatingSnapshot", message);
        Ok(content)
    }

    fn not_made(&self, snapshot: &VolumeSnapshot, failure: ApiFailure) -> TakeRefusal {
        let key = snapshot.metadata.key();
        let message =
            format!("Error creating volume snapshot content object for snapshot {key}: {failure}.");
        self.events.record(snapshot, EventType::Warning, "CreateSnapshotContentFailed", message);
        TakeRefusal::Create { snapshot: key, failure }
    }
}
