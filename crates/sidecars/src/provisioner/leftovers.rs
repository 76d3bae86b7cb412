//! Volumes that the driver has and that nobody asks for any more.
//!
//! A provisioner that is killed before it has marked the claim of a volume in the making, and a claim that is deleted then,
//! leave a volume that no object names; so do backups that are restored, and people. It is reported and never deleted: another cluster may use the same storage, and a name is no proof.
//!
//! A driver's account may hold many volumes of others, so the driver is asked only where the operator wants it, and for one
//! page of volumes at a time.
//!
//! Most drivers put the name that a volume was asked for under into their own id for it, and that leads back to the claim.
//! With the others all that can be said is that no PersistentVolume names a volume. That is also how one looks that was
//! made just now: so it is said of those that are seen twice.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use tonic::Status;
use wharf_cluster::PersistentVolumeClaim;
use wharf_proto::csi::ListVolumesRequest;

use super::Shared;

/// How soon it is looked again for volumes that were seen once.
const SECOND_LOOK: Duration = Duration::from_mins(1);
/// How many volumes the driver is asked for at once.
const PAGE: i32 = 500;
/// How many volumes a line of the log names.
const NAMED: usize = 10;

/// What a look finds: ids of volumes that no PersistentVolume names.
#[derive(Default)]
struct Found {
    /// Made for claims that ask no more.
    ours: HashSet<String>,
    /// Made for whom their ids do not tell.
    unknown: HashSet<String>,
}

impl Shared {
    /// Looks for ever, for as long as the driver can tell which volumes it has.
    pub(super) async fn leftovers(&self) {
        let period = self.options.leftovers;
        if period.is_zero() {
            return std::future::pending().await;
        }
        let (mut once, mut reported) = (HashSet::new(), Found::default());
        let mut pause = period;
        loop {
            // On storage that other clusters use there is always something new.
            let may_look_soon = pause == period;
            pause = period;
            match self.find_leftovers().await {
                Ok(Found { ours, unknown }) => {
                    let (twice, new): (HashSet<_>, HashSet<_>) =
                        unknown.into_iter().partition(|id| once.contains(id));
                    if !new.is_empty() && may_look_soon {
                        pause = period.min(SECOND_LOOK);
                    }
                    once = &twice | &new;
                    let found = Found { ours, unknown: twice };
                    self.options.metrics.left_over(found.ours.len(), found.unknown.len());
                    found.report(&reported);
                    reported = found;
                }
                Err(error) => {
                    tracing::warn!(%error, "volumes could not be compared with the driver's");
                }
            }
            tokio::time::sleep(pause).await;
        }
    }

    async fn find_leftovers(&self) -> Result<Found, Status> {
        let abilities = self.abilities().await;
        if !abilities.is_ok_and(|abilities| abilities.lists && abilities.volumes) {
            return Ok(Found::default());
        }
        // Asked first: what is made meanwhile is not in the answer.
        let mut suspects = self.listed().await?;
        suspects.retain(|handle, _| !self.has_volume(handle));
        let mut found = Found::default();
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

    /// Whether the volume that is named after a claim is the claim's: it may have been bound to another meanwhile.
    fn asks(&self, claim: &PersistentVolumeClaim) -> bool {
        let bound = claim.spec.volume_name.as_deref().filter(|volume| !volume.is_empty());
        let own = self.options.names.of(&claim.metadata.uid);
        bound.is_none_or(|volume| own.is_ok_and(|own| own == volume))
    }

    /// The driver's volumes, with the UIDs of the claims that they were made for where their ids tell.
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

impl Found {
    /// Tells people what they were not told before.
    fn report(&self, reported: &Self) {
        for volume in self.ours.difference(&reported.ours) {
            tracing::warn!(volume, "found volume whose claim is gone");
        }
        let new: Vec<_> = self.unknown.difference(&reported.unknown).collect();
        if !new.is_empty() {
            // They may well be volumes of other clusters on the same storage.
            tracing::info!(
                count = new.len(),
                volumes = ?&new[..new.len().min(NAMED)],
                "found volumes without a PersistentVolume"
            );
        }
    }
}
