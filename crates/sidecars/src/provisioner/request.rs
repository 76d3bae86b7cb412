//! Builds the CreateVolume request from a claim and its class.

use wharf_cluster::{InternedStr, PersistentVolumeClaim, SecretReference, StorageClass};
use wharf_facts::access_mode::csi_access_mode;
use wharf_proto::csi::{
    CapacityRange, CreateVolumeRequest, VolumeCapability,
    volume_capability::{AccessMode, AccessType, BlockVolume, MountVolume, access_mode::Mode},
};

use super::{
    capabilities::ProvisionerCapabilities,
    failure::ProvisionRefusal,
    parameters,
    secrets::{SecretKind, SecretRefusal, Subject},
};

/// The secrets of a volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Secrets {
    pub(super) provisioner: Option<SecretReference>,
    pub(super) controller_publish: Option<SecretReference>,
    pub(super) node_stage: Option<SecretReference>,
    pub(super) node_publish: Option<SecretReference>,
    pub(super) controller_expand: Option<SecretReference>,
    pub(super) node_expand: Option<SecretReference>,
    pub(super) controller_modify: Option<SecretReference>,
}

impl Secrets {
    pub(super) fn of(class: &StorageClass, subject: Subject<'_>) -> Result<Self, SecretRefusal> {
        let reference = |kind: SecretKind| kind.reference(&class.parameters, subject);
        Ok(Self {
            provisioner: reference(SecretKind::Provisioner)?,
            controller_publish: reference(SecretKind::ControllerPublish)?,
            node_stage: reference(SecretKind::NodeStage)?,
            node_publish: reference(SecretKind::NodePublish)?,
            controller_expand: reference(SecretKind::ControllerExpand)?,
            node_expand: reference(SecretKind::NodeExpand)?,
            controller_modify: reference(SecretKind::ControllerModify)?,
        })
    }
}

/// The CreateVolume request, without the parts that have to be looked up: source, topology, secrets
/// and attributes.
pub(super) fn create_volume(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    name: &str,
    fs_type: &str,
    capabilities: ProvisionerCapabilities,
    extra_metadata: bool,
) -> Result<CreateVolumeRequest, ProvisionRefusal> {
    if claim.spec.selects {
        return Err(ProvisionRefusal::Selector);
    }
    let mut parameters_sent = parameters::for_driver(&class.parameters)?;
    if extra_metadata {
        let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
        let extra = parameters::extra_metadata(&claim.metadata.name, namespace, name);
        parameters_sent.extend(extra.map(|(key, value)| (key.to_owned(), value.to_owned())));
    }
    let required_bytes = claim.requested().unwrap_or_default().0;
    Ok(CreateVolumeRequest {
        name: name.to_owned(),
        capacity_range: Some(CapacityRange { required_bytes, limit_bytes: 0 }),
        volume_capabilities: volume_capabilities(claim, class, fs_type, capabilities)?,
        parameters: parameters_sent,
        ..CreateVolumeRequest::default()
    })
}

/// Whether all access modes are read-only.
pub(super) fn is_for_readers(call: &CreateVolumeRequest) -> bool {
    let mode = |capability: &VolumeCapability| capability.access_mode.map(|mode| mode.mode());
    matches!(&*call.volume_capabilities, [one] if mode(one) == Some(Mode::MultiNodeReaderOnly))
}

/// One capability for each access mode.
fn volume_capabilities(
    claim: &PersistentVolumeClaim,
    class: &StorageClass,
    fs_type: &str,
    capabilities: ProvisionerCapabilities,
) -> Result<Vec<VolumeCapability>, ProvisionRefusal> {
    let access_type = if claim.is_block() {
        AccessType::Block(BlockVolume {})
    } else {
        AccessType::Mount(MountVolume {
            fs_type: fs_type.to_owned(),
            mount_flags: class.mount_options.to_vec(),
            volume_mount_group: String::new(),
        })
    };
    let capability = |mode: &InternedStr| {
        let mode = csi_access_mode(&[mode], capabilities.single_node_multi_writer)?;
        Ok(VolumeCapability {
            access_mode: Some(AccessMode { mode: mode as i32 }),
            access_type: Some(access_type.clone()),
        })
    };
    claim.spec.access_modes.iter().map(capability).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn asked(change: impl FnOnce(&mut Value)) -> Result<CreateVolumeRequest, ProvisionRefusal> {
        let mut claim = json!({
            "metadata": { "name": "c", "namespace": "n" },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": { "requests": { "storage": "1Gi" } },
            },
        });
        change(&mut claim);
        let class = json!({ "mountOptions": ["noatime"], "parameters": { "tier": "fast" } });
        let capabilities = ProvisionerCapabilities {
            single_node_multi_writer: true,
            ..ProvisionerCapabilities::default()
        };
        create_volume(
            &serde_json::from_value(claim).unwrap(),
            &serde_json::from_value(class).unwrap(),
            "pvc-1",
            "xfs",
            capabilities,
            true,
        )
    }

    #[test]
    fn a_claim_becomes_a_call() {
        let call = asked(|_| {}).unwrap();
        assert_eq!(call.name, "pvc-1");
        assert_eq!(call.capacity_range.unwrap().required_bytes, 1 << 30);
        let sent: Vec<(&str, &str)> =
            call.parameters.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let expected = [
            ("csi.storage.k8s.io/pv/name", "pvc-1"),
            ("csi.storage.k8s.io/pvc/name", "c"),
            ("csi.storage.k8s.io/pvc/namespace", "n"),
            ("tier", "fast"),
        ];
        assert_eq!(sent, expected);
        let mount = MountVolume {
            fs_type: "xfs".to_owned(),
            mount_flags: vec!["noatime".to_owned()],
            ..MountVolume::default()
        };
        let [capability] = &*call.volume_capabilities else { panic!("{call:?}") };
        assert_eq!(capability.access_type, Some(AccessType::Mount(mount)));
        let sizeless = asked(|it| it["spec"]["resources"] = json!({})).unwrap();
        assert_eq!(sizeless.capacity_range.unwrap().required_bytes, 0);
    }

    #[test]
    fn each_access_mode_is_a_capability_of_its_own() {
        let modes = |modes: &[&str]| {
            let call = asked(|it| it["spec"]["accessModes"] = json!(modes)).unwrap();
            let mode = |it: &VolumeCapability| it.access_mode.unwrap().mode();
            (call.volume_capabilities.iter().map(mode).collect::<Vec<_>>(), is_for_readers(&call))
        };
        assert_eq!(modes(&["ReadOnlyMany"]), (vec![Mode::MultiNodeReaderOnly], true));
        assert_eq!(modes(&["ReadWriteOncePod"]), (vec![Mode::SingleNodeSingleWriter], false));
        let both = vec![Mode::MultiNodeReaderOnly, Mode::SingleNodeMultiWriter];
        assert_eq!(modes(&["ReadOnlyMany", "ReadWriteOnce"]), (both, false));
        let block = asked(|it| it["spec"]["volumeMode"] = json!("Block")).unwrap();
        let block = block.volume_capabilities[0].access_type.clone();
        assert_eq!(block, Some(AccessType::Block(BlockVolume {})));
    }

    #[test]
    fn a_volume_cannot_be_made_to_match_labels() {
        assert_eq!(asked(|it| it["spec"]["selector"] = json!({})), Err(ProvisionRefusal::Selector));
    }
}
