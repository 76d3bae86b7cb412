use serde::Deserialize;
use wharf_facts::migration::{self, InTreePlugin};

use super::{Attributes, Index, IndexedBy, InternedStr, Kind, Meta, Sizes, meta::presence};

/// A PersistentVolume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PersistentVolume {
    /// The metadata.
    pub metadata: Meta,
    /// The spec.
    pub spec: PersistentVolumeSpec,
    /// The status.
    pub status: PersistentVolumeStatus,
}

/// The status of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeStatus {
    /// `Pending`, `Available`, `Bound`, `Released` or `Failed`.
    pub phase: InternedStr,
}

/// The spec of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeSpec {
    /// The CSI volume; `None` for an in-tree plugin.
    pub csi: Option<CsiVolumeSource>,
    /// Whether the in-tree plugin is `kubernetes.io/aws-ebs`.
    #[serde(deserialize_with = "presence")]
    pub aws_elastic_block_store: bool,
    /// Whether the in-tree plugin is `kubernetes.io/gce-pd`.
    #[serde(deserialize_with = "presence")]
    pub gce_persistent_disk: bool,
    /// Whether the in-tree plugin is `kubernetes.io/azure-disk`.
    #[serde(deserialize_with = "presence")]
    pub azure_disk: bool,
    /// Whether the in-tree plugin is `kubernetes.io/azure-file`.
    #[serde(deserialize_with = "presence")]
    pub azure_file: bool,
    /// Whether the in-tree plugin is `kubernetes.io/cinder`.
    #[serde(deserialize_with = "presence")]
    pub cinder: bool,
    /// Whether the in-tree plugin is `kubernetes.io/vsphere-volume`.
    #[serde(deserialize_with = "presence")]
    pub vsphere_volume: bool,
    /// Whether the in-tree plugin is `kubernetes.io/portworx-volume`.
    #[serde(deserialize_with = "presence")]
    pub portworx_volume: bool,
    /// Whether the in-tree plugin is `kubernetes.io/rbd`.
    #[serde(deserialize_with = "presence")]
    pub rbd: bool,
    /// Access modes.
    pub access_modes: Box<[InternedStr]>,
    /// Mount options.
    pub mount_options: Box<[String]>,
    /// `Filesystem`, which is the default, or `Block`.
    pub volume_mode: Option<InternedStr>,
    /// The size.
    pub capacity: Sizes,
    /// The claim of the volume.
    pub claim_ref: Option<Box<ClaimReference>>,
    /// The reclaim policy: `Delete` or `Retain`.
    pub persistent_volume_reclaim_policy: InternedStr,
    /// The StorageClass.
    pub storage_class_name: InternedStr,
    /// The VolumeAttributesClass.
    pub volume_attributes_class_name: Option<String>,
    /// The nodes that can reach the volume; all nodes if it is missing.
    pub node_affinity: Option<Box<NodeAffinity>>,
}

/// A reference to the claim of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimReference {
    /// The claim's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// The claim's UID.
    pub uid: String,
}

/// The nodes that can reach a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    /// The required terms.
    pub required: NodeSelector,
}

/// A node selector.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// Alternatives: one of them has to match.
    #[serde(deserialize_with = "super::meta::list")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Requirements that all have to match.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// Each of them.
    pub match_expressions: Vec<NodeSelectorRequirement>,
}

/// A requirement on a label of a node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeSelectorRequirement {
    /// The label's key.
    pub key: String,
    /// The operator, such as `In`.
    pub operator: String,
    /// The values.
    pub values: Vec<String>,
}

/// The CSI part of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiVolumeSource {
    /// The driver's name.
    pub driver: InternedStr,
    /// The driver's ID of the volume.
    pub volume_handle: String,
    /// Whether the volume is read-only.
    pub read_only: bool,
    /// The filesystem; empty for the default of the driver.
    pub fs_type: InternedStr,
    /// The volume context from CreateVolume.
    pub volume_attributes: Attributes,
    /// The secret for ControllerPublishVolume and ControllerUnpublishVolume.
    pub controller_publish_secret_ref: Option<Box<SecretReference>>,
    /// The secret for ControllerExpandVolume, and for ControllerModifyVolume if no other is named.
    pub controller_expand_secret_ref: Option<Box<SecretReference>>,
}

/// A reference to a secret.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SecretReference {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

impl PersistentVolumeSpec {
    /// The in-tree plugin of the volume, if that was migrated to a CSI driver.
    pub fn in_tree(&self) -> Option<InTreePlugin> {
        let plugins = [
            (self.aws_elastic_block_store, migration::AWS_EBS),
            (self.gce_persistent_disk, migration::GCE_PD),
            (self.azure_disk, migration::AZURE_DISK),
            (self.azure_file, migration::AZURE_FILE),
            (self.cinder, migration::CINDER),
            (self.vsphere_volume, migration::VSPHERE),
            (self.portworx_volume, migration::PORTWORX),
            (self.rbd, migration::RBD),
        ];
        plugins.into_iter().find_map(|(present, plugin)| present.then_some(plugin))
    }

    /// Whether the volume is a block device without a filesystem.
    pub fn is_block(&self) -> bool {
        self.volume_mode.as_deref() == Some("Block")
    }
}

impl PersistentVolume {
    /// Index by the driver's ID.
    pub const BY_HANDLE: Index = Index(0);

    /// Whether the volume belongs to this driver.
    pub fn is_of(&self, driver: &str) -> bool {
        self.spec.csi.as_ref().is_some_and(|csi| csi.driver == driver)
    }
}

impl Kind for PersistentVolume {
    const KIND: &'static str = "PersistentVolume";
    const GROUP: &'static str = "/api/v1";
    const RESOURCE: &'static str = "persistentvolumes";
    const INDEXES: &'static [IndexedBy<Self>] = &[|volume, found| {
        if let Some(csi) = &volume.spec.csi {
            found(&csi.volume_handle);
        }
    }];

    fn meta(&self) -> &Meta {
        &self.metadata
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn volumes_of_in_tree_plugins_tell_their_driver() {
        for (source, driver) in [
            ("awsElasticBlockStore", "ebs.csi.aws.com"),
            ("gcePersistentDisk", "pd.csi.storage.gke.io"),
            ("azureDisk", "disk.csi.azure.com"),
            ("azureFile", "file.csi.azure.com"),
            ("cinder", "cinder.csi.openstack.org"),
            ("vsphereVolume", "csi.vsphere.vmware.com"),
            ("portworxVolume", "pxd.portworx.com"),
            ("rbd", "rbd.csi.ceph.com"),
        ] {
            let spec: PersistentVolumeSpec =
                serde_json::from_value(json!({ source: { "volumeID": "v" } })).unwrap();
            assert_eq!(spec.in_tree().unwrap().driver, driver);
        }
        for other in [json!({ "nfs": {} }), json!({ "csi": { "driver": "d" }, "rbd": null })] {
            let spec: PersistentVolumeSpec = serde_json::from_value(other).unwrap();
            assert_eq!(spec.in_tree(), None);
        }
    }
}
