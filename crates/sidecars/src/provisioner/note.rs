//! The note on a claim: the request that was sent to the driver, for the next leader.
//!
//! An editor of the claim may edit the note as well. So the only part of it that reaches a request
//! is topology that nodes of the cluster have. The volume's name follows from the claim's UID, the
//! source from the claim's dataSource, and parameters and secrets from the StorageClass; the note
//! is only compared with them. Secrets are noted by name.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use wharf_cluster::{PersistentVolumeClaim, SecretReference, StorageClass};
use wharf_facts::{annotation, context};
use wharf_proto::csi::{
    VolumeContentSource,
    volume_capability::AccessType,
    volume_content_source::{SnapshotSource, Type, VolumeSource},
};

use super::{
    parameters::{for_driver, fs_type},
    plan::Plan,
    topology::Memory,
};

/// The API's limit for all annotations of an object is 256 KiB.
const LONGEST: usize = 64 << 10;

/// A request, without the parts that follow from the claim itself.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Note {
    driver: String,
    /// The requested volume name, for people.
    pub(crate) volume: String,
    #[serde(rename = "storageClass")]
    pub(crate) class: String,
    pub(crate) parameters: BTreeMap<String, String>,
    /// `namespace/name`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) secret: Option<String>,
    /// Filesystem and mount options; `None` on notes of older releases.
    #[serde(skip_serializing_if = "Option::is_none")]
    mount: Option<Mount>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<NotedSource>,
    /// The topology of the request follows from this and the StorageClass.
    pub(super) topology: Memory,
}

/// Filesystem and mount options of the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Mount {
    fs_type: String,
    options: Vec<String>,
}

/// The source of the volume, by the driver's IDs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
enum NotedSource {
    Snapshot(String),
    Volume(String),
}

impl Note {
    pub(super) fn of(driver: &str, class: &StorageClass, plan: &Plan, topology: Memory) -> Self {
        Self {
            driver: driver.to_owned(),
            volume: plan.call.name.clone(),
            class: class.metadata.name.clone(),
            parameters: parameters(plan),
            secret: secret(plan),
            mount: Some(Mount::of(plan)),
            source: plan.call.volume_content_source.as_ref().and_then(NotedSource::of),
            topology: topology.condensed(),
        }
    }

    /// The note on a claim; `None` if it is missing or unreadable.
    pub(crate) fn on(claim: &PersistentVolumeClaim) -> Option<Self> {
        serde_json::from_str(claim.metadata.annotations.get(annotation::UNSETTLED_VOLUME)?).ok()
    }

    /// The node of the request.
    pub(crate) fn node(&self) -> Option<&str> {
        self.topology.node.as_deref()
    }

    /// The annotation's value. Drops the segments of a large cluster: the next leader reads them
    /// from the nodes.
    pub(super) fn text(&self) -> String {
        let text = |note: &Self| serde_json::to_string(note).expect("texts and maps of texts");
        let whole = text(self);
        match whole.len() > LONGEST {
            true => text(&Self { topology: self.topology.clone().without_all(), ..self.clone() }),
            false => whole,
        }
    }

    /// Whether a new plan makes the same request, as far as the StorageClass determines it.
    pub(super) fn is_of(&self, plan: &Plan) -> bool {
        let is_mounted_so = self.mount.as_ref().is_none_or(|mount| *mount == Mount::of(plan));
        self.parameters == parameters(plan) && self.secret == secret(plan) && is_mounted_so
    }

    /// How a class differs from the one of the request; `None` if it does not, as far as the class
    /// alone shows.
    pub(crate) fn difference(
        &self,
        claim: &PersistentVolumeClaim,
        class: &StorageClass,
    ) -> Option<&'static str> {
        if for_driver(&class.parameters).ok().as_ref() != Some(&self.parameters) {
            return Some("other parameters");
        }
        let mount = self.mount.as_ref().filter(|_| !claim.is_block())?;
        // A flag of the provisioner sets the filesystem if the class does not.
        let fs_type = fs_type(&class.parameters, &mount.fs_type).ok();
        if fs_type.as_ref() != Some(&mount.fs_type) {
            return Some("another filesystem");
        }
        (*class.mount_options != *mount.options).then_some("other mount options")
    }

    pub(super) fn content_source(&self) -> Option<VolumeContentSource> {
        let source = match self.source.clone()? {
            NotedSource::Snapshot(snapshot_id) => Type::Snapshot(SnapshotSource { snapshot_id }),
            NotedSource::Volume(volume_id) => Type::Volume(VolumeSource { volume_id }),
        };
        Some(VolumeContentSource { r#type: Some(source) })
    }
}

impl Mount {
    fn of(plan: &Plan) -> Self {
        let mut types =
            plan.call.volume_capabilities.iter().filter_map(|it| it.access_type.as_ref());
        match types.next() {
            Some(AccessType::Mount(mount)) => {
                Self { fs_type: mount.fs_type.clone(), options: mount.mount_flags.clone() }
            }
            Some(AccessType::Block(_)) | None => Self::default(),
        }
    }
}

impl NotedSource {
    fn of(source: &VolumeContentSource) -> Option<Self> {
        source.r#type.as_ref().map(|source| match source {
            Type::Snapshot(source) => Self::Snapshot(source.snapshot_id.clone()),
            Type::Volume(source) => Self::Volume(source.volume_id.clone()),
        })
    }
}

