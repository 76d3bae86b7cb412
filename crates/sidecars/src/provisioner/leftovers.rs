//! Reports volumes of the driver that no object names.
//!
//! A provisioner that is killed before it has marked the claim of a volume in progress, followed by
//! the deletion of that claim, leaves a volume that no object names; so do restored backups, and
//! people. Such a volume is reported and never deleted: another cluster may use the same storage,
//! and a name is no proof.
//!
//! A driver's account may have many volumes of others, so the driver is asked only if the operator
//! enables it, and for one page of volumes at a time.
//!
//! Most drivers put the requested volume name into their ID of the volume, which leads back to the
//! claim. With other drivers it is only known that no PersistentVolume names a volume. That is also
//! true of a volume that was created just now, so such volumes are reported when they are seen
//! twice.

use std::{
    collections::{BTreeMap, HashSet},
    time::Duration,
};

use tonic::Status;
use wharf_cluster::PersistentVolumeClaim;
use wharf_proto::csi::ListVolumesRequest;

use super::ProvisionerCore;

/// The pause before volumes that were seen once are checked again.
const SECOND_LOOK: Duration = Duration::from_mins(1);
/// Page size of ListVolumes.
const PAGE: i32 = 500;
/// The most volumes in one log line.
const NAMED: usize = 10;

/// The result of a comparison: IDs of volumes that no PersistentVolume names.
#[derive(Default)]
struct UnnamedVolumes {
    /// Created for claims that are gone.
    ours: HashSet<String>,
    /// Volumes whose IDs do not contain the claim.
    unknown: HashSet<String>,
}

impl ProvisionerCore {
    /// Compares repeatedly, for as long as the driver can list its volumes.
    pub(super) async fn leftovers(&self) {
        let period = self.options.leftovers;
        if period.is_zero() {
            return std::future::pending().await;
        }
        let (mut once, mut reported) = (HashSet::new(), UnnamedVolumes::default());
        let mut pause = period;
        loop {
            // On storage that other clusters use there are always new volumes.
            let may_look_soon = pause == period;
            pause = period;
            match self.find_leftovers().await {
                Ok(UnnamedVolumes { ours, unknown }) => {
                    let (twice, new): (HashSet<_>, HashSet<_>) =
                        unknown.into_iter().partition(|id| once.contains(id));
                    if !new.is_empty() && may_look_soon {
                        pause = period.min(SECOND_LOOK);
                    }
                    once = &twice | &new;
                    let found = UnnamedVolumes { ours, unknown: twice };
                    self.options.metrics.left_over(found.ours.len(), found.unknown.len());
                    found.report(&reported);
                    reported = found;
                }
                Err(error) => {
                    tracing::warn!(%error, "failed to compare volumes with the driver");
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn find_leftovers(&self) -> Result<UnnamedVolumes, Status> {
        let capabilities = self.capabilities().await;
        if !capabilities.is_ok_and(|capabilities| capabilities.lists && capabilities.volumes) {
            return Ok(UnnamedVolumes::default());
        }
        // Read before the list: volumes that are created meanwhile are not in it.
        let mut suspects = self.listed().await?;
        suspects.retain(|handle, _| !self.has_volume(handle));
        let mut found = UnnamedVolumes::default();
        if suspects.is_empty() {
            return Ok(found);
        }
        let claims = self.claims.store().all();
        let claims = claims.iter().filter(|claim| self.asks(claim));
        let asking: HashSet<&str> = claims.map(|claim| claim.metadata.uid.as_str()).collect();
        for (handle, claim) in suspects {
            let Some(claim) = claim else {
                found.unknown.insert(handle);
                continue;
            };
            if !asking.contains(claim.as_str()) && self.ledger.begun(&claim).is_none() {
                found.ours.insert(handle);
            }
        }
        Ok(found)
    }

    /// Whether a claim still uses the volume that is named after it: it may have been bound to
    /// a different one.
    fn asks(&self, claim: &PersistentVolumeClaim) -> bool {
        let bound = claim.spec.volume_name.as_deref().filter(|volume| !volume.is_empty());
        let own = self.options.names.of(&claim.metadata.uid);
        bound.is_none_or(|volume| own.is_ok_and(|own| own == volume))
    }

    /// The driver's volumes, with the UIDs of their claims if the IDs contain them.
    async fn listed(&self) -> Result<BTreeMap<String, Option<String>>, Status> {
        let mut listed = BTreeMap::new();
        let mut token = String::new();
        loop {
            let page = ListVolumesRequest { max_entries: PAGE, starting_token: token.clone() };
            let mut controller = self.driver.controller();
            let send = |request| async move { controller.list_volumes(request).await };
            let answer = self.driver.call("ListVolumes", send, page).await?;
            for volume in answer.entries.into_iter().filter_map(|entry| entry.volume) {
                let claim = self.options.names.claim_of(&volume.volume_id).map(str::to_owned);
                listed.insert(volume.volume_id, claim);
            }
            if answer.next_token.is_empty() {
                return Ok(listed);
            }
            if answer.next_token == token {
                return Err(Status::internal("ListVolumes gives the same page again and again"));
            }
            token = answer.next_token;
        }
    }
}

impl UnnamedVolumes {
    /// Logs findings that were not logged before.
    fn report(&self, reported: &Self) {
        for volume in self.ours.difference(&reported.ours) {
            tracing::warn!(volume, "found volume whose claim is gone");
        }
        let new: Vec<_> = self.unknown.difference(&reported.unknown).collect();
        if !new.is_empty() {
            // They may belong to other clusters on the same storage.
            tracing::info!(
                count = new.len(),
                volumes = ?&new[..new.len().min(NAMED)],
                "found volumes without a PersistentVolume"
            );
        }
    }
}
