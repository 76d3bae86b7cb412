//! Claims with the mark of a volume that their driver may have and that no PersistentVolume names.
//!
//! The provisioner sets the mark and removes it. On the way back to a provisioner that does not know it, a person does.

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
    /// The driver that was asked for its volume.
    pub driver: String,
    /// The name that the volume was asked for under.
    pub volume: String,
    /// The node that it was asked for, whose driver may have it where each node has its own.
    pub node: Option<String>,
    /// The StorageClass that it was asked for with.
    pub class: String,
    /// The parameters that the driver was told.
    pub parameters: BTreeMap<String, String>,
    /// The secret for the call, as `namespace/name`.
    pub secret: Option<String>,
    /// Whether a PersistentVolume stands for the volume: then nothing is left if the mark goes.
    pub known: bool,
}

impl UnsettledClaim {
    /// `namespace/name`.
    pub fn key(&self) -> String {
        self.metadata.key()
    }

    /// Whether the claim is being deleted, and goes with its last finalizer.
    pub fn is_deleting(&self) -> bool {
        self.metadata.deleting
    }
}

/// All claims with the mark, of one driver or of all.
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

/// Removes the mark of a claim, whatever the driver has. One that is gone has none.
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

/// The name that the volume of a marked claim was asked for under.
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
    // The name comes from the note, which anybody may have written.
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
