//! Finds claims that were dropped from the cache before their volume was known.
//!
//! A claim that names another driver as its provisioner is kept only if it is bound to a volume of
//! this driver. Volumes are listed first, so this is known of nearly all claims when they arrive.
//! If a volume arrives after its claim, all claims are listed again.

use std::{sync::Arc, time::Duration};

use kube::Client;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use wharf_cluster::{
    ApiFailure, Change, ClaimReference, Meta, Objects, PersistentVolume, PersistentVolumeClaim,
    Store,
};

/// The pause between two reads of a claim while the API does not answer.
const PAUSE: Duration = Duration::from_secs(1);

/// Lists claims again when a bound volume appears whose claim is not in the cache. Ends with
/// `stop`.
pub(super) async fn relist_claims_left_out(
    volumes: Arc<Store<PersistentVolume>>,
    claims: Arc<Store<PersistentVolumeClaim>>,
    client: Client,
    stop: CancellationToken,
) {
    let (sender, mut bound) = mpsc::unbounded_channel();
    let _subscription = volumes.subscribe(move |change| {
        if let Some(claim) = newly_bound(&change) {
            // The receiver outlives the subscription.
            let _ = sender.send(claim);
        }
    });
    let claims = Objects::new(client, claims);
    let work = async {
        while let Some(claim) = bound.recv().await {
            relist_if_left_out(&claims, &claim).await;
        }
    };
    stop.run_until_cancelled(work).await;
}

async fn relist_if_left_out(claims: &Objects<PersistentVolumeClaim>, claim: &ClaimReference) {
    let ClaimReference { namespace, name, uid, .. } = claim;
    let of = Meta {
        namespace: Some(namespace.clone()),
        name: name.clone(),
        uid: uid.clone(),
        ..Meta::default()
    };
    let key = of.key();
    loop {
        claims.store().synced().await;
        if claims.store().get(&key).is_some() {
            return;
        }
        // Most claims that are not in the cache are gone.
        match claims.get(&of).await {
            Ok(found) if found.metadata.uid != *uid => return,
            Ok(_) => {
                if claims.store().get(&key).is_none() {
                    tracing::info!(
                        claim = key,
                        "listing claims again: volume appeared after its claim"
                    );
                    claims.store().renew();
                }
                return;
            }
            Err(ApiFailure::NotFound { .. }) => return,
            Err(error) => {
                tracing::warn!(claim = key, %error, "failed to read claim of volume, retrying");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// The claim that this change bound a volume to.
fn newly_bound(change: &Change<'_, PersistentVolume>) -> Option<ClaimReference> {
    let bound = |volume: &PersistentVolume| {
        volume.spec.claim_ref.clone().filter(|_| volume.status.phase == "Bound")
    };
    let now = bound(change.new?)?;
    let before = change.old.and_then(|old| bound(old));
    (before.as_ref() != Some(&now)).then(|| (*now).clone())
}
