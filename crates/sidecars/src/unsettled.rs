//! Claims with the mark of a volume that their driver may have and that no PersistentVolume names.
//!
//! The provisioner sets and removes the mark. Before a downgrade to a provisioner that does not
//! know it, an operator removes it.

use std::collections::BTreeMap;

use kube::Client;
use serde_json::Value;
use wharf_cluster::{
    ApiFailure, Kind, Meta, Objects, Pages, PersistentVolume, PersistentVolumeClaim, Store,
};
use wharf_facts::{annotation, finalizer, validation::is_subdomain};

use crate::provisioner::{Note, is_volume_of, remove_mark, selected_node};

/// A claim with the mark.
#[derive(Clone, Debug)]
pub struct UnsettledClaim {
    /// The claim's metadata.
    pub metadata: Meta,
    /// The driver of the CreateVolume call.
    pub driver: String,
    /// The volume name of the call.
    pub volume: String,
    /// The node of the call, if each node has a driver of its own.
    pub node: Option<String>,
    /// The StorageClass of the call.
    pub class: String,
    /// The parameters of the call.
    pub parameters: BTreeMap<String, String>,
    /// The secret of the call, as `namespace/name`.
    pub secret: Option<String>,
    /// Whether a PersistentVolume has the volume: then removing the mark leaves nothing behind.
    pub known: bool,
}

impl UnsettledClaim {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        self.metadata.key()
    }

    /// Whether the claim is being deleted and waits for its finalizers.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deleting
    }
}

/// All marked claims, of one driver or of all.
///
/// # Errors
/// When the API refuses to list or to read, or cannot be reached.
pub async fn list(
    client: &Client,
    driver: Option<&str>,
) -> Result<Vec<UnsettledClaim>, ApiFailure> {
    let collection =
        format!("{}/{}", PersistentVolumeClaim::GROUP, PersistentVolumeClaim::RESOURCE);
    let mut pages = Pages::new(client, "PersistentVolumeClaims", &collection);
    let mut found = Vec::new();
    while let Some(page) = pages.next().await? {
        for claim in page {
            let claim: PersistentVolumeClaim = claim;
            if claim.metadata.has_finalizer(finalizer::UNSETTLED_VOLUME)
                && driver.is_none_or(|driver| driver == driver_of(&claim))
            {
                found.push(describe(client, claim).await?);
            }
        }
    }
    Ok(found)
}

/// Removes the mark of a claim, even if the driver has the volume. Succeeds if the claim is gone.
///
/// # Errors
/// When the API refuses the write or cannot be reached.
pub async fn remove(client: &Client, claim: &UnsettledClaim) -> Result<(), ApiFailure> {
    let claims: Objects<PersistentVolumeClaim> =
        Objects::new(client.clone(), Store::new(|_| false));
    let unmark = |document: &mut Value| {
        if document["metadata"]["uid"] == claim.metadata.uid.as_str() {
            remove_mark(document);
        }
    };
    match claims.update(&claim.metadata, unmark).await {
        Ok(_) | Err(ApiFailure::NotFound { .. }) => Ok(()),
        Err(failure) => Err(failure),
    }
}

/// The volume name of the call for a marked claim.
pub(crate) fn volume_name(claim: &PersistentVolumeClaim) -> String {
    let noted = Note::on(claim).map(|note| note.volume).filter(|volume| is_subdomain(volume));
    noted.unwrap_or_else(|| format!("pvc-{}", claim.metadata.uid))
}

async fn describe(
    client: &Client,
    claim: PersistentVolumeClaim,
) -> Result<UnsettledClaim, ApiFailure> {
    let volume = volume_name(&claim);
    let volumes: Objects<PersistentVolume> = Objects::new(client.clone(), Store::new(|_| false));
    let of = Meta { name: volume.clone(), ..Meta::default() };
    let driver = driver_of(&claim).to_owned();
    // The name comes from the note, which any editor of the claim may have written.
    let known = match volumes.get(&of).await {
        Ok(found) => is_volume_of(&found, &claim, &driver),
        Err(ApiFailure::NotFound { .. }) => claim.spec.volume_name.as_ref() == Some(&volume),
        Err(failure) => return Err(failure),
    };
    let note = Note::on(&claim).unwrap_or_default();
    let node = note.node().or(selected_node(&claim)).map(str::to_owned);
    let Note { class, parameters, secret, .. } = note;
    let metadata = claim.metadata;
    Ok(UnsettledClaim { metadata, driver, volume, node, class, parameters, secret, known })
}

fn driver_of(claim: &PersistentVolumeClaim) -> &str {
    let annotations = &claim.metadata.annotations;
    let keys = [annotation::STORAGE_PROVISIONER, annotation::STORAGE_PROVISIONER_BETA];
    keys.into_iter().find_map(|key| annotations.get(key)).unwrap_or_default()
}
