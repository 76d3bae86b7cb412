//! Volumes that the driver has and that nobody asks for any more.
//!
//! A claim that is deleted while its volume is in the making, and the provisioner with it, leaves a volume that no object
//! tells of. It is reported and never deleted: another cluster may use the same storage, and a name is no proof.

use std::collections::{BTreeMap, HashSet};

use tonic::Status;
use wharf_cluster::{PersistentVolume, PersistentVolumeClaim};
use wharf_proto::csi::ListVolumesRequest;

use super::Shared;

impl Shared {
    /// Looks for ever, for as long as the driver can tell which volumes it has.
    pub(super) async fn leftovers(&self) {
        let period = self.options.leftovers;
        if period.is_zero() {
            return std::future::pending().await;
        }
        let mut reported = HashSet::new();
        loop {
            match self.find_leftovers().await {
                Ok(found) => {
                    self.options.metrics.left_over(found.len());
                    for volume in found.difference(&reported) {
                        tracing::warn!(
                            volume,
                            "the driver has a volume of ours that no claim and no PersistentVolume knows: delete it by hand if nobody else uses it"
                        );
                    }
                    reported = found;
                }
                Err(error) => {
                    tracing::warn!(%error, "volumes could not be compared with the driver's");
                }
            }
            tokio::time::sleep(period).await;
        }
    }

    async fn find_leftovers(&self) -> Result<HashSet<String>, Status> {
        let abilities = self.abilities().await;
        if !abilities.is_ok_and(|abilities| abilities.lists && abilities.volumes) {
            return Ok(HashSet::new());
        }
        // Asked first: what is made meanwhile is not in the answer.
        let mut suspects = self.named().await?;
        suspects.retain(|handle, _| {
            !self.volumes.store().is_indexed(PersistentVolume::BY_HANDLE, handle)
        });
        if !suspects.is_empty() {
            let claims = self.claims.store().all();
            let claims = claims.iter().filter(|claim| self.asks(claim));
            let asking: HashSet<&str> = claims.map(|claim| claim.metadata.uid.as_str()).collect();
            suspects.retain(|_, claim| {
                !asking.contains(claim.as_str()) && self.ledger.begun(claim).is_none()
            });
        }
        Ok(suspects.into_keys().collect())
    }

    /// Whether the volume that is named after a claim is the claim's: it may have been bound to another meanwhile.
    fn asks(&self, claim: &PersistentVolumeClaim) -> bool {
        let bound = claim.spec.volume_name.as_deref().filter(|volume| !volume.is_empty());
        let own = self.options.names.of(&claim.metadata.uid);
        bound.is_none_or(|volume| own.is_ok_and(|own| own == volume))
    }

    /// The driver's volumes whose names are made as ours are, with the UIDs of their claims. A driver whose own
    /// names for its volumes do not have these in them cannot be asked.
    async fn named(&self) -> Result<BTreeMap<String, String>, Status> {
        let mut named = BTreeMap::new();
        let mut token = String::new();
        loop {
            let page = ListVolumesRequest { max_entries: 0, starting_token: token };
            let mut controller = self.driver.controller();
            let send = |request| async move { controller.list_volumes(request).await };
            let answer = self.driver.call("ListVolumes", send, page).await?;
            for volume in answer.entries.into_iter().filter_map(|entry| entry.volume) {
                if let Some(claim) = self.options.names.claim_of(&volume.volume_id) {
                    let claim = claim.to_owned();
                    named.insert(volume.volume_id, claim);
                }
            }
            token = answer.next_token;
            if token.is_empty() {
                return Ok(named);
            }
        }
    }
}
