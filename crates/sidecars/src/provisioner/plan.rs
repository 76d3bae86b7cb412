//! Looks up the parts of the request for a claim.

use http::Request;
use serde::Deserialize;
use std::collections::BTreeMap;
use wharf_cluster::{ApiFailure, Attributes, Meta, PersistentVolumeClaim, StorageClass, bounded};
use wharf_facts::finalizer::SNAPSHOT_RESTORE_PROTECTION;
use wharf_proto::csi::{
    CreateVolumeRequest, VolumeContentSource,
    volume_content_source::{self, SnapshotSource, VolumeSource},
};

use super::{
    ProvisionerCore,
    capabilities::ProvisionerCapabilities,
    decide::selected_node,
    failure::{Failure, ProvisionRefusal},
    note::Note,
    parameters,
    request::{self, Secrets},
    secrets::{Subject, wants_annotations},
    source::{self, CLAIM, DataSource, SNAPSHOT, SourceRefusal, Use},
    topology::{self, Wish},
};
use crate::{attributes_api, secret};

/// All data that is known before the call.
#[derive(Clone, Default)]
pub(super) struct Plan {
    pub(super) call: CreateVolumeRequest,
    pub(super) fs_type: String,
    pub(super) secrets: Secrets,
    /// The annotations of the claim, if names of secrets contain them.
    pub(super) annotations: Attributes,
    /// Whether the driver's volumes have a topology.
    pub(super) placed: bool,
    /// The VolumeAttributesClass.
    pub(super) attributes_class: Option<String>,
}

impl Plan {
    /// Whether another plan makes the same request, as far as the StorageClass determines it.
    pub(super) fn is_same_class(&self, other: &Self) -> bool {
        self.call.parameters == other.call.parameters
            && self.call.volume_capabilities == other.call.volume_capabilities
            && self.secrets == other.secrets
    }
}

impl ProvisionerCore {
    /// Checks all that can be checked, and protects the source last. A repeated request has a note:
    /// it uses the note's topology, and is refused if the claim's source differs from the note's.
    pub(super) async fn plan(
        &self,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
        noted: Option<&Note>,
    ) -> Result<Plan, Failure> {
        let capabilities = self.capabilities().await?;
        let source = DataSource::of(claim)?;
        let attributes_class = self.attributes_class(claim);
        check(capabilities, source, attributes_class)?;
        let name = self.options.names.of(&claim.metadata.uid)?;
        let fs_type = parameters::fs_type(&class.parameters, &self.options.default_fs_type)?;
        let extra = self.options.extra_metadata;
        let mut call = request::create_volume(claim, class, &name, &fs_type, capabilities, extra)?;
        let annotations = self.annotations(claim, class).await?;
        let subject = Subject {
            volume: &name,
            claim: &claim.metadata.name,
            namespace: claim.metadata.namespace.as_deref().unwrap_or_default(),
            annotations: &annotations,
        };
        let secrets = Secrets::of(class, subject)?;
        if capabilities.topology {
            let node = match noted {
                Some(note) => note.topology.node.as_deref(),
                None => selected_node(claim),
            };
            let allowed = &class.allowed_topologies;
            let wish = Wish { claim: &claim.metadata.name, allowed, node };
            call.accessibility_requirements =
                self.ledger.find_place(&claim.metadata.uid, |memory| {
                    topology::requirement(wish, self.options.topology, &self.places(), memory)
                })?;
        }
        let attributes_class = match attributes_class {
            Some(class) => self.attributes(class).await?.map(|attributes| (class, attributes)),
            None => None,
        };
        call.secrets = secret::read(&self.client, secrets.provisioner.as_ref()).await?;
        call.volume_content_source = match noted {
            Some(note) => self.noted_source(claim, source, note).await?,
            None => self.content_source(claim, source).await?,
        };
        let attributes_class = attributes_class.map(|(class, attributes)| {
            call.mutable_parameters = attributes;
            class.to_owned()
        });
        Ok(Plan {
            call,
            fs_type,
            secrets,
            annotations,
            placed: capabilities.topology,
            attributes_class,
        })
    }

