use serde::Deserialize;
use wharf_facts::migration::{self, InTreePlugin};

use super::{Attributes, Index, IndexedBy, Kind, Meta, Sizes, Word, meta::presence};

/// A volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PersistentVolume {
    /// Its metadata.
    pub metadata: Meta,
    /// What it is.
    pub spec: PersistentVolumeSpec,
    /// What has become of it.
    pub status: PersistentVolumeStatus,
}

/// What has become of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct PersistentVolumeStatus {
    /// `Pending`, `Available`, `Bound`, `Released` or `Failed`.
    pub phase: Word,
}

/// What a volume is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PersistentVolumeSpec {
    /// The volume in a CSI driver; `None` for one of an in-tree plugin.
    pub csi: Option<CsiVolumeSource>,
    /// Whether it is of in-tree plugin `kubernetes.io/aws-ebs`.
    #[serde(deserialize_with = "presence")]
    pub aws_elastic_block_store: bool,
    /// Whether it is of in-tree plugin `kubernetes.io/gce-pd`.
    #[serde(deserialize_with = "presence")]
    pub gce_persistent_disk: bool,
    /// Whether it is of in-tree plugin `kubernetes.io/azure-disk`.
    #[serde(deserialize_with = "presence")]
    pub azure_disk: bool,
    /// Whether it is of in-tree plugin `kubernetes.io/azure-file`.
    #[serde(deserialize_with = "presence")]
    pub azure_file: bool,
    /// Whether it is of in-tree plugin `kubernetes.io/cinder`.
    #[serde(deserialize_with = "presence")]
    pub cinder: bool,
    /// Whether it is of in-tree plugin `kubernetes.io/vsphere-volume`.
    #[serde(deserialize_with = "presence")]
    pub vsphere_volume: bool,
    /// Whether it is of in-tree plugin `kubernetes.io/portworx-volume`.
    #[serde(deserialize_with = "presence")]
    pub portworx_volume: bool,
    /// Whether it is of in-tree plugin `kubernetes.io/rbd`.
    #[serde(deserialize_with = "presence")]
    pub rbd: bool,
    /// How it may be used.
    pub access_modes: Box<[Word]>,
    /// Options for its mount.
    pub mount_options: Box<[String]>,
    /// `Filesystem`, which is the default, or `Block`.
    pub volume_mode: Option<Word>,
    /// How large it is.
    pub capacity: Sizes,
    /// The claim that it belongs to.
    pub claim_ref: Option<Box<ClaimReference>>,
    /// What becomes of it without its claim: `Delete` or `Retain`.
    pub persistent_volume_reclaim_policy: Word,
    /// Its class.
    pub storage_class_name: Word,
    /// Which attributes it has.
    pub volume_attributes_class_name: Option<String>,
    /// Where it can be reached; nothing is everywhere.
    pub node_affinity: Option<Box<NodeAffinity>>,
}

/// Which claim a volume belongs to.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct ClaimReference {
    /// The claim's namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
    /// Tells it from others that have had its name.
    pub uid: String,
}

/// Where a volume can be reached.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeAffinity {
    /// From nowhere else.
    pub required: NodeSelector,
}

/// Nodes, by their labels.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelector {
    /// One of them has to hold.
    #[serde(deserialize_with = "super::meta::list")]
    pub node_selector_terms: Vec<NodeSelectorTerm>,
}

/// Requirements that all have to hold.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct NodeSelectorTerm {
    /// Each of them.
    pub match_expressions: Vec<NodeSelectorRequirement>,
}

/// A label of a node, and what is asked of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct NodeSelectorRequirement {
    /// The label.
    pub key: String,
    /// Such as `In`.
    pub operator: String,
    /// The values.
    pub values: Vec<String>,
}

/// A volume of a CSI driver.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CsiVolumeSource {
    /// The driver's name.
    pub driver: Word,
    /// The driver's name for the volume.
    pub volume_handle: String,
    /// Nobody may write to it.
    pub read_only: bool,
    /// The filesystem; empty leaves the choice to others.
    pub fs_type: Word,
    /// What the driver said about the volume when it was made.
    pub volume_attributes: Attributes,
    /// The secret for attaching and detaching.
    pub controller_publish_secret_ref: Option<Box<SecretReference>>,
    /// The secret for growing, and for changes of attributes where no other is named.
    pub controller_expand_secret_ref: Option<Box<SecretReference>>,
}

/// Where a secret is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct SecretReference {
    /// Its name.
    pub name: String,
    /// Its namespace.
    pub namespace: String,
}

impl PersistentVolumeSpec {
    /// The in-tree plugin that it is of, if that was migrated to a CSI driver.
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

    /// Whether it is used as a device and has no filesystem.
    pub fn is_block(&self) -> bool {
        self.volume_mode.as_deref() == Some("Block")
    }
}

impl PersistentVolume {
    /// By the driver's name for it.
    pub const BY_HANDLE: Index = Index(0);

    /// Whether it is a volume of this driver.
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