/// Mount options of the StorageClass; a flag adds others.
fn parameters(plan: &Plan) -> BTreeMap<String, String> {
    let all = plan.call.parameters.iter();
    let own = all.filter(|(key, _)| !key.starts_with(context::PREFIX));
    own.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn secret(plan: &Plan) -> Option<String> {
    let reference = plan.secrets.provisioner.as_ref()?;
    let SecretReference { name, namespace } = reference;
    Some(format!("{namespace}/{name}"))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use wharf_cluster::Attributes;
    use wharf_proto::csi::{CreateVolumeRequest, VolumeCapability, volume_capability::MountVolume};

    use super::*;
    use crate::provisioner::request::Secrets;

    fn plan() -> Plan {
        let texts = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let provisioner =
            SecretReference { name: "login".to_owned(), namespace: "vault".to_owned() };
        Plan {
            call: CreateVolumeRequest {
                name: "pvc-1".to_owned(),
                parameters: texts(&[("tier", "fast"), (context::PVC_NAME, "c")]),
                secrets: texts(&[("password", "opensesame")]),
                volume_content_source: Some(VolumeContentSource {
                    r#type: Some(Type::Snapshot(SnapshotSource { snapshot_id: "s".to_owned() })),
                }),
                ..CreateVolumeRequest::default()
            },
            fs_type: String::new(),
            secrets: Secrets { provisioner: Some(provisioner), ..Secrets::default() },
            annotations: Attributes::default(),
            placed: false,
            attributes_class: None,
        }
    }

    fn class() -> StorageClass {
        serde_json::from_value(json!({ "metadata": { "name": "gold" } })).unwrap()
    }

    fn claim_with(text: &str) -> PersistentVolumeClaim {
        let annotations = json!({ annotation::UNSETTLED_VOLUME: text });
        serde_json::from_value(json!({ "metadata": { "annotations": annotations } })).unwrap()
    }

    #[test]
    fn a_note_is_read_as_it_was_written_and_has_no_secret() {
        let plan = plan();
        let note = Note::of("d", &class(), &plan, Memory::default());
        let text = note.text();
        assert!(!text.contains("opensesame"), "{text}");
        assert!(text.contains("vault/login"), "{text}");
        let read = Note::on(&claim_with(&text)).unwrap();
        assert_eq!(read, note);
        assert!(read.is_of(&plan));
        assert_eq!(read.content_source(), plan.call.volume_content_source);
    }

    #[test]
    fn a_class_that_says_something_else_is_noticed() {
        let note = Note::of("d", &class(), &plan(), Memory::default());
        let mut other = plan();
        other.call.parameters.insert("tier".to_owned(), "slow".to_owned());
        assert!(!note.is_of(&other));
        let mut other = plan();
        other.secrets.provisioner = None;
        assert!(!note.is_of(&other));
        let mut other = plan();
        let mount = MountVolume { fs_type: "xfs".to_owned(), ..MountVolume::default() };
        let access_type = Some(AccessType::Mount(mount));
        other.call.volume_capabilities =
            vec![VolumeCapability { access_type, ..Default::default() }];
        assert!(!note.is_of(&other));
        let older = Note { mount: None, ..note.clone() };
        assert!(older.is_of(&other));
        // Added by a flag of the process that made the call.
        let mut flagged = plan();
        flagged.call.parameters.remove(context::PVC_NAME);
        assert!(note.is_of(&flagged));
    }

    #[test]
    fn a_note_fits_on_the_claim_and_one_that_cannot_be_read_is_none() {
        let place = |number: usize| json!({ "example.com/node": format!("node-{number:060}") });
        let all: Vec<_> = (0..5000).map(place).collect();
        let topology = json!({ "node": "n", "keys": ["example.com/node"], "all": all });
        let topology: Memory = serde_json::from_value(topology).unwrap();
        let text = Note::of("d", &class(), &plan(), topology).text();
        assert!(text.len() < LONGEST, "{}", text.len());
        let read = Note::on(&claim_with(&text)).unwrap();
        assert_eq!(read.topology.node.as_deref(), Some("n"));
        assert_eq!(Note::on(&claim_with("no note")), None);
    }
}