    fn attributes_class<'a>(&self, claim: &'a PersistentVolumeClaim) -> Option<&'a str> {
        let named = claim.spec.volume_attributes_class_name.as_deref();
        named.filter(|name| !name.is_empty() && self.options.attributes_classes)
    }

    /// The parameters of a VolumeAttributesClass; `None` if the API has no such classes, so that
    /// the claim's class is ignored.
    async fn attributes(&self, class: &str) -> Result<Option<BTreeMap<String, String>>, Failure> {
        let of = Meta { name: class.to_owned(), ..Meta::default() };
        let found = match self.attributes_classes.get(&of).await {
            Err(ApiFailure::NotFound { .. }) if !attributes_api::is_served(&self.client).await => {
                tracing::info!(class, "ignoring class: API has no VolumeAttributesClass v1");
                return Ok(None);
            }
            found => found.map_err(Failure::Read)?,
        };
        if found.driver_name != self.options.driver {
            return Err(Failure::Refused(ProvisionRefusal::AttributesDriver {
                class: class.to_owned(),
                named: found.driver_name.clone().into(),
                driver: self.options.driver.clone(),
            }));
        }
        Ok(Some(found.parameters.to_map()))
    }

    /// All annotations of the claim, if names of secrets contain them; caches do not keep
    /// annotations.
    async fn annotations(
        &self,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
    ) -> Result<Attributes, Failure> {
        if !wants_annotations(&class.parameters) {
            return Ok(Attributes::default());
        }
        if let Some(before) = self.ledger.asked(&claim.metadata.uid) {
            return Ok(before.plan.annotations.clone());
        }
        let Meta { name, namespace, .. } = &claim.metadata;
        let namespace = namespace.as_deref().unwrap_or_default();
        let path = format!("/api/v1/namespaces/{namespace}/persistentvolumeclaims/{name}");
        let request = Request::get(path).body(Vec::new());
        let request = request.expect("names of objects are parts of URLs");
        let what = format!("PersistentVolumeClaim {namespace}/{name}");
        let found: Annotated =
            bounded(&what, self.client.request(request)).await.map_err(Failure::Read)?;
        Ok(found.metadata.annotations)
    }

    /// The source by the driver's IDs, protected from now on. A retry reuses the original source,
    /// even if that is being deleted: its deletion waits for this volume, so to refuse it would be
    /// a deadlock.
    async fn content_source(
        &self,
        claim: &PersistentVolumeClaim,
        source: Option<DataSource<'_>>,
    ) -> Result<Option<VolumeContentSource>, Failure> {
        if let Some(before) = self.ledger.asked(&claim.metadata.uid) {
            return Ok(before.plan.call.volume_content_source.clone());
        }
        let found = self.find_source(claim, source, Use::New).await?;
        match source {
            Some(DataSource::Snapshot(name)) => self.protect_snapshot(claim, name).await,
            Some(DataSource::Claim(name)) => self.protect_claim(claim, name).await,
            Some(DataSource::Populator(_)) | None => Ok(()),
        }
        .map_err(Failure::Protect)?;
        Ok(found)
    }

    /// The source of a repeated request. It follows from the claim, under the rules of its
    /// namespace: an editor of the claim may have written the note, which is only compared.
    async fn noted_source(
        &self,
        claim: &PersistentVolumeClaim,
        source: Option<DataSource<'_>>,
        note: &Note,
    ) -> Result<Option<VolumeContentSource>, Failure> {
        let found = self.find_source(claim, source, Use::Begun).await?;
        match found == note.content_source() {
            true => Ok(found),
            false => Err(Failure::SourceChanged),
        }
    }

    /// The source of a claim by the driver's IDs.
    async fn find_source(
        &self,
        claim: &PersistentVolumeClaim,
        source: Option<DataSource<'_>>,
        needed: Use,
    ) -> Result<Option<VolumeContentSource>, Failure> {
        let refused = |kind: &str, name: &str, refusal| Failure::Source {
            kind: kind.to_owned(),
            name: name.to_owned(),
            refusal: Box::new(refusal),
        };
        let found = match source {
            Some(DataSource::Snapshot(name)) => {
                let snapshot_id = self.snapshot(claim, name).await;
                let snapshot_id = snapshot_id.map_err(|it| refused(SNAPSHOT, name, it))?;
                volume_content_source::Type::Snapshot(SnapshotSource { snapshot_id })
            }
            Some(DataSource::Claim(name)) => {
                let volume_id = self.cloned(claim, name, needed).await;
                let volume_id = volume_id.map_err(|it| refused(CLAIM, name, it))?;
                volume_content_source::Type::Volume(VolumeSource { volume_id })
            }
            Some(DataSource::Populator(_)) | None => return Ok(None),
        };
        Ok(Some(VolumeContentSource { r#type: Some(found) }))
    }

    async fn snapshot(
        &self,
        claim: &PersistentVolumeClaim,
        name: &str,
    ) -> Result<String, SourceRefusal> {
        let snapshot =
            self.snapshots.get(&in_namespace_of(claim, name)).await.map_err(|error| {
                SourceRefusal::UnknownSnapshot(name.to_owned(), error.to_string())
            })?;
        let content = source::content_of(&snapshot, SNAPSHOT_RESTORE_PROTECTION)?;
        let of = Meta { name: content.to_owned(), ..Meta::default() };
        let content = self.contents.get(&of).await.map_err(|error| {
            tracing::warn!(content, %error, "failed to read content of snapshot");
            let (content, snapshot) = (content.to_owned(), name.to_owned());
            SourceRefusal::UnknownContent { content, snapshot }
        })?;
        let guards_mode = self.options.guards_volume_mode;
        source::snapshot_handle(claim, &self.options.driver, &snapshot, &content, guards_mode)
    }

    async fn cloned(
        &self,
        claim: &PersistentVolumeClaim,
        name: &str,
        needed: Use,
    ) -> Result<String, SourceRefusal> {
        let of = in_namespace_of(claim, name);
        // A claim of another driver is in no cache, but has to be distinguished from a missing one.
        let source =
            match self.claims.store().get(&of.key()) {
                Some(known) => known,
                None => self.claims.get(&of).await.map_err(|error| {
                    SourceRefusal::UnknownClaim(name.to_owned(), error.to_string())
                })?,
            };
        let volume = self.volumes.store().get(source::volume_of(claim, &source, needed)?);
        source::clone_handle(claim, &self.options.driver, &source, volume.as_deref())
    }
}

/// An object in the namespace of a claim.
pub(super) fn in_namespace_of(claim: &PersistentVolumeClaim, name: &str) -> Meta {
    let namespace = claim.metadata.namespace.clone();
    Meta { name: name.to_owned(), namespace, ..Meta::default() }
}

fn check(
    capabilities: ProvisionerCapabilities,
    source: Option<DataSource<'_>>,
    attributes_class: Option<&str>,
) -> Result<(), ProvisionRefusal> {
    capabilities.check_volumes()?;
    match source {
        Some(DataSource::Snapshot(_)) => capabilities.check_snapshots()?,
        Some(DataSource::Claim(_)) => capabilities.check_clones()?,
        Some(DataSource::Populator(_)) | None => {}
    }
    if attributes_class.is_some() {
        capabilities.check_attributes()?;
    }
    Ok(())
}

#[derive(Deserialize)]
struct Annotated {
    metadata: Annotations,
}

#[derive(Deserialize)]
struct Annotations {
    #[serde(default)]
    annotations: Attributes,
}
