//! Marks claims whose volumes this process requested as leader, while another replica leads.
//!
//! Any leader of ours finds the mark. A claim that is gone cannot be marked: its volume waits until
//! this process leads again, unless another leader created a PersistentVolume for it.

use tokio::time::sleep;
use wharf_cluster::{ApiFailure, Kind, Meta, PersistentVolumeClaim};

use super::{StandbyProvisioner, decide::is_volume_of, ledger::Ledger, unsettled};

/// The state of a volume after its claim was read.
enum Handover {
    /// The claim has the mark, or the volume has a PersistentVolume.
    Done,
    /// The claim is being deleted and cannot be marked any more.
    Waits,
    /// The claim is gone.
    Orphan,
}

impl StandbyProvisioner {
    /// Returns once all claims are marked or gone.
    pub(super) async fn hand_over(&self) {
        let ledger = self.options.unsettled.of(&self.options.driver);
        ledger.begin_term();
        let mut pause = self.options.backoff.first;
        while !self.hand_over_all(&ledger).await {
            sleep(pause).await;
            pause = (pause * 2).min(self.options.backoff.max);
        }
    }

    /// Whether nothing is left to do while another replica leads.
    async fn hand_over_all(&self, ledger: &Ledger) -> bool {
        let mut is_done = true;
        for claim in ledger.unmarked() {
            let uid = &claim.metadata.uid;
            if ledger.is_gone(uid) {
                continue;
            }
            match self.hand_over_claim(ledger, &claim).await {
                Ok(Handover::Done) => {
                    tracing::info!(
                        claim = claim.title(),
                        "next leader knows of the volume of the claim"
                    );
                    ledger.forget(uid);
                }
                Ok(Handover::Waits) => is_done = false,
                Ok(Handover::Orphan) => {
                    ledger.note_gone(uid);
                    let volume = self.options.names.of(uid).unwrap_or_default();
                    tracing::warn!(
                        claim = claim.title(),
                        volume,
                        "volume of a deleted claim may be left at the driver: waiting until this process leads again"
                    );
                }
                Err(error) => {
                    tracing::warn!(claim = claim.title(), %error, "failed to mark claim, retrying");
                    is_done = false;
                }
            }
        }
        is_done
    }

    async fn hand_over_claim(
        &self,
        ledger: &Ledger,
        claim: &PersistentVolumeClaim,
    ) -> Result<Handover, ApiFailure> {
        let Ok(volume) = self.options.names.of(&claim.metadata.uid) else {
            return Ok(Handover::Done);
        };
        let of = Meta { name: volume.clone(), ..Meta::default() };
        match self.volumes().get(&of).await {
            Ok(found) if is_volume_of(&found, claim, &self.options.driver) => {
                return Ok(Handover::Done);
            }
            Ok(_) | Err(ApiFailure::NotFound { .. }) => {}
            Err(failure) => return Err(failure),
        }
        let claims = self.claims();
        let now = match claims.get(&claim.metadata).await {
            Ok(now) if now.metadata.uid == claim.metadata.uid => now,
            Ok(_) | Err(ApiFailure::NotFound { .. }) => return Ok(Handover::Orphan),
            Err(failure) => return Err(failure),
        };
        if now.metadata.deleting && !unsettled::has_mark(&now) {
            return Ok(Handover::Waits);
        }
        let note = ledger.note(&claim.metadata.uid, &self.options.driver);
        unsettled::write_mark(&claims, claim, note.as_ref()).await?;
        // Read again: the claim may have been deleted before the mark was written.
        match claims.get(&claim.metadata).await {
            Ok(now) if now.metadata.uid != claim.metadata.uid => Ok(Handover::Orphan),
            Ok(now) if unsettled::has_mark(&now) => Ok(Handover::Done),
            Ok(_) => Ok(Handover::Waits),
            Err(ApiFailure::NotFound { .. }) => Ok(Handover::Orphan),
            Err(failure) => Err(failure),
        }
    }
}
