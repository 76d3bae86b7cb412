//! Settles volumes that no object names before a provisioner stops.
//!
//! The next leader finds a volume by the mark on its claim. A claim that was deleted before it was
//! marked cannot be marked, so its volume would stay at the driver. An answer that arrives in time
//! still leads to a PersistentVolume, which is deleted as any other. Volumes that remain unsettled
//! are logged.

use std::{pin::Pin, time::Duration};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout_at};
use wharf_cluster::Kind;
use wharf_reconcile::Outcome;

use super::{ProvisionerCore, claim::ClaimKey};

/// Limit for answers. Pods have 30 s to end by default, and the Lease may be released after that.
pub(super) const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// The longest pause between two requests for one volume.
const PAUSE: Duration = Duration::from_secs(1);

impl ProvisionerCore {
    /// Continues an attempt when this process stops, if no other process could finish it.
    pub(super) async fn serve_at_last(
        &self,
        key: &ClaimKey,
        mut serving: Pin<&mut impl Future<Output = Outcome>>,
    ) -> Outcome {
        if !self.ledger.is_unmarked(&key.uid) {
            return Outcome::Done;
        }
        match self.last_marks.run_until_cancelled(&mut serving).await {
            Some(outcome) => outcome,
            // The queue limits how long this takes.
            None if self.ledger.is_unmarked(&key.uid) => serving.await,
            None => Outcome::Done,
        }
    }

    /// Repeats the requests for volumes that no object names, until an answer or the limit, and
    /// logs the volumes that are left.
    pub(super) async fn settle_last(&self, last: Instant) {
        let asking = self.ledger.unmarked();
        let asking = asking.iter().map(|claim| self.find_out(ClaimKey::of(claim)));
        let _ = timeout_at(last, join_all(asking)).await;
        for claim in self.ledger.unmarked() {
            let uid = &claim.metadata.uid;
            let (claim, volume) = (claim.title(), self.options.names.of(uid).unwrap_or_default());
            match self.ledger.is_gone(uid) {
                true => {
                    tracing::warn!(
                        claim,
                        volume,
                        "volume of a deleted claim may be left at the driver"
                    );
                }
                false => tracing::warn!(
                    claim,
                    volume,
                    "failed to mark claim: its volume is left at the driver if it is deleted before a provisioner leads"
                ),
            }
        }
    }

    async fn find_out(&self, key: ClaimKey) {
        let mut pause = self.options.backoff.first.min(PAUSE);
        let mut failures = 1;
        loop {
            self.serve(&key, failures).await;
            if !self.ledger.is_unmarked(&key.uid) {
                return;
            }
            sleep(pause).await;
            pause = (pause * 2).min(PAUSE);
            failures += 1;
        }
    }
}
