//! What a provisioner that is told to stop finds out about volumes that no object tells of.
//!
//! Whoever leads next finds a volume by the mark on its claim. A claim that was deleted before it was marked takes no mark, so that
//! its volume would be left at the driver. An answer that comes now still leads to a PersistentVolume, which is deleted as
//! any other. What cannot be found out in time is named in the log.

use std::{pin::Pin, time::Duration};

use futures_util::future::join_all;
use tokio::time::{Instant, sleep, timeout_at};
use wharf_cluster::Kind;
use wharf_reconcile::Outcome;

use super::{Shared, claim::ClaimKey};

/// How long answers are waited for. Pods have 30 s to end by default, and the Lease may be given back after that.
pub(super) const LAST_ANSWERS: Duration = Duration::from_secs(10);

/// The longest pause between two requests for one volume.
const PAUSE: Duration = Duration::from_secs(1);

impl Shared {
    /// Goes on with an attempt when this process stops, if nobody else could finish it.
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
            // Ends with the patience of the queue that it is of.
            None if self.ledger.is_unmarked(&key.uid) => serving.await,
            None => Outcome::Done,
        }
    }

    /// Asks for the volumes that no object tells of until there is an answer or it is too late, and names those that are left.
    pub(super) async fn find_out_at_last(&self, last: Instant) {
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
